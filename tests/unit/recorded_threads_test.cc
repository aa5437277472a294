// Threads that ask for memory while they are recorded and looked at; ThreadSanitizer watches them
// in CI.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/live/recorder.h"
#include "allocator/live/stack_table.h"
#include "allocator/trace/load.h"
#include "simgpu/sim_driver.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

std::uint32_t stack_of_test() {
  thread_local std::uint64_t calls = 0;
  const StackTable::FrameKey frames[] = {{++calls % 50, 1}, {1, 2}};
  return recorded_stacks().number_of(
      frames, [&](std::size_t i) { return "a.py:" + std::to_string(frames[i].first) + " f"; });
}

TEST(RecordedThreads, GoOnWhileOthersLookAndStop) {
  const ScratchFolder folder;
  simgpu::SimDriver gpu({.devices = {{.total_bytes = GiB}, {.total_bytes = GiB}}});
  DriverStatus status = DriverStatus::ok;
  Allocator allocator(gpu, {}, status);
  Recorder recorder(allocator);
  recorder.set_stack_source(stack_of_test);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; !done; ++i) {
        DeviceAddress address = 0;
        if (allocator.alloc(t % 2, 512 + i % 7 * MiB, 0, address) == Status::ok) {
          EXPECT_EQ(allocator.free(address), Status::ok);
        }
      }
    });
  }
  for (int i = 0; i < 6; ++i) {
    const std::string path = folder.file(std::to_string(i) + ".gtrace");
    recorder.begin(path, i % 2 == 0);
    for (int k = 0; k < 5; ++k) {
      EXPECT_TRUE(recorder.state().on);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const Recorder::State state = recorder.end();
    EXPECT_EQ(state.error, "");
    EXPECT_GT(state.events, 0U);
    EXPECT_EQ(load_traces(path).size(), 2U);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gapless
