// What reports say of recordings: moments, what is lost and why, leaks, kinds of memory.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/report/lifetimes.h"
#include "allocator/report/steps.h"
#include "tests/support/look_at_everything.h"

namespace gapless {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// A recording made event by event, with addresses and segments as PyTorch's allocator has them.
class Recorded {
 public:
  Recorded& segment(std::uint64_t address, std::uint64_t bytes, bool expandable = false) {
    const EventKind kind = expandable ? EventKind::segment_map : EventKind::segment_alloc;
    trace_.events.push_back({.kind = kind, .bytes = bytes, .address = address});
    reserved_ += bytes;
    trace_.recorded_peak_reserved_bytes = std::max(trace_.recorded_peak_reserved_bytes, reserved_);
    trace_.segments.push_back(
        {address, bytes, 0, 0, expandable, bytes <= 2 * MiB ? "small" : "large"});
    trace_.has_segments = true;
    return *this;
  }
  Recorded& segment_gone(std::uint64_t address) {
    for (const TraceSegment& segment : trace_.segments) {
      if (segment.address != address) continue;
      trace_.events.push_back(
          {.kind = EventKind::segment_free, .bytes = segment.bytes, .address = address});
      reserved_ -= segment.bytes;
    }
    std::erase_if(trace_.segments, [&](const TraceSegment& one) { return one.address == address; });
    return *this;
  }
  std::uint32_t alloc(std::uint64_t address, std::uint64_t bytes, const std::string& site = "") {
    trace_.events.push_back({.kind = EventKind::alloc,
                             .block = trace_.blocks,
                             .bytes = bytes,
                             .address = address,
                             .site = number_of(site)});
    return trace_.blocks++;
  }
  Recorded& give_up(std::uint32_t block) {
    trace_.events.push_back({.kind = EventKind::free_requested, .block = block});
    return *this;
  }
  Recorded& free(std::uint32_t block) {
    give_up(block);
    trace_.events.push_back({.kind = EventKind::free, .block = block});
    return *this;
  }
  [[nodiscard]] std::size_t now() const { return trace_.events.size() - 1; }
  [[nodiscard]] const Trace& trace() const { return trace_; }

 private:
  std::uint32_t number_of(const std::string& site) {
    const auto found = std::find(trace_.sites.begin(), trace_.sites.end(), site);
    if (found == trace_.sites.end()) {
      trace_.sites.push_back(site);
      return static_cast<std::uint32_t>(trace_.sites.size() - 1);
    }
    return static_cast<std::uint32_t>(found - trace_.sites.begin());
  }

  Trace trace_;
  std::uint64_t reserved_ = 0;
};

TEST(Moments, ThePeakIsWhereMostIsInUse) {
  Recorded run;
  run.segment(0x1000'0000, 20 * MiB);
  const auto a = run.alloc(0x1000'0000, 3 * MiB + 1);
  const auto b = run.alloc(0x1040'0000, 4 * MiB);
  const std::size_t peak = run.now();
  run.free(a).give_up(b);
  const Moments moments = find_moments(run.trace());
  EXPECT_EQ(moments.peak, peak);
  EXPECT_EQ(moments.at_peak.requested_bytes, 7 * MiB + 1);
  EXPECT_EQ(moments.at_peak.allocated_bytes, 7 * MiB + 512);
  EXPECT_EQ(moments.at_peak.reserved_bytes, 20 * MiB);
  EXPECT_EQ(moments.at_end.allocated_bytes, 0U);
  EXPECT_EQ(moments.at_end.active_bytes, 4 * MiB);  // given up, but not free yet
  EXPECT_EQ(moments.at_peak.active_bytes, peak_live_bytes(run.trace()));
}

TEST(Moments, SegmentsAreUndoneFromTheEnd) {
  Recorded run;
  run.segment(0x1000'0000, 20 * MiB).segment(0x2000'0000, 2 * MiB);
  const auto a = run.alloc(0x1000'0000, 16 * MiB);
  const std::size_t both = run.now();
  run.free(a).segment_gone(0x1000'0000);
  const MemoryState before = state_at(run.trace(), both);
  ASSERT_THAT(before.segments, SizeIs(2));
  EXPECT_EQ(before.segments[0].pool, "large");
  ASSERT_THAT(before.segments[0].blocks, SizeIs(2));
  EXPECT_EQ(before.segments[0].blocks[0].kind, StateBlock::Kind::live);
  EXPECT_EQ(before.segments[0].blocks[1].bytes, 4 * MiB);
  EXPECT_EQ(before.segments[1].pool, "small");
  EXPECT_EQ(before.segments[1].blocks.at(0).kind, StateBlock::Kind::free);
  EXPECT_THAT(state_at(run.trace(), run.now()).segments, SizeIs(1));
}

TEST(Moments, SegmentsAreDoneFromTheBeginWhereTheEndIsNotTold) {
  Recorded run;
  run.segment(0x1000'0000, 20 * MiB);
  run.free(run.alloc(0x1000'0000, 16 * MiB))
      .segment(0x2000'0000, 40 * MiB)
      .segment_gone(0x1000'0000);
  Trace trace = run.trace();
  EXPECT_TRUE(tells_of_segments(trace));
  trace.has_segments = false;
  trace.segments.clear();
  EXPECT_TRUE(tells_of_segments(trace));  // nothing was reserved when it began
  EXPECT_EQ(analyze(state_at(trace, 1)).total.reserved_bytes, 20 * MiB);
  EXPECT_EQ(analyze(state_at(trace, run.now())).total.reserved_bytes, 40 * MiB);
  trace.recorded_peak_reserved_bytes += 2 * MiB;  // what was there before, nobody knows where
  EXPECT_FALSE(tells_of_segments(trace));
}

TEST(Moments, MappedPartsOfAnExpandableSegmentAreOne) {
  Recorded run;
  run.segment(0x1000'0000, 20 * MiB, true).segment(0x1000'0000 + 20 * MiB, 20 * MiB, true);
  run.alloc(0x1000'0000 + 10 * MiB, 20 * MiB);
  const MemoryState state = state_at(run.trace(), run.now());
  ASSERT_THAT(state.segments, SizeIs(1));
  EXPECT_EQ(state.segments[0].bytes, 40 * MiB);
  EXPECT_THAT(state.segments[0].blocks, SizeIs(3));
}

TEST(Moments, BlocksThatFitNowhereAreShownByThemselves) {
  Recorded run;
  run.segment(0x1000'0000, 2 * MiB);
  run.alloc(0x1000'0000, MiB);
  run.alloc(0x1000'0000 + 512, 512);      // where another lies
  run.alloc(0x5000'0000, 4 * MiB);        // in no segment
  run.alloc(0x1000'0000 + MiB, 3 * MiB);  // longer than the rest of its segment
  EXPECT_TRUE(testing::adds_up(run.trace()));
  const MemoryState state = state_at(run.trace(), run.now());
  EXPECT_THAT(state.segments, SizeIs(3));
  EXPECT_EQ(state.segments[0].blocks.at(1).bytes, MiB);
}

TEST(Moments, OnlyTheLastUnservedRequestEndsARun) {
  Recorded run;
  run.alloc(0x1000'0000, MiB);
  Trace died = run.trace();
  died.events.push_back({.kind = EventKind::oom, .bytes = GiB});
  EXPECT_TRUE(find_moments(died).ended_with_oom);
  EXPECT_EQ(find_moments(died).oom, std::optional<std::size_t>{1});
  Trace went_on = died;
  went_on.events.push_back({.kind = EventKind::alloc, .block = 1, .bytes = 512});
  went_on.blocks = 2;
  EXPECT_FALSE(find_moments(went_on).ended_with_oom);
  EXPECT_TRUE(find_moments(went_on).oom.has_value());
}

TEST(Moments, TheCourseHasTheMostOfEachPart) {
  Recorded run;
  for (std::uint64_t i = 0; i < 40; ++i) run.free(run.alloc(0x1000'0000, (i + 1) * MiB));
  const auto course = course_of(run.trace(), 4);  // 120 events
  ASSERT_THAT(course, SizeIs(4));
  EXPECT_EQ(course[0].allocated_bytes, 10 * MiB);
  EXPECT_EQ(course[3].allocated_bytes, 40 * MiB);
}

// --- what is lost --------------------------------------------------------------------------------

TEST(LostMemory, EachFreeByteIsInOnePart) {
  Recorded run;
  run.segment(0x1000'0000, 100 * MiB).segment(0x2000'0000, 40 * MiB).segment(0x3000'0000, 2 * MiB);
  run.segment(0x4000'0000, 20 * MiB);
  run.alloc(0x1000'0000 + 30 * MiB, 2 * MiB, "pin.py:1 keep");  // pins 100 MiB
  run.alloc(0x3000'0000, 512);                                  // small pool
  run.alloc(0x4000'0000, 10 * MiB + 512);                       // 0.99 MiB is not split off
  run.alloc(0x4000'0000 + 11 * MiB, 5 * MiB);                   // a hole of 4 MiB
  const LostMemory lost = lost_memory(state_at(run.trace(), run.now()));
  EXPECT_EQ(lost.part(Loss::whole_segments).bytes, 40 * MiB);
  EXPECT_EQ(lost.part(Loss::pinned).bytes, 98 * MiB);
  EXPECT_EQ(lost.part(Loss::small_pool).bytes, 2 * MiB - 512);
  EXPECT_EQ(lost.part(Loss::behind_blocks).bytes, MiB - 512);
  EXPECT_EQ(lost.part(Loss::holes).bytes, 4 * MiB);
  EXPECT_EQ(lost.part(Loss::other_streams).bytes + lost.part(Loss::private_pools).bytes, 0U);
  ASSERT_THAT(lost.pinned, SizeIs(1));
  EXPECT_EQ(lost.pinned[0].largest.site, "pin.py:1 keep");
  EXPECT_EQ(lost.behind_from_bytes, 10 * MiB + 512);
}

TEST(LostMemory, WhatStaysWithABlockCountsAsBehindIt) {
  MemoryState state;
  StateSegment segment;
  segment.bytes = 2 * MiB;
  segment.pool = "large";
  StateBlock block;
  block.kind = StateBlock::Kind::live;
  block.bytes = 2 * MiB;
  block.requested_bytes = 2 * MiB - 900 * KiB;
  segment.blocks = {block};
  state.segments = {segment};
  EXPECT_EQ(lost_memory(state).part(Loss::behind_blocks).bytes, 900 * KiB);
  state.segments[0].expandable = true;  // any rest is split off there
  EXPECT_EQ(lost_memory(state).free_bytes, 0U);
}

TEST(LostMemory, AnExpandableSegmentIsNotPinned) {
  Recorded run;
  run.segment(0x1000'0000, 100 * MiB, true);
  run.alloc(0x1000'0000 + 30 * MiB, 2 * MiB);
  const LostMemory lost = lost_memory(state_at(run.trace(), run.now()));
  EXPECT_EQ(lost.part(Loss::holes).bytes, 98 * MiB);
  EXPECT_THAT(lost.pinned, IsEmpty());
}

TEST(Growths, TellWhatWasTakenThoughEnoughWasFree) {
  Recorded run;
  run.segment(0x1000'0000, 40 * MiB);
  const auto a = run.alloc(0x1000'0000, 40 * MiB);
  run.free(a).segment(0x2000'0000, 20 * MiB);  // 40 MiB were free
  run.alloc(0x1000'0000, 40 * MiB);
  run.alloc(0x2000'0000, 20 * MiB);
  run.segment(0x3000'0000, 20 * MiB);
  const Growths growths = find_growths(run.trace());
  EXPECT_EQ(growths.times, 3U);
  EXPECT_EQ(growths.needless_times, 1U);
  EXPECT_EQ(growths.needless_bytes, 20 * MiB);
}

TEST(Growths, SizesThatComeAgainDoNotChange) {
  for (const bool change : {false, true}) {
    Recorded run;
    for (std::uint64_t i = 0; i < 100; ++i) {
      run.free(run.alloc(0x1000'0000, 4 * MiB + 512 * (change ? i : i % 7)));
    }
    EXPECT_EQ(find_growths(run.trace()).sizes_change(), change);
  }
}

// --- leaks ---------------------------------------------------------------------------------------

// Steps of 100 MiB; `stay` says what else each leaves behind.
template <class Stay>
Trace steps(int count, const Stay& stay) {
  Recorded run;
  run.alloc(1, 50 * MiB, "model.py:3 __init__");
  for (int step = 0; step < count; ++step) {
    std::vector<std::uint32_t> activations;
    for (int i = 0; i < 10; ++i)
      activations.push_back(run.alloc(2, 10 * MiB, "model.py:9 forward"));
    stay(run, step);
    for (const std::uint32_t block : activations) run.free(block);
  }
  return run.trace();
}

TEST(Leaks, AreSitesFromWhichInEachStepSomethingStays) {
  const Trace trace =
      steps(10, [](Recorded& run, int) { run.alloc(3, 2 * MiB, "train.py:7 step"); });
  const std::vector<Leak> leaks = find_leaks(trace);
  ASSERT_THAT(leaks, SizeIs(1));
  EXPECT_EQ(leaks[0].site, "train.py:7 step");
  EXPECT_EQ(leaks[0].block_bytes, 2 * MiB);
  EXPECT_EQ(leaks[0].bytes_per_step, 2 * MiB);
  EXPECT_EQ(leaks[0].steps, leaks[0].of_steps);
}

TEST(Leaks, AreToldBySizeWithoutSites) {
  const Trace trace = steps(10, [](Recorded& run, int) { run.alloc(3, 2 * MiB + 4); });
  const std::vector<Leak> leaks = find_leaks(trace);
  ASSERT_THAT(leaks, SizeIs(1));
  EXPECT_EQ(leaks[0].site, "");
  EXPECT_EQ(leaks[0].block_bytes, 2 * MiB + 4);
}

TEST(Leaks, AreNotWhatComesOnceOrIsFreedOrGrowsWithinAStep) {
  EXPECT_THAT(find_leaks(steps(10,
                               [](Recorded& run, int step) {
                                 if (step == 0) run.alloc(3, 80 * MiB, "adam.py:5 init");
                                 if (step % 3 == 0) run.alloc(4, MiB, "cache.py:5 fill");
                                 run.free(run.alloc(5, MiB, "train.py:8 step"));
                               })),
              IsEmpty());
  EXPECT_THAT(find_leaks(steps(4, [](Recorded& run, int) { run.alloc(3, MiB, "a.py:1 f"); })),
              IsEmpty());  // too few to tell
  Recorded forward;        // one pass: memory only grows
  for (int i = 0; i < 50; ++i) {
    forward.alloc(1, 10 * MiB, "model.py:9 forward");
    forward.free(forward.alloc(2, 12 * MiB, "model.py:10 forward"));
  }
  EXPECT_THAT(find_leaks(forward.trace()), IsEmpty());
}

// --- lifetimes
// ------------------------------------------------------------------------------------

TEST(Lifetimes, AreToldInTheProgramsOwnSteps) {
  std::map<std::string, std::uint32_t> block;
  std::uint32_t passed_on = 0;
  const Trace trace = steps(8, [&](Recorded& run, int step) {
    if (step == 3) run.free(passed_on);
    if (step == 2) passed_on = block["into the next step"] = run.alloc(3, 5 * MiB);
    if (step == 1) block["several steps"] = run.alloc(4, 3 * MiB);
    if (step == 6) run.free(block["several steps"]);
    if (step == 4) run.free(block["within one step"] = run.alloc(5, MiB));
    if (step == 5) block["from a later step to the end"] = run.alloc(6, MiB);
  });
  block["from the first step to the last"] = 0;
  EXPECT_THAT(step_ends(trace), SizeIs(8));
  const Lifetimes lifetimes = lifetimes_of(trace);
  EXPECT_EQ(lifetimes.step_ends, step_ends(trace));
  for (const auto& [name, number] : block) {
    EXPECT_EQ(lifetimes.names[lifetimes.of_block[number]], name);
  }
}

TEST(Lifetimes, OfWhatIsGivenUpAtTheEndReachToTheLastStep) {
  Recorded run;
  const auto weights = run.alloc(1, 50 * MiB);
  for (int step = 0; step < 6; ++step) run.free(run.alloc(2, 100 * MiB));
  run.free(weights);  // memory goes on falling in the last step
  const Lifetimes lifetimes = lifetimes_of(run.trace());
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[weights]], "from the first step to the last");
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[weights + 1]], "within one step");
}

TEST(Lifetimes, WithoutStepsOnlyTellWhatWasFreed) {
  Recorded run;
  const auto kept = run.alloc(1, 10 * MiB);
  const auto pending = run.alloc(2, 10 * MiB);
  run.give_up(pending);  // streams may still use it: the program does not
  const Lifetimes lifetimes = lifetimes_of(run.trace());
  EXPECT_THAT(lifetimes.step_ends, IsEmpty());
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[kept]], "to the end");
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[pending]], "freed before the end");
}

TEST(Lifetimes, OfWhatWasThereBeforeHaveNoBegin) {
  Trace trace = steps(6, [](Recorded&, int) {});
  trace.initial_events = 1;
  const Lifetimes lifetimes = lifetimes_of(trace);
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[0]], "there before, to the end");
  EXPECT_EQ(lifetimes.names[lifetimes.of_block[1]], "within one step");
}

// --- kinds ---------------------------------------------------------------------------------------

std::string kind_of(const Trace& trace, std::uint32_t block,
                    const std::vector<KindRule>& rules = {}) {
  const MemoryKinds kinds = memory_kinds(trace, rules);
  return kinds.names[kinds.of_block[block]];
}

TEST(MemoryKinds, AreToldByStacksAndLifetimes) {
  Recorded run;
  const std::string torch = "/x/site-packages/torch/";
  const auto weight = run.alloc(1, MiB, torch + "nn/modules/module.py:950 _apply");
  const auto table = run.alloc(9, MiB, "model.py:3 __init__");
  const auto hidden = run.alloc(2, MiB, "model.py:9 forward");
  const auto logits = run.alloc(3, MiB, torch + "nn/functional.py:3000 cross_entropy");
  const auto gradient =
      run.alloc(4, MiB, "MmBackward0 (backward pass) torch::autograd::Engine::run");
  const auto scratch =
      run.alloc(5, MiB, "MulBackward0 (backward pass) torch::autograd::Engine::run");
  run.free(scratch).free(hidden).free(logits);
  const auto moment = run.alloc(6, MiB, torch + "optim/adamw.py:100 _init_group");
  const auto update = run.alloc(7, MiB, torch + "optim/adamw.py:300 step");
  run.free(update).free(gradient);
  run.free(run.alloc(8, MiB, "model.py:9 forward"));
  const Trace& trace = run.trace();
  EXPECT_EQ(kind_of(trace, weight), "parameters");
  EXPECT_EQ(kind_of(trace, table), "parameters");
  EXPECT_EQ(kind_of(trace, hidden), "activations");
  EXPECT_EQ(kind_of(trace, logits), "loss");
  EXPECT_EQ(kind_of(trace, gradient), "gradients");
  EXPECT_EQ(kind_of(trace, scratch), "backward");
  EXPECT_EQ(kind_of(trace, moment), "optimizer states");
  EXPECT_EQ(kind_of(trace, update), "optimizer step");
  EXPECT_EQ(kind_of(trace, hidden, {{"model.py:9", "mine"}}), "mine");
  EXPECT_EQ(kind_of(trace, weight, {{"model.py:9", "mine"}}), "parameters");
}

TEST(MemoryKinds, AreLifetimesWhereThereAreNoStacks) {
  Recorded run;
  const auto stays = run.alloc(1, MiB);
  const auto goes = run.alloc(2, MiB);
  run.free(goes);
  Trace trace = run.trace();
  EXPECT_EQ(kind_of(trace, stays), "held to the end");
  EXPECT_EQ(kind_of(trace, goes), "freed before the end");
  trace.initial_events = 1;
  EXPECT_EQ(kind_of(trace, stays), "held throughout");
}

// What autograd's own thread asks for has no stack of Python's, and the others' may go through what
// watches a program in a dry run.
TEST(MemoryKinds, OfNoStackAreBackwardWhereAllStacksArePython) {
  Recorded run;
  const auto hidden = run.alloc(1, MiB, "model.py:9 forward");
  const auto asked_by_engine = run.alloc(2, MiB);
  run.free(asked_by_engine).free(hidden);
  run.alloc(3, MiB, "model.py:9 forward");
  Trace trace = run.trace();
  auto stacks = std::make_shared<CallStacks>();
  stacks->frames = {"", "model.py:9 forward", "/opt/lib/simgpu/python/watch_memory.py:334 kernel"};
  stacks->nodes = {{}, {0, 1}, {1, 2}};
  trace.stacks = stacks;
  trace.site_stacks.assign(trace.sites.size(), 2);
  trace.site_stacks[0] = 0;
  EXPECT_EQ(kind_of(trace, hidden), "activations");
  EXPECT_EQ(kind_of(trace, asked_by_engine), "backward");
}

TEST(MemoryKinds, AFolderCalledOptimIsNoOptimizer) {
  Recorded run;
  const auto hidden = run.alloc(1, MiB, "/home/me/optim/model.py:9 forward");
  const auto state = run.alloc(2, MiB, "/home/me/optim/sgd.py:9 step");
  EXPECT_EQ(kind_of(run.trace(), hidden), "activations");
  EXPECT_EQ(kind_of(run.trace(), state), "optimizer states");
}

TEST(MemoryKinds, RulesAreRead) {
  const auto rules =
      read_kind_rules(R"([{"frame": "a", "is": "b"}, {"frame": "c", "is": "d"}])", "r");
  ASSERT_THAT(rules, SizeIs(2));
  EXPECT_EQ(rules[1].kind, "d");
  EXPECT_THROW(read_kind_rules("{}", "r"), InputError);
  EXPECT_THROW(read_kind_rules(R"([{"frame": "", "is": "b"}])", "r"), InputError);
}

}  // namespace
}  // namespace gapless
