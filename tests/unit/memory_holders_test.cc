// What held the memory: who a block is for, moments to the byte, traces written and read.
#include "simgpu/memory_holders.h"

#include <csignal>
#include <fstream>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simgpu/process/recorder.h"
#include "tests/support/scratch_folder.h"

namespace gapless::simgpu {
namespace {

using Kind = MemoryEvent::Kind;
using ::testing::SizeIs;

// A trace as a process writes it.
class Recorded {
 public:
  Recorded& alloc(std::uint64_t address, std::uint64_t bytes, std::uint32_t site = 0,
                  Holder at = Holder::unknown, std::uint8_t device = 0) {
    allocated_[device] += bytes;
    MemoryEvent event = made(Kind::alloc, address, bytes);
    event.site = site;
    event.holder = at;
    event.device = device;
    event.reserved_bytes = reserved_ = std::max(reserved_, allocated_[device]);
    return add(event);
  }
  Recorded& free(std::uint64_t address, std::uint64_t bytes, std::uint8_t device = 0) {
    allocated_[device] -= bytes;
    MemoryEvent event = made(Kind::free, address, bytes);
    event.device = device;
    event.reserved_bytes = reserved_;
    return add(event);
  }
  Recorded& holds(std::uint64_t address, Holder holder) {
    MemoryEvent event = made(Kind::holds, address, 0);
    event.holder = holder;
    return add(event);
  }
  Recorded& copied(std::uint64_t to, std::uint64_t from) {
    return add(made(Kind::copied, to, from));
  }
  Recorded& step() { return add(made(Kind::step, 0, 0)); }
  Recorded& refused(std::uint64_t bytes, std::uint32_t site = 0) {
    MemoryEvent event = made(Kind::out_of_memory, 0, bytes);
    event.site = site;
    event.reserved_bytes = reserved_;
    return add(event);
  }

  [[nodiscard]] MemoryCourse course(const std::vector<MemorySite>& sites = {}) const {
    return memory_courses(events, sites, 10).at(0);
  }

  std::vector<MemoryEvent> events;

 private:
  static MemoryEvent made(Kind kind, std::uint64_t address, std::uint64_t bytes) {
    MemoryEvent event;
    event.kind = kind;
    event.address = address;
    event.bytes = bytes;
    return event;
  }
  Recorded& add(const MemoryEvent& event) {
    events.push_back(event);
    return *this;
  }
  std::uint64_t allocated_[4] = {};
  std::uint64_t reserved_ = 0;
};

std::uint64_t held(const MemoryMoment& moment, Holder holder) {
  return moment.held_bytes[static_cast<std::size_t>(holder)];
}

std::uint64_t sum(const MemoryMoment& moment) {
  return std::accumulate(moment.held_bytes.begin(), moment.held_bytes.end(), std::uint64_t{0});
}

TEST(MemoryHolders, OfAProgramInCppGoByTheirLives) {
  const auto site = [](Holder at) {
    MemorySite made;
    made.at = at;
    made.native = {{"train", 1, ""}};
    return made;
  };
  const std::vector<MemorySite> sites = {site(Holder::parameters), site(Holder::activations),
                                         site(Holder::backward), site(Holder::optimizer_step)};
  Recorded trace;
  trace.alloc(0x1000, 1, 1).holds(0x1000, Holder::inputs);  // copied from the host by Module::to
  for (const std::uint64_t step : {0, 1}) {
    trace.alloc(0x2000, 2, 2).alloc(0x3000, 4, 3).alloc(0x4000, 8, 3);  // the latter a temporary
    trace.free(0x4000, 8).free(0x2000, 2);
    if (step == 0) trace.alloc(0x5000, 16, 4);
    trace.alloc(0x6000, 32, 4);
    if (step == 0) trace.free(0x6000, 32).free(0x3000, 4);
  }
  const MemoryCourse course = trace.course(sites);
  const auto held = [&](Holder holder) {
    return course.peak.held_bytes[static_cast<std::size_t>(holder)];
  };
  EXPECT_EQ(course.peak.allocated_bytes, 1U + 4 + 16 + 32);
  EXPECT_EQ(held(Holder::parameters), 1U);
  EXPECT_EQ(held(Holder::gradients), 4U);
  EXPECT_EQ(held(Holder::optimizer_states), 16U);
  EXPECT_EQ(held(Holder::optimizer_step), 32U);
  const auto blocks = held_blocks(trace.events, sites);
  EXPECT_EQ(blocks[3].holder, Holder::backward);
}

TEST(MemoryHolders, ABlockIsForWhatItWasToldToBeAtAnyTimeOfItsLife) {
  Recorded run;
  run.alloc(1000, 512).alloc(2000, 256).alloc(3000, 128).free(3000, 128);
  run.holds(1100, Holder::parameters);  // inside the block
  run.holds(3000, Holder::gradients);   // nobody's by then
  run.holds(2256, Holder::gradients);   // behind its end
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(peak.allocated_bytes, 896U);
  EXPECT_EQ(held(peak, Holder::parameters), 512U);
  EXPECT_EQ(held(peak, Holder::gradients), 0U);
  EXPECT_EQ(held(peak, Holder::unknown), 384U);
}

TEST(MemoryHolders, AnAddressIsADifferentBlockEachTime) {
  Recorded run;
  run.alloc(1000, 512).holds(1000, Holder::gradients).free(1000, 512).alloc(1000, 1024);
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(held(peak, Holder::gradients), 0U);
  EXPECT_EQ(held(peak, Holder::unknown), 1024U);
}

TEST(MemoryHolders, TheSurestIsBelieved) {
  const std::vector<MemorySite> sites = {{Holder::activations, "train.py:1", ""}};
  Recorded run;
  run.alloc(1000, 1, 1).alloc(2000, 2, 1, Holder::loss).alloc(3000, 4, 1).alloc(4000, 8, 1);
  run.holds(3000, Holder::inputs).holds(3000, Holder::loss);
  run.holds(4000, Holder::inputs).holds(4000, Holder::loss).holds(4000, Holder::parameters);
  run.alloc(5000, 16, 7).alloc(6000, 32);  // a place that nobody told of; none
  const MemoryMoment peak = run.course(sites).peak;
  EXPECT_EQ(held(peak, Holder::activations), 1U);
  EXPECT_EQ(held(peak, Holder::loss), 2U + 4U);
  EXPECT_EQ(held(peak, Holder::parameters), 8U);
  EXPECT_EQ(held(peak, Holder::unknown), 16U + 32U);
}

TEST(MemoryHolders, LogitsAreWhatALossTookAndWhatThatWasCopiedFrom) {
  Recorded run;
  run.alloc(1000, 100).alloc(2000, 200).copied(2000, 1000);  // logits.float()
  run.alloc(3000, 300).copied(3000, 2000).holds(3000, Holder::loss);
  run.alloc(4000, 400, 0, Holder::loss);   // its gradient
  run.alloc(5000, 50).copied(5000, 4000);  // that, cast back
  run.alloc(6000, 60);                     // what the model made before
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(held(peak, Holder::loss), 100U + 200U + 300U + 400U + 50U);
  EXPECT_EQ(held(peak, Holder::unknown), 60U);
}

TEST(MemoryHolders, ALossOfAParameterDoesNotMakeItsCopiesLogits) {
  Recorded run;
  run.alloc(1000, 100).holds(1000, Holder::parameters).holds(1000, Holder::loss);
  run.alloc(2000, 50).copied(2000, 1000);
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(held(peak, Holder::parameters), 100U);
  EXPECT_EQ(held(peak, Holder::parameter_copies), 50U);
  EXPECT_EQ(held(peak, Holder::loss), 0U);
}

// model.cuda().half(), and load_state_dict() of weights that were loaded to the device.
TEST(MemoryHolders, WhatParametersWereMadeOfAreCopiesOfThem) {
  Recorded run;
  run.alloc(1000, 100).holds(1000, Holder::inputs);                        // float32, from the host
  run.alloc(2000, 50).copied(2000, 1000).holds(2000, Holder::parameters);  // cast
  run.alloc(3000, 20).holds(3000, Holder::inputs);                         // a batch
  run.alloc(4000, 20).copied(4000, 3000);
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(held(peak, Holder::parameters), 50U);
  EXPECT_EQ(held(peak, Holder::parameter_copies), 100U);
  EXPECT_EQ(held(peak, Holder::inputs), 20U);
}

TEST(MemoryHolders, AnAverageOfWeightsFromTheHostIsACopyOfThem) {
  Recorded run;
  run.alloc(0x1000, 4096).holds(0x1000, Holder::parameters);
  run.alloc(0x3000, 4096).holds(0x3000, Holder::inputs);  // kept
  run.alloc(0x5000, 4096).holds(0x5000, Holder::inputs);  // a batch of that size
  run.alloc(0x7000, 1024).holds(0x7000, Holder::inputs);  // kept data
  run.step().free(0x5000, 4096).step().alloc(0x9000, 8192);
  const MemoryMoment peak = run.course().peak;
  EXPECT_EQ(peak.held_bytes[static_cast<int>(Holder::parameter_copies)], 4096U);
  EXPECT_EQ(peak.held_bytes[static_cast<int>(Holder::inputs)], 1024U);
}

TEST(MemoryHolders, DevicesAreApartAndStepsAreCounted) {
  Recorded run;
  run.alloc(1000, 100).step().alloc(9000, 70, 0, Holder::unknown, 2).step().alloc(2000, 100);
  const auto courses = memory_courses(run.events, {}, 10);
  ASSERT_THAT(courses, SizeIs(2));
  EXPECT_EQ(courses[0].device, 0);
  EXPECT_EQ(courses[0].peak.allocated_bytes, 200U);
  EXPECT_EQ(courses[0].peak.steps, 2U);
  EXPECT_EQ(courses[1].device, 2);
  EXPECT_EQ(courses[1].peak.allocated_bytes, 70U);
  EXPECT_EQ(courses[1].peak.steps, 1U);
}

TEST(MemoryHolders, OutOfMemoryIsAMomentOfItsOwn) {
  const std::vector<MemorySite> sites = {{Holder::activations, "a.py:1", ""},
                                         {Holder::backward, "a.py:2", ""}};
  Recorded run;
  run.alloc(1000, 500, 1).free(1000, 500).alloc(2000, 100, 1).refused(900).alloc(3000, 50, 2);
  run.alloc(4000, 60, 2).refused(700, 2).holds(2000, Holder::parameters);
  const MemoryCourse course = run.course(sites);
  EXPECT_EQ(course.peak.allocated_bytes, 500U);
  ASSERT_TRUE(course.failed);
  EXPECT_EQ(course.failed_bytes, 700U);
  EXPECT_EQ(course.failed_site, 2U);
  EXPECT_EQ(course.failed->allocated_bytes, 210U);
  EXPECT_EQ(course.failed->reserved_bytes, 500U);
  EXPECT_EQ(held(*course.failed, Holder::parameters), 100U);
  EXPECT_EQ(held(*course.failed, Holder::backward), 110U);
  ASSERT_THAT(course.failed->places, SizeIs(2));
  EXPECT_EQ(course.failed->places[0].bytes, 110U);  // the most first
  EXPECT_EQ(course.failed->places[0].blocks, 2U);
  EXPECT_EQ(course.failed->places[1].site, 1U);
}

TEST(MemoryHolders, AFreeThatWasNotToldOfEndsWithTheNextBlockThere) {
  Recorded run;
  run.alloc(1000, 100).holds(1000, Holder::parameters).alloc(1000, 300);
  const MemoryCourse course = run.course();
  EXPECT_EQ(sum(course.peak), course.peak.allocated_bytes);
}

TEST(MemoryHolders, PartsAddUpWhateverHappens) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Recorded run;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
    std::uint64_t allocated = 0;
    std::uint64_t peak = 0;
    std::uint64_t next = 1 << 20;
    for (int i = 0; i < 300; ++i) {
      const auto what = random() % 8;
      if (what < 3 || live.empty()) {
        const std::uint64_t bytes = 1 + random() % 5000;
        live.emplace_back(next, bytes);
        run.alloc(next, bytes, random() % 4, static_cast<Holder>(random() % kHolders));
        next += bytes;
        allocated += bytes;
        peak = std::max(peak, allocated);
      } else if (what < 5) {
        const auto one = live.begin() + static_cast<std::ptrdiff_t>(random() % live.size());
        run.free(one->first, one->second);
        allocated -= one->second;
        live.erase(one);
      } else if (what < 7) {
        const auto& one = live[random() % live.size()];
        run.holds(one.first + random() % one.second, static_cast<Holder>(random() % 16));
      } else {
        run.copied(live[random() % live.size()].first, live[random() % live.size()].first);
      }
    }
    const MemoryCourse course = run.course({{Holder::activations, "", ""}, {Holder::loss, "", ""}});
    EXPECT_EQ(course.peak.allocated_bytes, peak);
    EXPECT_EQ(sum(course.peak), peak);
    std::uint64_t of_places = 0;
    for (const auto& place : course.peak.places) of_places += place.bytes;
    EXPECT_EQ(of_places, peak);
    std::uint64_t most = 0;
    for (const auto& sample : course.samples) {
      EXPECT_EQ(
          std::accumulate(sample.held_bytes.begin(), sample.held_bytes.end(), std::uint64_t{0}),
          sample.allocated_bytes);
      most = std::max(most, sample.allocated_bytes);
    }
    EXPECT_EQ(most, peak);  // a picture shows it, too
  }
}

TEST(MemoryTrace, HoldsAllThatWasWrittenWhateverEndsTheProcess) {
  const ScratchFolder folder;
  constexpr std::uint64_t kEvents = 100'000;  // several pieces of the file
  const pid_t child = fork();
  if (child == 0) {
    Recorder recorder(folder.path());
    MemoryTrace trace(recorder);
    MemoryEvent event;
    event.kind = Kind::alloc;
    trace.add(event);  // of a process that has used no GPU: dropped
    recorder.used(0, 0, parse_gpus("1GiB").front(), 1);
    for (event.address = 1; event.address <= kEvents; ++event.address) trace.add(event);
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const auto events = read_memory_trace(folder.file(std::to_string(child) + ".0.memory"));
  ASSERT_THAT(events, SizeIs(kEvents));
  for (std::uint64_t i = 0; i < kEvents; ++i) ASSERT_EQ(events[i].address, i + 1);
}

TEST(MemoryTrace, AChildWritesNoneOfItsParents) {
  const ScratchFolder folder;
  Recorder recorder(folder.path());
  recorder.used(0, 0, parse_gpus("1GiB").front(), 1);
  MemoryTrace trace(recorder);
  MemoryEvent event;
  event.kind = Kind::step;
  trace.add(event);
  const pid_t child = fork();
  if (child == 0) {
    recorder.forget();
    trace.forget();
    trace.add(event);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_THAT(read_memory_trace(recorder.stem() + ".memory"), SizeIs(1));
}

TEST(MemoryTrace, AWorkspaceIsToldOnceForEachBlock) {
  const ScratchFolder folder;
  Recorder recorder(folder.path());
  recorder.used(0, 0, parse_gpus("1GiB").front(), 1);
  MemoryTrace trace(recorder);
  const auto* const at = reinterpret_cast<const void*>(4096);
  for (int i = 0; i < 3; ++i) trace.workspace(at);
  trace.workspace(nullptr);
  MemoryEvent event;
  event.kind = Kind::free;
  event.address = 4096;
  trace.add(event);
  trace.workspace(at);
  EXPECT_THAT(read_memory_trace(recorder.stem() + ".memory"), SizeIs(3));
}

TEST(MemorySites, AreReadUpToTheLastWholeLine) {
  const ScratchFolder folder;
  const std::string path = folder.file("1.0.sites");
  std::ofstream(path) << R"({"at": 6, "line": "train.py:12", "library_line": null})"
                      << "\n"
                      << R"({"at": 99, "line": null, "library_line": "torchvision/a.py:1"})"
                      << "\n"
                      << R"({"at": 7, "line": "tra)";
  const auto sites = read_memory_sites(path);
  ASSERT_THAT(sites, SizeIs(2));
  EXPECT_EQ(sites[0].at, Holder::activations);
  EXPECT_EQ(sites[0].line, "train.py:12");
  EXPECT_EQ(sites[1].at, Holder::unknown);
  EXPECT_EQ(sites[1].library_line, "torchvision/a.py:1");
  EXPECT_THAT(read_memory_sites(folder.file("none")), SizeIs(0));
  EXPECT_THAT(read_memory_trace(folder.file("none")), SizeIs(0));
}

}  // namespace
}  // namespace gapless::simgpu
