// Fields and values that newer versions of PyTorch added: set where the version has them.
//
//   set_num_oom_rejections(stats, 3)      2.12 and later; nothing before
//
// One source builds for all versions without asking which it is: a template is chosen only where
// what it names exists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

/// DeviceStats::num_oom_rejections (2.12).
template <class Stats>
void set_num_oom_rejections(Stats& stats, std::int64_t count) {
  if constexpr (requires { stats.num_oom_rejections; }) stats.num_oom_rejections = count;
}

/// Calls f(the map from pool to StatArray), DeviceStats::reserved_bytes_by_private_pools (2.13).
template <class Stats, class F>
void with_private_pools(Stats& stats, F&& f) {
  if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
    f(stats.reserved_bytes_by_private_pools);
  }
}

/// Whether CUDAAllocator::markCaptureBegin and markCaptureEnd are there to be called (2.13).
template <class Base = CUDAAllocator>
constexpr bool tells_captures() {
  return requires(Base & base) { base.markCaptureBegin(0); };
}

/// Calls them where they are there.
template <class Base>
void mark_capture_begin(Base& allocator, c10::DeviceIndex device) {
  if constexpr (tells_captures<Base>()) allocator.markCaptureBegin(device);
}
template <class Base>
void mark_capture_end(Base& allocator, c10::DeviceIndex device) {
  if constexpr (tells_captures<Base>()) allocator.markCaptureEnd(device);
}

/// TraceEntry::ANNOTATE (2.14).
template <class Entry = TraceEntry>
std::optional<typename Entry::Action> annotate_action() {
  if constexpr (requires { Entry::ANNOTATE; }) {
    return Entry::ANNOTATE;
  } else {
    return std::nullopt;
  }
}

/// AllocatorConfigInfo::max_round_threshold and max_cached_size (2.14), of pinned memory.
template <class Info, class Config>
void set_pinned_limits(Info& info, Config*) {
  if constexpr (requires {
                  info.max_round_threshold = Config::pinned_max_round_threshold();
                  info.max_cached_size = Config::pinned_max_cached_size();
                }) {
    info.max_round_threshold = Config::pinned_max_round_threshold();
    info.max_cached_size = Config::pinned_max_cached_size();
  }
}

}  // namespace gapless::torch_plugin
