// Random programs on real memory: every block is filled with a mark of its own, and still holds it
// whenever it is looked at and when it is freed. The limit is tight, so there are windows and
// edges.
//
// GAPLESS_GPU_SECONDS: how long each case runs, and longer where a slow machine has not come to
// what the case is for; a number of steps where it is not set.
// GAPLESS_MODEL_SEED: which program.
#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>

#include "allocator/device/device_allocator.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/graphs.h"
#include "tests/support/environment.h"

namespace gapless {
namespace {

struct ModelCase {
  const char* name;
  std::uint64_t seed;
  std::uint64_t limit;  // on a GPU
  bool edges = true;
  bool graphs = false;
};

void PrintTo(const ModelCase& one, std::ostream* out) { *out << one.name; }

struct Live {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mark = 0;
  StreamHandle owner = 0;  // allocated on
  StreamHandle last = 0;   // whose work touched it last
};

// A graph that was captured: it writes `mark` to its block whenever it runs.
struct Captured {
  PoolId pool;
  std::size_t graph = 0;
  StreamHandle stream = 0;
  Live block;
};

class GpuModel : public testing::Gpu, public ::testing::WithParamInterface<ModelCase> {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    std::string error;
    graphs = testing::Graphs::of(*driver, error);
    ASSERT_TRUE(graphs) << error;
    // What is written is kept in host memory there, of which the libraries in front have 64 MiB.
    limit = on_simulated ? std::min(GetParam().limit, 40 * MiB) : GetParam().limit;
    Options options;
    options.limit = limit;
    options.edge_sharing = GetParam().edges;
    allocator = std::make_unique<DeviceAllocator>(*driver, 0, properties, options);
    streams = {0, stream(), stream(), stream()};
    random.seed(testing::environment("GAPLESS_MODEL_SEED", GetParam().seed));
  }

  std::uint64_t below(std::uint64_t bound) { return random() % bound; }
  StreamHandle any_stream() { return streams[below(streams.size())]; }

  // `later` comes after what `earlier` was given; the host does not wait.
  void order(StreamHandle earlier, StreamHandle later) {
    if (earlier == later) return;
    EventHandle event = 0;
    ASSERT_EQ(driver->event_create(0, event), DriverStatus::ok);
    ASSERT_EQ(driver->event_record(0, event, earlier), DriverStatus::ok);
    ASSERT_EQ(driver->stream_wait_event(0, later, event), DriverStatus::ok);
    ASSERT_EQ(driver->event_destroy(0, event), DriverStatus::ok);
  }
  // The whole block; its first and last units, which a neighbour would be the first to touch,
  // twice.
  void fill(const Live& block, StreamHandle on) {
    const std::uint64_t words = block.bytes / 4;
    const std::uint64_t unit = std::min<std::uint64_t>(words, 128);
    for (const auto& [at, count] :
         {std::pair{std::uint64_t{0}, words}, std::pair{std::uint64_t{0}, unit},
          std::pair{words - unit, unit}}) {
      ASSERT_EQ(driver->memset_d32(0, block.address + at * 4, block.mark, count, on),
                DriverStatus::ok);
    }
  }
  // All of a block up to 16 MiB; of a larger one its begin, its end, and a piece from each 8 MiB.
  void check(const Live& block) {
    const std::uint64_t bytes = block.bytes / 4 * 4;
    if (bytes <= 16 * MiB) {
      check_range(block, 0, bytes);
      return;
    }
    check_range(block, 0, MiB);
    check_range(block, bytes - MiB, MiB);
    for (std::uint64_t at = 8 * MiB; at + MiB < bytes; at += 8 * MiB) {
      check_range(block, at + below(MiB / 4) * 4, 64 * KiB);
    }
  }
  void check_range(const Live& block, std::uint64_t at, std::uint64_t bytes) {
    read.resize(bytes / 4);
    ASSERT_EQ(driver->copy_to_host(0, read.data(), block.address + at, bytes, block.last),
              DriverStatus::ok);
    const auto wrong = std::find_if(read.begin(), read.end(),
                                    [&](std::uint32_t word) { return word != block.mark; });
    ASSERT_EQ(wrong, read.end()) << fmt::format(
        "block of {} B on stream {:#x}, at byte {}: {:#x}, not {:#x}", block.bytes, block.owner,
        at + static_cast<std::uint64_t>(wrong - read.begin()) * 4, *wrong, block.mark);
    checked_bytes += bytes;
  }
  void check_and_free(std::size_t index) {
    const Live block = live[index];
    live[index] = live.back();
    live.pop_back();
    if (below(2) == 0) check(block);
    // Whether or not somebody looked: the block may still be in use on the stream it was lent to.
    ASSERT_EQ(allocator->free(block.address), Status::ok);
  }
  [[nodiscard]] std::uint64_t random_bytes() {
    const std::uint64_t most = below(4) == 0 ? limit / 6 : limit / 80;
    return 4 + below(most);
  }

  void alloc() {
    Live block;
    block.bytes = random_bytes();
    block.owner = block.last = any_stream();
    block.mark = next_mark();
    if (allocator->alloc(block.bytes, block.owner, block.address) != Status::ok) {
      ++refused;
      if (!live.empty()) check_and_free(below(live.size()));
      return;
    }
    fill(block, block.owner);
    live.push_back(block);
  }
  // Another stream writes the block, a while after its own did.
  void use_on_another_stream() {
    Live& block = live[below(live.size())];
    const StreamHandle other = any_stream();
    order(block.last, other);
    ASSERT_EQ(allocator->record_stream(block.address, other), Status::ok);
    for (int i = 0; i < 4; ++i) fill(block, other);  // keeps it in use
    block.mark = next_mark();
    fill(block, other);
    block.last = other;
  }
  void capture() {
    Captured made;
    made.pool = {captures + 1, 0};
    made.stream = streams[1 + below(streams.size() - 1)];
    const StreamHandle on = made.stream;
    ASSERT_EQ(allocator->begin_pool(made.pool, [on](StreamHandle asked) { return asked == on; }),
              Status::ok);
    ASSERT_EQ(graphs->begin(on, testing::CaptureMode::global), DriverStatus::ok);
    ++captures;
    // Temporaries of the graph, whose memory its own block may take.
    DeviceAddress temporary = 0;
    const std::uint64_t bytes = 4 + below(limit / 40);
    if (allocator->alloc(bytes, on, temporary) == Status::ok) {
      fill({temporary, bytes, next_mark(), on, on}, on);
      ASSERT_EQ(allocator->free(temporary), Status::ok);
    }
    made.block.bytes = 4 + below(limit / 40);
    made.block.owner = made.block.last = on;
    made.block.mark = next_mark();
    const Status status = allocator->alloc(made.block.bytes, on, made.block.address);
    if (status == Status::ok) fill(made.block, on);
    ASSERT_EQ(graphs->end(on, made.graph), DriverStatus::ok);
    ASSERT_EQ(allocator->end_pool(made.pool), Status::ok);
    captured.push_back(made);
    if (status != Status::ok) drop_graph(captured.size() - 1);
  }
  // Every graph has memory of its own: it may run at any time.
  void replay() {
    const Captured& one = captured[below(captured.size())];
    ASSERT_EQ(driver->memset_d32(0, one.block.address, 0, one.block.bytes / 4, one.stream),
              DriverStatus::ok);
    ASSERT_EQ(graphs->launch(one.graph, one.stream), DriverStatus::ok);
    check(one.block);
    ++replays;
  }
  void drop_graph(std::size_t index) {
    const Captured one = captured[index];
    captured[index] = captured.back();
    captured.pop_back();
    driver->stream_synchronize(0, one.stream);
    ASSERT_EQ(graphs->destroy(one.graph), DriverStatus::ok);
    if (one.block.address != 0) {
      ASSERT_EQ(allocator->free(one.block.address), Status::ok);
    }
    ASSERT_EQ(allocator->release_pool(one.pool), Status::ok);
  }
  void step() {
    const std::uint64_t dice = below(100);
    const bool graphs_too = GetParam().graphs;
    if (graphs_too && dice < 2 && captured.size() < 4) return capture();
    if (graphs_too && dice < 6 && !captured.empty()) return replay();
    if (graphs_too && dice < 7 && !captured.empty()) return drop_graph(below(captured.size()));
    if (dice < 17 && !live.empty()) return use_on_another_stream();
    if (dice < 25 && !live.empty()) return check(live[below(live.size())]);
    if (live.size() < 45 && dice < 70) return alloc();
    if (!live.empty()) check_and_free(below(live.size()));
  }
  // What the case is for: memory so tight that windows are made and requests refused, graphs.
  [[nodiscard]] bool came_to_all() const {
    return allocator->counters().windows.made > 0 && refused > 0 &&
           (replays > 0 || !GetParam().graphs);
  }
  std::uint32_t next_mark() { return ++marks * 2654435761U; }

  std::unique_ptr<testing::Graphs> graphs;
  std::unique_ptr<DeviceAllocator> allocator;
  std::vector<StreamHandle> streams;
  std::mt19937_64 random;
  std::uint64_t limit = 0;
  std::vector<Live> live;
  std::vector<Captured> captured;
  std::vector<std::uint32_t> read;
  std::uint32_t marks = 0;
  std::uint64_t captures = 0;
  std::uint64_t replays = 0;
  std::uint64_t refused = 0;
  std::uint64_t checked_bytes = 0;
};

TEST_P(GpuModel, EveryBlockKeepsWhatWasWritten) {
  const std::uint64_t seconds = testing::environment("GAPLESS_GPU_SECONDS", 0);
  const std::uint64_t least = times(4000);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::uint64_t steps = 0;
  while (std::chrono::steady_clock::now() < end || (seconds == 0 && steps < least) ||
         (!came_to_all() && steps < 4 * least)) {
    ASSERT_NO_FATAL_FAILURE(step()) << "in step " << steps;
    if (++steps % 500 == 0) {
      allocator->validate();
      ASSERT_EQ(allocator->trim(below(2) * limit / 2), Status::ok);
    }
  }
  while (!captured.empty()) ASSERT_NO_FATAL_FAILURE(drop_graph(0));
  while (!live.empty()) {
    ASSERT_NO_FATAL_FAILURE(check(live.back()));
    ASSERT_NO_FATAL_FAILURE(check_and_free(live.size() - 1));
  }
  const WindowCounters windows = allocator->counters().windows;
  const std::string told = fmt::format(
      "{} steps, {} MiB looked at, {} requests refused, {} windows made and {} used again, {} "
      "graphs run {} times",
      steps, checked_bytes / MiB, refused, windows.made, windows.hits, captures, replays);
  fmt::print("{}: {}\n", GetParam().name, told);
  RecordProperty("told", told);
  EXPECT_TRUE(came_to_all()) << told;
  allocator.reset();
  if (const auto* const judge = dynamic_cast<simgpu::SimDriver*>(driver.get())) {
    EXPECT_EQ(judge->violations(), std::vector<std::string>{});
  }
  for (std::size_t i = 1; i < streams.size(); ++i) driver->stream_destroy(0, streams[i]);
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuModel,
                         ::testing::Values(ModelCase{"edges", 1, 256 * MiB},
                                           ModelCase{"whole_pages", 2, 256 * MiB, false},
                                           ModelCase{"graphs", 3, 512 * MiB, true, true},
                                           ModelCase{"large", 4, 8 * GiB}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gapless
