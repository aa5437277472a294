// PyTorch's own settings (PYTORCH_CUDA_ALLOC_CONF, torch.cuda.memory._set_allocator_settings): what
// gapless does with each.
//
//   roundup_power2_divisions       requests are rounded up as PyTorch rounds them
//   per_process_memory_fraction    the limit, until set_per_process_memory_fraction() sets another
//   garbage_collection_threshold   pages are given back above that part of the limit
//   expandable_segments            nothing to do: all memory is expandable
//   max_split_size_mb and others   of segments, which gapless does not have: named once
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/AllocatorConfig.h>

#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin::settings {

/// Reads the environment's settings. To be called before another allocator takes the native one's
/// place: PyTorch asserts that a `backend:` in them is the allocator there is. Throws c10::Error
/// where they are wrong.
void parse();

/// The keys in `settings` that have no effect with gapless, as "a, b"; empty where there is none.
std::string without_effect(const std::string& settings);

/// `bytes` rounded up to the next step, where the range from one power of two to the next is cut
/// into so many; 0: not at all.
std::uint64_t rounded_bytes(std::uint64_t bytes, std::size_t divisions);

/// What a request is rounded to beside the 512 B of all requests; 0: nothing.
inline std::uint64_t rounded_bytes(std::uint64_t bytes) {
  // By the power of two below, from 1 MiB on.
  static const std::vector<std::size_t>& table =
      c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions();
  constexpr int kFirst = 21;  // bit_width of 1 MiB
  const int last = static_cast<int>(table.size()) - 1;
  const std::size_t divisions = table[static_cast<std::size_t>(
      std::clamp(static_cast<int>(std::bit_width(bytes)) - kFirst, 0, last))];
  if (divisions <= 1) [[likely]]
    return 0;
  return rounded_bytes(bytes, divisions);
}

/// Between 0 and 1.
double memory_fraction();

/// Of a device whose limit is `limit_bytes`: above which pages are given back; UINT64_MAX: never.
std::uint64_t soft_limit_bytes(std::uint64_t limit_bytes);

/// As snapshots tell them.
torch_cuda::AllocatorConfigInfo for_snapshot();

}  // namespace gapless::torch_plugin::settings
