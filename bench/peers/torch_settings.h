// TorchSettings: what PYTORCH_CUDA_ALLOC_CONF says to PyTorch's own allocators, as far as their
// models know it.
//
//   native                                        the default
//   expandable                                    expandable_segments:True
//   native+max_split_size_mb:128                  as users write it, after a plus
//   native+roundup_power2_divisions:4+max_split_size_mb:64
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gapless::bench {

struct TorchSettings {
  bool expandable = false;
  /// Blocks of that size and more are never split, and only reused for requests that come within
  /// 20 MiB of them.
  std::uint64_t max_split_bytes = UINT64_MAX;
  /// Sizes are rounded up to so many steps between two powers of two; 0: to 512 B.
  std::uint64_t roundup_power2_divisions = 0;
  /// Above that part of the device, whole segments that were not used for long are given back
  /// before a new one is taken; 0: never. PyTorch does that only in programs that called
  /// torch.cuda.set_per_process_memory_fraction(); the model is of such a program, with 1.0.
  double garbage_collection_threshold = 0;

  bool operator==(const TorchSettings&) const = default;
};

/// Reads "native+max_split_size_mb:128". Nothing where the name is not that of a model; throws
/// InputError for settings it does not know or that PyTorch refuses.
std::optional<TorchSettings> torch_settings(const std::string& name);

/// The settings in such a name as PYTORCH_CUDA_ALLOC_CONF has them: "max_split_size_mb:128".
std::string allocator_conf(const std::string& name);

}  // namespace gapless::bench
