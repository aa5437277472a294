// PyTorch's own settings (PYTORCH_CUDA_ALLOC_CONF, torch.cuda.memory._set_allocator_settings): what
// gapless does with each.
//
//   roundup_power2_divisions       requests are rounded up as PyTorch rounds them
//   per_process_memory_fraction    the limit, until set_per_process_memory_fraction() sets another
//   garbage_collection_threshold   pages are given back above that part of the limit, if there is
//   one expandable_segments            nothing to do: all memory is max_split_size_mb, ... about
//   segments that gapless does not have: named once
#pragma once

#include <cstdint>
#include <string>

#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin::settings {

/// Reads the environment's settings. To be called before another allocator takes the native one's
/// place: PyTorch asserts that a `backend:` in them is the allocator there is. Throws c10::Error
/// where they are wrong.
void parse();

/// The keys in `settings` that have no effect with gapless, as "a, b"; empty where there is none.
std::string without_effect(const std::string& settings);

/// What a request is rounded to beside the 512 B of all requests; 0: nothing.
std::uint64_t rounded_bytes(std::uint64_t bytes);

/// Between 0 and 1.
double memory_fraction();

/// Of a device whose limit is `limit_bytes`: above which pages are given back; UINT64_MAX: never.
std::uint64_t soft_limit_bytes(std::uint64_t limit_bytes);

/// As snapshots tell them.
torch_cuda::AllocatorConfigInfo for_snapshot();

}  // namespace gapless::torch_plugin::settings
