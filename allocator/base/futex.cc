#include "allocator/base/futex.h"

#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gapless {
namespace {

std::uint32_t* word_of(std::atomic<std::uint32_t>& word) {
  return reinterpret_cast<std::uint32_t*>(&word);
}

}  // namespace

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint64_t most_ms) {
  constexpr std::uint64_t kMsPerSecond = 1000;
  constexpr long kNsPerMs = 1000000;
  timespec timeout{};
  timeout.tv_sec = static_cast<std::time_t>(most_ms / kMsPerSecond);
  timeout.tv_nsec = static_cast<long>(most_ms % kMsPerSecond) * kNsPerMs;
  (void)syscall(SYS_futex, word_of(word), FUTEX_WAIT, value,
                most_ms == kForeverMs ? nullptr : &timeout, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  (void)syscall(SYS_futex, word_of(word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace gapless
