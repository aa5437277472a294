// A word that one waits for and another changes, in one process or two that share its memory.
//
//   std::atomic::wait has no limit of time, and std::condition_variable's limit is a function that
//   the oldest C library the kit runs on does not have.
#pragma once

#include <atomic>
#include <cstdint>

namespace gapless {

constexpr std::uint64_t kForeverMs = UINT64_MAX;

/// Waits until it is woken, or so long; not at all where `word` is not `value`. It may return
/// before.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint64_t most_ms);
/// Wakes all who wait. By a signal handler, too.
void futex_wake(std::atomic<std::uint32_t>& word);

}  // namespace gapless
