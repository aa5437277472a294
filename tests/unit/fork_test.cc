// Children forked while threads allocate: none may hang, and none touches what is its parent's.
#include "allocator/base/fork.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/c_api.h"
#include "allocator/gapless.h"
#include "simgpu/sim_driver.h"
#include "tests/support/sanitizers.h"

namespace gapless {
namespace {

// How a child ends that runs body(): 0, or the first check that was not met; a signal's negative
// number. It is given ten seconds.
template <class F>
int in_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    _exit(body());
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : -WTERMSIG(ended);
}

TEST(Fork, ChildrenAreTold) {
  int told = 0;
  {
    const AfterFork first([&] { ++told; });
    const AfterFork second([&] { told += 10; });
    EXPECT_EQ(in_child([&] { return told; }), 11);
  }
  EXPECT_EQ(in_child([&] { return told; }), 0);  // whoever was told is gone
  EXPECT_EQ(told, 0);
}

TEST(Fork, ALockThatIsAbandonedIsNotWaitedFor) {
  Mutex mutex;
  mutex.lock();
  mutex.abandon();
  EXPECT_THROW(mutex.lock(), ForkedChild);
  EXPECT_THROW(mutex.lock(), ForkedChild);
  Mutex free;
  free.abandon();
  EXPECT_THROW(free.lock(), ForkedChild);
}

// What the child of a process with that allocator, and that block, finds.
int look_around(gapless_allocator* allocator, void* block) {
  if (gapless_free(allocator, block) != GAPLESS_OK) return 1;
  void* memory = nullptr;
  if (gapless_alloc(allocator, 0, 1000, nullptr, &memory) != GAPLESS_DRIVER_ERROR) return 2;
  const std::string why = gapless_last_error();
  if (memory != nullptr || why.find("was forked") == std::string::npos) return 3;
  std::size_t size = 0;
  if (gapless_owns(allocator, block, &size) != 0) return 4;
  if (gapless_trim(allocator, 0, 0) != GAPLESS_DRIVER_ERROR) return 5;
  if (gapless_pin(allocator, block) != GAPLESS_DRIVER_ERROR) return 6;
  if (gapless_describe(allocator, nullptr, &size) != GAPLESS_DRIVER_ERROR) return 7;
  if (gapless_record_stream(allocator, block, nullptr) != GAPLESS_DRIVER_ERROR) return 8;
  if (gapless_end_pool(allocator, 0, 0, 1) != GAPLESS_DRIVER_ERROR) return 9;
  if (gapless_close(allocator, block) != GAPLESS_DRIVER_ERROR) return 10;
  if (gapless_destroy(allocator) != GAPLESS_DRIVER_ERROR) return 11;
  // Its own children find the same.
  return in_child([&] { return gapless_free(allocator, block) == GAPLESS_OK ? 0 : 1; }) == 0 ? 0
                                                                                             : 12;
}

TEST(Fork, ChildrenOfAProcessWhoseThreadsAllocate) {
  gapless_allocator* allocator = nullptr;
  auto driver = std::make_unique<simgpu::SimDriver>(
      simgpu::SimOptions{.devices = {{.total_bytes = 256 * MiB}}});
  ASSERT_EQ(create_over(std::move(driver), {}, &allocator), GAPLESS_OK);
  void* block = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 3 * MiB, nullptr, &block), GAPLESS_OK);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 1; !stop; ++i) {
        void* memory = nullptr;
        ASSERT_EQ(gapless_alloc(allocator, 0, i % 1000 * 700 * t + 1, nullptr, &memory),
                  GAPLESS_OK);
        ASSERT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(in_child([&] { return look_around(allocator, block); }), 0) << "child " << i;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  // The parent goes on as if nothing had been.
  std::size_t size = 0;
  EXPECT_EQ(gapless_owns(allocator, block, &size), 1);
  EXPECT_EQ(gapless_free(allocator, block), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST(Fork, AChildMakesAllocatorsOfItsOwn) {
  // The child would wait for ever where a thread of the parent's was in the sanitizer's allocator.
  if constexpr (testing::kAddressSanitizer) {
    GTEST_SKIP() << "the address sanitizer does not let go of its locks in a child";
  }
  // As a process does that forks before it uses CUDA.
  const auto make = [] {
    gapless_allocator* allocator = nullptr;
    auto driver = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = 64 * MiB}}});
    EXPECT_EQ(create_over(std::move(driver), {}, &allocator), GAPLESS_OK);
    return allocator;
  };
  gapless_allocator* const theirs = make();
  EXPECT_EQ(in_child([&] {
              gapless_allocator* const own = make();
              void* memory = nullptr;
              if (gapless_alloc(own, 0, 1000, nullptr, &memory) != GAPLESS_OK) return 1;
              if (gapless_free(own, memory) != GAPLESS_OK) return 2;
              return gapless_destroy(own) == GAPLESS_OK ? 0 : 3;
            }),
            0);
  EXPECT_EQ(gapless_destroy(theirs), GAPLESS_OK);
}

}  // namespace
}  // namespace gapless
