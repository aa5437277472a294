// SoftLimit: more may be reserved when it must be, and free pages go back when that is over.
//
//   reserved   |||||||||||||||||:||||     4 over the limit: given back once as much is free
//   free           ||||  ||| ||           and, where pages were shared with live blocks the last
//                                         time, only when more is free than then
#pragma once

#include <algorithm>
#include <cstdint>

namespace gapless {

class SoftLimit {
 public:
  explicit SoftLimit(std::uint64_t bytes) : bytes_(bytes) {}

  void set(std::uint64_t bytes) {
    bytes_ = bytes;
    needs_bytes_ = 0;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_set() const { return bytes_ != UINT64_MAX; }

  /// Whether it is worth to wait for the device and to give pages back.
  [[nodiscard]] bool asks(std::uint64_t reserved_bytes, std::uint64_t free_bytes) const {
    if (reserved_bytes <= bytes_) return false;
    return free_bytes >= std::max(reserved_bytes - bytes_, needs_bytes_);
  }
  /// That was done, when so much was reserved; now so much is reserved and free.
  void note_given_back(std::uint64_t before_bytes, std::uint64_t reserved_bytes,
                       std::uint64_t free_bytes, std::uint64_t page_bytes) {
    const bool kept = reserved_bytes <= bytes_;
    needs_bytes_ = kept ? 0 : free_bytes + std::max((before_bytes - bytes_) / 2, page_bytes);
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t needs_bytes_ = 0;  // free bytes below which giving pages back would not help
};

}  // namespace gapless
