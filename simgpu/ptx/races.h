// Races: accesses of a block's threads to the same byte of shared memory that nothing orders.
//
//   thread 3 writes byte 12     warp 0, epoch 1
//   bar.sync                    all warps come to know each other's epoch 1
//   thread 40 reads byte 12     warp 1 knows of warp 0's epoch 1: ordered
//
// Time goes by warps: a barrier begins an epoch for the warps that meet there, and
// synchronizing a warp's lanes (bar.warp.sync) one for that warp. Atomic accesses do not race with
// each other, nor does who writes what is there already.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gapless::simgpu::ptx {

class Races {
 public:
  Races(bool enabled, unsigned shared_bytes, unsigned warps);

  struct Access {
    unsigned warp = 0;
    unsigned lane = 0;
    std::uint64_t offset = 0;
    unsigned bytes = 0;
    bool writes = false;
    bool changes = false;  // other bytes than are there
    bool is_atomic = false;
  };
  struct Other {
    unsigned warp = 0;
    std::optional<unsigned> lane;  // not one of several
    bool wrote = false;
    std::uint64_t offset = 0;
  };
  /// Notes the access. The other access that it races with, if there is one.
  std::optional<Other> access(const Access& access);

  void warp_synchronized(unsigned warp);
  void met(const std::vector<unsigned>& warps);

 private:
  struct Record {
    std::uint32_t epoch = 0;  // 0: none
    std::uint8_t warp = 0;
    std::uint8_t lane = 0;
    bool is_atomic = false;
  };
  static constexpr std::uint8_t kSeveral = 255;

  [[nodiscard]] std::uint32_t& clock(unsigned warp, unsigned of) {
    return clocks_[std::size_t{warp} * warps_ + of];
  }
  [[nodiscard]] bool conflicts(const Access& access, const Record& record);

  bool enabled_;
  unsigned warps_;
  std::vector<std::uint32_t> clocks_;  // what each warp knows of each
  std::vector<Record> writes_;         // the last of each byte
  std::vector<Record> reads_;          // the last of each warp of each byte
};

}  // namespace gapless::simgpu::ptx
