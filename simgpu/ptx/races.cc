#include "simgpu/ptx/races.h"

#include <algorithm>

namespace gapless::simgpu::ptx {

Races::Races(bool enabled, unsigned shared_bytes, unsigned warps)
    : enabled_(enabled && shared_bytes != 0),
      warps_(warps),
      clocks_(std::size_t{warps} * warps),
      writes_(enabled_ ? shared_bytes : 0),
      reads_(enabled_ ? std::size_t{shared_bytes} * warps : 0) {
  for (unsigned warp = 0; warp < warps; ++warp) clock(warp, warp) = 1;
}

bool Races::conflicts(const Access& access, const Record& record) {
  if (record.epoch == 0 || (record.is_atomic && access.is_atomic)) return false;
  if (record.warp != access.warp) return clock(access.warp, record.warp) < record.epoch;
  return record.lane != access.lane && record.epoch == clock(access.warp, access.warp);
}

std::optional<Races::Other> Races::access(const Access& access) {
  if (!enabled_) return std::nullopt;
  std::optional<Other> found;
  const auto race = [&](const Record& record, std::uint64_t offset, bool wrote) {
    if (found || !conflicts(access, record)) return;
    found = Other{record.warp, std::nullopt, wrote, offset};
    if (record.lane != kSeveral) found->lane = record.lane;
  };
  const Record now{clock(access.warp, access.warp), static_cast<std::uint8_t>(access.warp),
                   static_cast<std::uint8_t>(access.lane), access.is_atomic};
  for (std::uint64_t offset = access.offset; offset < access.offset + access.bytes; ++offset) {
    Record* const reads = reads_.data() + offset * warps_;
    if (!access.writes || access.changes || access.is_atomic) race(writes_[offset], offset, true);
    if (access.writes) {
      if (access.changes || access.is_atomic) {
        for (unsigned warp = 0; warp < warps_; ++warp) race(reads[warp], offset, false);
      }
      writes_[offset] = now;
    }
    if (!access.writes || access.is_atomic) {
      Record& read = reads[access.warp];
      const bool by_others = read.epoch == now.epoch && read.lane != now.lane;
      const bool is_atomic = now.is_atomic && (read.epoch != now.epoch || read.is_atomic);
      read = now;
      read.is_atomic = is_atomic;
      if (by_others) read.lane = kSeveral;
    }
  }
  return found;
}

void Races::warp_synchronized(unsigned warp) {
  if (enabled_) ++clock(warp, warp);
}

void Races::met(const std::vector<unsigned>& warps) {
  if (!enabled_) return;
  for (unsigned of = 0; of < warps_; ++of) {
    std::uint32_t latest = 0;
    for (const unsigned warp : warps) latest = std::max(latest, clock(warp, of));
    for (const unsigned warp : warps) clock(warp, of) = latest;
  }
  for (const unsigned warp : warps) ++clock(warp, warp);
}

}  // namespace gapless::simgpu::ptx
