#include "tests/support/what_fits.h"

namespace gapless::testing {

void WhatFits::begin(std::span<const simgpu::PhysicalRange> ranges, PoolId pool) {
  for (const simgpu::PhysicalRange& range : ranges) {
    Page& page = pages_[range.handle];
    page.used_bytes += range.bytes;
    page.facts.on_host = gpu_.is_on_host(range.handle);
    if (page.facts.users.insert(pool).second) ever_bytes_[pool] += gpu_.bytes_of(range.handle);
  }
}

void WhatFits::end(std::span<const simgpu::PhysicalRange> ranges,
                   std::span<const std::uint32_t> streams, std::uint64_t now) {
  for (const simgpu::PhysicalRange& range : ranges) {
    const auto found = pages_.find(range.handle);
    if (found == pages_.end()) continue;  // the device has it back
    Page& page = found->second;
    page.used_bytes -= range.bytes;
    for (const std::uint32_t stream : streams) page.facts.freed[stream] = now;
  }
}

void WhatFits::forget(PoolId pool) {
  ever_bytes_.erase(pool);
  for (auto& [handle, page] : pages_) page.facts.users.erase(pool);
}

std::uint64_t WhatFits::free_bytes(const std::function<bool(const Free&)>& counts) {
  // What the device has back is gone for good: handles are not used again.
  std::erase_if(pages_, [&](const auto& entry) { return gpu_.bytes_of(entry.first) == 0; });
  std::uint64_t bytes = 0;
  for (const auto& [handle, page] : pages_) {
    // One that is mapped nowhere is on its way back: the driver has not taken it yet.
    if (page.used_bytes != 0 || !gpu_.is_mapped(handle)) continue;
    if (counts(page.facts)) bytes += gpu_.bytes_of(handle);
  }
  return bytes;
}

std::uint64_t WhatFits::ever_bytes(PoolId pool) const {
  const auto found = ever_bytes_.find(pool);
  return found == ever_bytes_.end() ? 0 : found->second;
}

}  // namespace gapless::testing
