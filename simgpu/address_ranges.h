// AddressRanges: which addresses are given out, first fit, the lowest first, as CUDA gives them.
//
//   from  [ A ][ B ]   gap   [ C ]  gap ...
//
// The gaps are kept, not searched for between what is used: a process that holds 40,000 segments
// side by side asks for the next one as quickly as for the first.
#pragma once

#include <iterator>
#include <map>
#include <optional>

#include "allocator/base/bytes.h"
#include "allocator/driver/driver.h"

namespace gapless::simgpu {

class AddressRanges {
 public:
  /// All addresses from `from` on are free.
  explicit AddressRanges(DeviceAddress from) : gaps_{{from, kEnd}} {}

  /// The lowest aligned place with room for `room` bytes, of which `bytes` are used from now on;
  /// nothing where there is none.
  std::optional<DeviceAddress> take(std::uint64_t bytes, std::uint64_t room,
                                    std::uint64_t alignment) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const auto [begin, end] = *gap;
      const DeviceAddress at = align_up(begin, alignment);
      if (at < begin || at > end || room > end - at) continue;
      gaps_.erase(gap);
      if (begin < at) gaps_[begin] = at;
      if (at + bytes < end) gaps_[at + bytes] = end;
      used_[at] = bytes;
      return at;
    }
    return {};
  }

  /// What was taken at that address is free again.
  void give_back(DeviceAddress at) {
    const auto found = used_.find(at);
    DeviceAddress begin = at;
    DeviceAddress end = at + found->second;
    used_.erase(found);
    auto after = gaps_.lower_bound(begin);
    if (after != gaps_.end() && after->first == end) {
      end = after->second;
      after = gaps_.erase(after);
    }
    if (after != gaps_.begin() && std::prev(after)->second == begin) {
      begin = std::prev(after)->first;
    }
    gaps_[begin] = end;
  }

  /// By address: the bytes taken there.
  [[nodiscard]] const std::map<DeviceAddress, std::uint64_t>& used() const { return used_; }

 private:
  static constexpr DeviceAddress kEnd = DeviceAddress{1} << 62;  // far beyond what a GPU can name

  std::map<DeviceAddress, DeviceAddress> gaps_;  // begin -> end; the last one reaches the end
  std::map<DeviceAddress, std::uint64_t> used_;
};

}  // namespace gapless::simgpu
