#include "torch_plugin/adapter/settings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

#include "torch_plugin/adapter/newer.h"

namespace gapless::torch_plugin::settings {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using torch_cuda::CUDAAllocatorConfig;

// Of segments as the native allocator has them, or how it calls cudaMalloc.
constexpr std::array<std::string_view, 7> kWithoutEffect = {"max_split_size_mb",
                                                            "max_non_split_rounding_mb",
                                                            "large_segment_size_mb",
                                                            "release_lock_on_cudamalloc",
                                                            "throw_on_cudamalloc_oom",
                                                            "expandable_segments_reserve",
                                                            "expandable_segments_reserve_by_class"};

// One for each power of two from 1 MiB to 32 GiB; below and above, the first's and the last's. As
// AcceleratorAllocatorConfig::roundup_power2_divisions(size) has it, without three calls.

}  // namespace

void parse() {
  (void)AcceleratorAllocatorConfig::instance();
  (void)CUDAAllocatorConfig::instance();
}

std::string without_effect(const std::string& settings) {
  std::string found;
  for (const std::string_view key : kWithoutEffect) {
    for (std::size_t at = settings.find(key); at != std::string::npos;
         at = settings.find(key, at + 1)) {
      // The whole key, not a part of one.
      const std::size_t end = settings.find_first_not_of(" \t", at + key.size());
      if (end == std::string::npos || settings[end] != ':') continue;
      if (at != 0 && settings[at - 1] != ',' && settings[at - 1] != ' ') continue;
      found += (found.empty() ? "" : ", ") + std::string(key);
      break;
    }
  }
  return found;
}

std::uint64_t rounded_bytes(std::uint64_t bytes, std::size_t divisions) {
  constexpr std::uint64_t kLeastBytes = 512;
  if (bytes <= kLeastBytes * divisions) return 0;
  const std::uint64_t step = std::bit_floor(bytes) / std::bit_floor(divisions);
  return step == 0 ? std::bit_ceil(bytes) : (bytes + step - 1) / step * step;
}

double memory_fraction() { return CUDAAllocatorConfig::per_process_memory_fraction(); }

std::uint64_t soft_limit_bytes(std::uint64_t limit_bytes) {
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  if (threshold <= 0 || limit_bytes == UINT64_MAX) return UINT64_MAX;
  return static_cast<std::uint64_t>(threshold * static_cast<double>(limit_bytes));
}

torch_cuda::AllocatorConfigInfo for_snapshot() {
  torch_cuda::AllocatorConfigInfo info{};
  info.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  info.max_split_size = AcceleratorAllocatorConfig::max_split_size();
  info.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
  info.expandable_segments = CUDAAllocatorConfig::expandable_segments();
  info.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
  info.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
  info.graph_capture_record_stream_reuse = CUDAAllocatorConfig::graph_capture_record_stream_reuse();
  info.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
  info.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  set_pinned_limits<torch_cuda::AllocatorConfigInfo, AcceleratorAllocatorConfig>(info, nullptr);
  return info;
}

}  // namespace gapless::torch_plugin::settings
