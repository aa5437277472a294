// Recording a running process: the ring, the file while it is written, and what is read of it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/live/recorder.h"
#include "allocator/live/stack_table.h"
#include "allocator/report/moment.h"
#include "allocator/trace/load.h"
#include "allocator/trace/streamed_format.h"
#include "allocator/trace/streamed_writer.h"
#include "simgpu/sim_driver.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two devices, and what is live of each as the test knows it.
class Recorded : public ::testing::Test {
 protected:
  Recorded() : gpu({.devices = {{.total_bytes = 256 * MiB}, {.total_bytes = 256 * MiB}}}) {
    DriverStatus status = DriverStatus::ok;
    Options options;
    devices = std::make_unique<Allocator>(gpu, options, status);
    EXPECT_EQ(status, DriverStatus::ok);
    recorder = std::make_unique<Recorder>(*devices);
  }

  void alloc(DeviceIndex device, std::uint64_t bytes) {
    DeviceAddress address = 0;
    if (devices->alloc(device, bytes, 0, address) == Status::ok) {
      live[device][address] = bytes;
      ++operations;
    }
  }
  void free_one(DeviceIndex device, std::mt19937_64& random) {
    auto& blocks = live[device];
    if (blocks.empty()) return;
    const auto at =
        std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
    EXPECT_EQ(devices->free(at->first), Status::ok);
    blocks.erase(at);
    ++operations;
  }
  // Windows, growth, memory given back, and requests that fail.
  void run(int count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < count; ++i) {
      const auto device = static_cast<DeviceIndex>(random() % 2);
      if (random() % 100 < 55) {
        alloc(device, std::uint64_t{1} << (9 + random() % 16));
      } else {
        free_one(device, random);
      }
      if (random() % 200 == 0) (void)devices->device(device)->trim();
    }
  }
  // What a file says is live at its end, with sizes, is what is.
  void expect_end(const std::vector<Trace>& traces) {
    ASSERT_EQ(traces.size(), 2U);
    for (const Trace& trace : traces) {
      std::map<std::uint32_t, const TraceEvent*> blocks;
      for (const TraceEvent& event : trace.events) {
        if (event.kind == EventKind::alloc) blocks[event.block] = &event;
        if (event.kind == EventKind::free) blocks.erase(event.block);
      }
      std::map<DeviceAddress, std::uint64_t> found;
      for (const auto& [block, event] : blocks) found[event->address] = event->bytes;
      EXPECT_EQ(found, live[trace.device]) << trace.device;
      std::uint64_t reserved = 0;
      for (const TraceSegment& segment : trace.segments) reserved += segment.bytes;
      const DeviceStatistics statistics = devices->device(trace.device)->statistics();
      EXPECT_EQ(reserved, static_cast<std::uint64_t>(statistics.reserved_bytes.all.current));
    }
  }
  void free_all() {
    for (const auto& [device, blocks] : live) {
      for (const auto& [address, bytes] : blocks) EXPECT_EQ(devices->free(address), Status::ok);
    }
    live.clear();
  }
  void TearDown() override {
    free_all();
    recorder.reset();
    devices.reset();
    EXPECT_EQ(gpu.leaks(), "");
  }

  ScratchFolder folder;
  simgpu::SimDriver gpu;
  std::unique_ptr<Allocator> devices;
  std::unique_ptr<Recorder> recorder;
  std::map<DeviceIndex, std::map<DeviceAddress, std::uint64_t>> live;
  std::uint64_t operations = 0;
};

TEST_F(Recorded, HoldsAllThatHappened) {
  run(300, 1);  // what lives before
  std::size_t before = live[0].size() + live[1].size();
  operations = 0;
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, false);
  run(6000, 2);
  const Recorder::State state = recorder->end();
  EXPECT_EQ(state.lost, 0U);
  EXPECT_EQ(state.error, "");
  const std::vector<Trace> traces = load_traces(path);
  expect_end(traces);
  std::uint64_t recorded = 0;
  std::uint64_t initial = 0;
  for (const Trace& trace : traces) {
    EXPECT_THAT(trace.warnings, IsEmpty());
    recorded += trace.operations();
    initial += trace.initial_events;
    EXPECT_TRUE(trace.has_segments);
    std::uint64_t last = 0;
    bool ordered = true;
    for (const TraceEvent& event : trace.events) {
      ordered = ordered && event.time_us + 1000 >= last;
      last = event.time_us;
    }
    EXPECT_TRUE(ordered);
  }
  EXPECT_EQ(initial, before);
  EXPECT_EQ(recorded, operations + before);
}

TEST_F(Recorded, ReservedFollowsTheAllocatorAllTheTime) {
  run(200, 3);
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, false);
  std::uint64_t peak = 0;
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    if (random() % 100 < 52) {
      alloc(0, std::uint64_t{1} << (12 + random() % 13));
    } else {
      free_one(0, random);
    }
    peak = std::max(peak, static_cast<std::uint64_t>(
                              devices->device(0)->statistics().reserved_bytes.all.current));
  }
  (void)recorder->end();
  const std::vector<Trace> traces = load_traces(path);
  EXPECT_EQ(traces[0].recorded_peak_reserved_bytes, peak);
  EXPECT_EQ(find_moments(traces[0]).at_reserved_peak.reserved_bytes, peak);
  // Each block lies in memory that is there.
  const MemoryState state = state_at(traces[0], traces[0].events.size() - 1);
  std::map<DeviceAddress, std::uint64_t> allocated;
  for (const auto& [address, bytes] : live[0]) allocated[address] = align_up(bytes, 512);
  std::map<DeviceAddress, std::uint64_t> found;
  for (const StateSegment& segment : state.segments) {
    for (const StateBlock& block : segment.blocks) {
      if (block.kind == StateBlock::Kind::live) found[block.address] = block.bytes;
    }
  }
  EXPECT_EQ(found, allocated);
}

TEST_F(Recorded, AFileThatIsCutOffAnywhereIsReadUpToThere) {
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, false);
  run(500, 5);
  (void)recorder->end();
  const std::string whole = read_file(path);
  std::size_t read = 0;
  std::size_t most = 0;
  for (std::size_t end = 0; end < whole.size(); end += 7) {
    try {
      const std::vector<Trace> traces = read_streamed(whole.substr(0, end), "cut");
      ++read;
      std::size_t events = 0;
      for (const Trace& trace : traces) {
        EXPECT_THAT(trace.warnings, ElementsAre(HasSubstr("ended"))) << end;
        events += trace.events.size();
      }
      EXPECT_GE(events, most);
      most = events;
    } catch (const InputError& error) {
      EXPECT_EQ(most, 0U) << end;
      EXPECT_THAT(error.what(), HasSubstr("cut")) << end;
    }
  }
  EXPECT_GT(read, 0U);
  EXPECT_GT(most, 400U);
}

TEST_F(Recorded, AKilledProcessLeavesAFileThatCanBeRead) {
  const std::string path = folder.file("run.gtrace");
  const pid_t child = ::fork();
  if (child == 0) {
    simgpu::SimDriver own({.devices = {{.total_bytes = 64 * MiB}}});
    DriverStatus status = DriverStatus::ok;
    Allocator allocator(own, {}, status);
    Recorder inner(allocator);
    inner.begin(path, false);
    for (int i = 0;; ++i) {
      DeviceAddress address = 0;
      (void)allocator.alloc(0, 4096, 0, address);
      (void)allocator.free(address);
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::vector<Trace> traces;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    try {
      traces = load_traces(path);  // while it is written, too
      if (traces[0].events.size() > 10000) break;
    } catch (const InputError&) {
      // Nothing of it is there yet.
    }
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::vector<Trace> after = load_traces(path);
  ASSERT_EQ(after.size(), 1U);
  EXPECT_GE(after[0].events.size(), traces.at(0).events.size());
  EXPECT_GT(after[0].events.size(), 10000U);
  EXPECT_THAT(after[0].warnings, ElementsAre(HasSubstr("the program ended")));
}

TEST_F(Recorded, RefusesWhatCannotBe) {
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, false);
  EXPECT_THROW(recorder->begin(folder.file("other.gtrace"), false), InputError);
  (void)recorder->end();
  EXPECT_THROW(recorder->begin(path, false), InputError);  // what is there is kept
  EXPECT_THROW(recorder->begin(folder.file("no/folder/run.gtrace"), false), InputError);
  EXPECT_FALSE(recorder->state().on);
  alloc(0, 1 * MiB);  // goes on as before
  recorder->begin(folder.file("again.gtrace"), false);
  EXPECT_EQ(load_traces(path).size(), 2U);
}

TEST_F(Recorded, NamesWhereBlocksComeFrom) {
  recorder->set_stack_source([] {
    const StackTable::FrameKey frames[] = {{1, 41}, {1, 80}};
    return recorded_stacks().number_of(frames, [](std::size_t i) {
      return i == 0 ? std::string("train.py:41 step") : std::string("train.py:80 <module>");
    });
  });
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, true);
  alloc(0, 3 * MiB);
  alloc(0, 1 * MiB);
  std::mt19937_64 random(1);
  free_one(0, random);
  std::vector<Recorder::Site> sites;
  for (int i = 0; i < 100 && sites.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sites = recorder->state().sites;
  }
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].text, "train.py:41 step");
  EXPECT_EQ(sites[0].live_bytes, live[0].begin()->second);
  (void)recorder->end();
  const std::vector<Trace> traces = load_traces(path);
  const auto first =
      std::find_if(traces[0].events.begin(), traces[0].events.end(),
                   [](const TraceEvent& event) { return event.kind == EventKind::alloc; });
  EXPECT_EQ(traces[0].sites[first->site], "train.py:41 step");
  EXPECT_THAT(traces[0].frames_of(first->site),
              ElementsAre("train.py:41 step", "train.py:80 <module>"));
}

TEST_F(Recorded, NativeFramesAreNamed) {
  recorder->set_stack_source(native_stack);
  const std::string path = folder.file("run.gtrace");
  recorder->begin(path, true);
  alloc(0, 3 * MiB);
  (void)recorder->end();
  const std::vector<Trace> traces = load_traces(path);
  const auto frames = traces[0].frames_of(1);
  ASSERT_GT(frames.size(), 2U);
  EXPECT_THAT(std::string(frames.back()), HasSubstr("unit_test"));
}

TEST_F(Recorded, ADiskThatIsFullEndsTheRecordingAndNothingElse) {
  // A file may not grow beyond 64 KiB.
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{65536, 65536};
    (void)::setrlimit(RLIMIT_FSIZE, &limit);
    simgpu::SimDriver own({.devices = {{.total_bytes = 64 * MiB}}});
    DriverStatus status = DriverStatus::ok;
    Allocator allocator(own, {}, status);
    Recorder inner(allocator);
    inner.begin(folder.file("full.gtrace"), false);
    std::mt19937_64 random(1);
    for (int i = 0; i < 4000 && inner.state().error.empty(); ++i) {
      for (int k = 0; k < 1000; ++k) {
        DeviceAddress address = 0;
        (void)allocator.alloc(0, 512 + random() % 100000, 0, address);
        (void)allocator.free(address);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const std::string error = inner.state().error;
    DeviceAddress address = 0;
    const bool goes_on = allocator.alloc(0, 4096, 0, address) == Status::ok;
    ::_exit(goes_on && error.find("cannot be written") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(load_traces(folder.file("full.gtrace")).at(0).warnings,
              ElementsAre(HasSubstr("the program ended")));
}

}  // namespace
}  // namespace gapless
