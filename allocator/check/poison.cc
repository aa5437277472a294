#include "allocator/check/poison.h"

namespace gapless {

DriverStatus Poison::give(const CheckedBlock& block, Ranges ranges, StreamHandle stream) {
  for (const RangeSet::Range& range : ranges) {
    const DriverStatus status = contents_.fill(range.begin, range.end, kFreed, stream);
    if (status != DriverStatus::ok) return status;
    poisoned_.add(range.begin, range.end);
  }
  if (freed_.size() == kRemembered) freed_.pop_front();
  freed_.push_back({block, {ranges.begin(), ranges.end()}});
  return DriverStatus::ok;
}

std::vector<CheckedBlock> Poison::freed() const {
  std::vector<CheckedBlock> blocks;
  blocks.reserve(freed_.size());
  for (const Freed& freed : freed_) blocks.push_back(freed.block);
  return blocks;
}

const CheckedBlock* Poison::freed_at(DeviceAddress home_address, std::uint64_t& offset) const {
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed) {
    std::uint64_t before = 0;
    for (const RangeSet::Range& range : freed->ranges) {
      if (range.begin <= home_address && home_address < range.end) {
        offset = before + (home_address - range.begin);
        return &freed->block;
      }
      before += range.bytes();
    }
  }
  return nullptr;
}

}  // namespace gapless
