// Random programs against a plain model, with the simulated GPU as judge.
//
// GAPLESS_MODEL_SEED picks the first seed, GAPLESS_MODEL_OPS the operations per long run; what
// failed is printed as a list of operations to paste into found_programs_test.cc.
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/machine.h"

namespace gapless::testing {
namespace {

struct Case {
  const char* name;
  MachineOptions machine;
  ProgramStyle style;
  // Of a long run's operations: less where one takes the simulated GPU much longer than elsewhere.
  double share = 1;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  constexpr std::uint64_t kMiB = 1ULL << 20;
  Options small_pages;
  small_pages.page_size = 64 << 10;
  small_pages.window_floor = 0;  // windows are to be evicted too
  small_pages.handle_parts = 32;
  Options single_pages = small_pages;
  single_pages.handle_parts = 0;
  Options large_frames = small_pages;
  large_frames.handle_parts = 1;
  Options many_windows = small_pages;
  many_windows.window_floor = 512 * kMiB;
  Options no_windows = small_pages;
  no_windows.windows = false;
  Options whole_pages = small_pages;
  whole_pages.edge_sharing = false;
  Options few_windows = small_pages;
  few_windows.window_factor = 0;
  const ProgramStyle one{
      .streams = 1, .capacity_bytes = 32 * kMiB, .largest_bytes = 6 * kMiB, .live_blocks = 40};
  ProgramStyle faults = one;
  faults.faults = true;
  faults.limits = true;
  ProgramStyle three = one;
  three.streams = 3;
  ProgramStyle all = faults;
  all.streams = 4;
  ProgramStyle pools = three;
  pools.pools = true;
  pools.pins = true;
  pools.shares = true;
  Options spilling = small_pages;
  spilling.spill = 16 * kMiB;
  spilling.soft_limit = 8 * kMiB;
  ProgramStyle too_much = three;
  too_much.live_blocks = 48;
  too_much.pins = true;
  ProgramStyle too_much_pools = too_much;
  too_much_pools.pools = true;
  too_much_pools.faults = true;
  ProgramStyle pools_faults = pools;
  pools_faults.faults = true;
  ProgramStyle two_devices = faults;
  two_devices.streams = 3;
  two_devices.peers = true;
  two_devices.pins = true;
  two_devices.shares = true;
  ProgramStyle copies = faults;
  copies.copies = true;
  ProgramStyle copies_pools = pools;
  copies_pools.copies = true;
  ProgramStyle checkpoints = pools;
  checkpoints.checkpoints = true;
  ProgramStyle repeating = three;
  repeating.repeats = 24;
  ProgramStyle repeating_pools = pools;
  repeating_pools.repeats = 24;
  ProgramStyle crowded = one;
  crowded.live_blocks = 400;
  crowded.largest_bytes = 2 * kMiB;
  Options checked = small_pages;
  checked.check = {.poison = true, .redzones = true, .fence = false};
  Options fenced = checked;
  fenced.fence.one_of = 5;
  Options told = few_windows;
  told.check.nvtx = true;
  Options told_and_checked = checked;
  told_and_checked.check.nvtx = true;
  told_and_checked.fence.one_of = 5;
  const auto machine = [](const Options& options, std::uint32_t streams, bool vmm = true,
                          const ProgramStyle& style = {}) {
    MachineOptions made;
    made.allocator = options;
    made.streams = streams;
    made.has_vmm = vmm;
    made.peer = style.peers;
    made.keep_contents = options.check.poison;
    if (options.spill != 0) made.host_bytes = 64 * kMiB;
    return made;
  };
  MachineOptions few_addresses = machine(small_pages, 3);
  few_addresses.address_bytes = (129 + 192) * kMiB;  // the home has 129
  return {
      {"few_addresses", few_addresses, three, 0.5},
      {"one_stream", machine(small_pages, 1), one},
      {"single_pages", machine(single_pages, 3), three, 0.5},
      {"large_frames", machine(large_frames, 1), faults, 0.5},
      {"large_frames_pools", machine(large_frames, 3), pools, 0.5},
      {"crowded", machine(small_pages, 1), crowded},
      {"three_streams", machine(small_pages, 3), three},
      {"faults_and_limits", machine(small_pages, 1), faults},
      {"everything", machine(small_pages, 4), all},
      {"pools_and_graphs", machine(small_pages, 3), pools},
      {"pools_and_graphs_no_vmm", machine(small_pages, 3, false), pools},
      {"pools_windows_evicted_at_once", machine(few_windows, 3), pools},
      {"pools_and_faults", machine(many_windows, 4), pools_faults},
      {"spill", machine(spilling, 3), too_much, 0.3},
      {"spill_pools_and_faults", machine(spilling, 3), too_much_pools, 0.15},
      {"no_windows", machine(no_windows, 2), three},
      {"whole_pages_only", machine(whole_pages, 2), three},
      {"windows_evicted_at_once", machine(few_windows, 3), three},
      {"many_windows", machine(many_windows, 3), three},
      {"no_vmm", machine(small_pages, 2, false), three, 0.5},
      {"two_devices", machine(small_pages, 3, true, two_devices), two_devices},
      {"growing_copies", machine(small_pages, 1), copies, 0.5},
      {"growing_copies_pools", machine(small_pages, 3), copies_pools, 0.5},
      {"no_vmm_faults", machine(small_pages, 1, false), faults},
      {"checkpoints", machine(few_windows, 3), checkpoints, 0.5},
      {"repeating", machine(small_pages, 3), repeating, 0.5},
      {"repeating_pools", machine(small_pages, 3), repeating_pools, 0.5},
      {"checked", machine(checked, 1), one, 0.2},
      {"checked_streams_and_faults", machine(checked, 3, true, two_devices), two_devices, 0.2},
      {"checked_no_vmm", machine(checked, 2, false), three, 0.2},
      {"fenced_pools", machine(fenced, 3), pools, 0.2},
      {"fenced_and_faults", machine(fenced, 4), pools_faults, 0.2},
      {"told", machine(told, 3), pools, 0.1},
      {"told_checkpoints", machine(told, 3), checkpoints, 0.1},
      {"told_two_devices_and_faults", machine(told, 3, true, two_devices), two_devices, 0.1},
      {"told_and_checked_and_faults", machine(told_and_checked, 4), pools_faults, 0.1},
      {"told_no_vmm", machine(told, 3, false), pools, 0.1},
  };
}

class Model : public ::testing::TestWithParam<Case> {};

// How often what ran, over several programs.
struct Tally {
  std::vector<std::uint64_t> operations;  // by index in Op
  WindowCounters windows;
  std::uint64_t peak_spilled_bytes = 0;
  std::uint64_t refused = 0;
  std::uint64_t refused_in_captures = 0;
  std::uint64_t restored = 0;
  std::uint64_t not_restored = 0;
};

// The operations of a random program, one after the other. One that repeats itself does some dozens
// of them over and over, then others. What it does over and over leaves as many blocks as before.
class Program {
 public:
  Program(const ProgramStyle& style, std::uint64_t seed) : style_(style), random_(seed) {}

  Op next(std::size_t live) {
    if (style_.repeats == 0) return random_op(random_, style_, live);
    if (rounds_ != 0) {
      const Op op = turn_[at_++];
      if (at_ == turn_.size()) {
        at_ = 0;
        if (--rounds_ == 0) turn_.clear();
      }
      return op;
    }
    if (turn_.empty()) {
      live_ = live;
      length_ = 10 + random_() % 60;
    }
    if (turn_.size() < length_) {
      turn_.push_back(random_op(random_, style_, live));
    } else if (live > live_) {
      turn_.push_back(Free{static_cast<std::uint32_t>(random_())});
    } else if (live < live_) {
      turn_.push_back(Alloc{1 + random_() % (style_.largest_bytes / 8), 0});
    } else {
      turn_.push_back(Advance{100});
      rounds_ = style_.repeats;
    }
    return turn_.back();
  }

 private:
  ProgramStyle style_;
  std::mt19937_64 random_;
  std::vector<Op> turn_;
  std::size_t at_ = 0;        // in the turn, once it is done again
  std::uint32_t rounds_ = 0;  // so many more times
  std::size_t length_ = 0;    // of the turn, before blocks go or come to be as many as before
  std::size_t live_ = 0;      // before the turn
};

bool can_run(const Case& c) { return !c.machine.allocator.check.nvtx || NvtxTool::is_there(); }

// Runs a random program; on failure tells how to run it again.
void run(const Case& c, std::uint64_t seed, std::uint64_t operations, std::uint32_t validate_every,
         Tally& tally) {
  MachineOptions options = c.machine;
  options.record = seed % 2 == 0;
  options.validate_every = validate_every;
  Machine machine(options);
  Program program(c.style, seed);
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < operations; ++i) {
    ops.push_back(program.next(machine.live()));
    const std::string wrong = machine.run(ops.back());
    ASSERT_EQ(wrong, "") << "case " << c.name << ", seed " << seed << ", operation " << i
                         << "\n  GAPLESS_MODEL_SEED=" << seed << " model_test --gtest_filter='*"
                         << c.name << "*'\n  {" << to_string(ops) << "}";
    if (ops.size() > 20000) ops.clear();  // a longer tail tells nothing more
  }
  const WindowCounters windows = machine.allocator().counters().windows;
  tally.peak_spilled_bytes =
      std::max(tally.peak_spilled_bytes, machine.allocator().spill().peak_bytes);
  tally.refused += machine.refused();
  tally.refused_in_captures += machine.refused_in_captures();
  tally.restored += machine.restored();
  tally.not_restored += machine.not_restored();
  ASSERT_EQ(machine.finish(), "") << "case " << c.name << ", seed " << seed;
  tally.operations.resize(machine.counts().size(), 0);
  for (std::size_t i = 0; i < tally.operations.size(); ++i) {
    tally.operations[i] += machine.counts()[i];
  }
  tally.windows.hits += windows.hits;
  tally.windows.made += windows.made;
  tally.windows.extended += windows.extended;
  tally.windows.repaired += windows.repaired;
  tally.windows.evicted += windows.evicted;
}

TEST_P(Model, HoldsAfterEveryOperation) {
  if (!can_run(GetParam())) GTEST_SKIP() << NvtxTool::kMissing;
  const std::uint64_t first = environment("GAPLESS_MODEL_SEED", 1);
  Tally tally;
  for (std::uint64_t seed = first; seed < first + 4; ++seed) {
    run(GetParam(), seed, 1500, 1, tally);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Model, HoldsInLongRuns) {
  if (!can_run(GetParam())) GTEST_SKIP() << NvtxTool::kMissing;
  const std::uint64_t first = environment("GAPLESS_MODEL_SEED", 100);
  const std::uint64_t asked = environment("GAPLESS_MODEL_OPS", 100000);
  const std::uint64_t operations =
      std::max(static_cast<std::uint64_t>(static_cast<double>(asked) * GetParam().share),
               std::min(asked, std::uint64_t{20000}));
  Tally tally;
  for (std::uint64_t seed = first; seed < first + 2; ++seed) {
    run(GetParam(), seed, operations, 4096, tally);
    if (HasFatalFailure()) return;
  }
  const std::vector<std::uint64_t>& counts = tally.operations;
  // A run that never trims or never fails a call would prove less than it seems to.
  constexpr const char* kNames[] = {
      "alloc",     "free",       "touch",  "advance",    "sync",       "trim",    "set_limit",
      "fail_next", "report",     "use_on", "begin_pool", "end_pool",   "capture", "end_capture",
      "replay",    "drop_graph", "pin",    "unpin",      "checkpoint", "restore", "use_elsewhere",
      "copy",      "sleep",      "wake",   "set_pool",   "share",      "unshare"};
  std::uint64_t sum = 0;
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += counts[i];
    text += fmt::format(" {} {}", kNames[i], counts[i]);
  }
  const WindowCounters& windows = tally.windows;
  fmt::print(
      "{}: {} operations:{}\n  windows: {} made, {} extended, {} repaired, {} evicted, {} hits\n"
      "  {} requests refused, {} of them in captures; {} states restored, {} not\n",
      GetParam().name, sum, text, windows.made, windows.extended, windows.repaired, windows.evicted,
      windows.hits, tally.refused, tally.refused_in_captures, tally.restored, tally.not_restored);
  // What a program repeats is drawn a few hundred times only, and in a short run less often.
  const bool drawn_often = GetParam().style.repeats == 0 || sum >= 80'000;
  EXPECT_GT(counts[0], sum / 4);
  EXPECT_GT(counts[1] + counts[21], sum / 4);  // a copy frees, too
  if (drawn_often) {
    EXPECT_GT(counts[5], 0U);
  }
  if (GetParam().style.faults) {
    EXPECT_GT(counts[7], 0U);
  }
  for (std::size_t i = 10; i < counts.size(); ++i) {
    const bool pins = i == 16 || i == 17;
    const ProgramStyle& style = GetParam().style;
    const bool runs = i >= 25   ? style.shares
                      : i == 21 ? style.copies
                      : i == 20 ? style.peers
                      : pins    ? style.pins
                                : style.pools;
    if (runs && drawn_often) {
      EXPECT_GT(counts[i], style.repeats == 0 ? sum / 2000 : 0) << kNames[i];
    }
  }
  if (GetParam().style.pools && drawn_often) {
    EXPECT_GT(tally.refused_in_captures, 0U);
  }
  if (GetParam().style.checkpoints) {
    EXPECT_GT(tally.restored, 0U);
    EXPECT_GT(tally.not_restored, 0U);
    EXPECT_GT(windows.evicted, 0U);
  }
  if (GetParam().machine.allocator.spill != 0) {
    EXPECT_GT(tally.peak_spilled_bytes, 0U);
  }
  if (GetParam().style.streams > 1) {
    EXPECT_GT(counts[9], sum / 100);
  }
  if (GetParam().machine.has_vmm && GetParam().machine.allocator.windows) {
    EXPECT_GT(windows.made, 0U);
    EXPECT_GT(windows.extended, 0U);
    if (sum >= 20'000) {
      EXPECT_GT(windows.repaired, 0U);
    }
    EXPECT_GT(windows.hits, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Model, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gapless::testing
