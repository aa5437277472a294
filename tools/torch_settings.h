// PyTorch's settings of its allocator in the environment, beside an allocator that was asked for.
//
//   PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True
//     native       max_split_size_mb:128,expandable_segments:False
//     expandable   max_split_size_mb:128,expandable_segments:True
//     async        backend:cudaMallocAsync
//     gapless      as it is: its adapter knows what does not concern it
//
// Where the program sets it itself, simgpu/python/watch_torch.py does the same as torch begins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// What PYTORCH_CUDA_ALLOC_CONF is to be with that allocator, in place of `set`; empty: not set.
std::string torch_settings_for(const std::string& allocator, std::string_view set);

/// The settings that torch would take: it does not look at PYTORCH_ALLOC_CONF where the other one
/// is set. Empty where neither is.
std::string torch_settings_set();

/// Of a row whose program set them itself, in another way than was asked for; else empty.
std::string replaced_settings_note(const nlohmann::json& row);

/// Takes PYTORCH_NO_CUDA_MEMORY_CACHING, with which torch has no allocator, out of the environment,
/// and says on standard error, as `command`, which settings there the allocators go without.
void leave_out_torch_settings(const std::string& command,
                              const std::vector<std::string>& allocators);

}  // namespace gapless::tools
