// Programs that once went wrong, as the fuzzer found them and then shortened.
#include <gtest/gtest.h>

#include "tests/support/machine.h"

namespace gapless::testing {
namespace {

std::string run(const std::vector<Op>& ops) {
  MachineOptions options;
  options.capacity_bytes = 8 << 20;
  options.streams = 3;
  options.allocator.page_size = 64 << 10;
  Machine machine(options);
  std::string wrong = machine.run(ops);
  return wrong.empty() ? machine.finish() : wrong;
}

// A place with a wait was chosen, new memory came and went again because a call failed, and the
// hole that was chosen was not the same any more.
TEST(FoundPrograms, WhatWasChosenIsLookedForAgainAfterGrowthThatFailed) {
  EXPECT_EQ(run({Alloc{928417, 2}, Alloc{2900497, 1}, Free{21612}, Alloc{2039329, 2}, Free{24391},
                 FailNext{11, false}, Free{30485}, Alloc{945073, 2}, Alloc{35991, 1}, Free{17526},
                 Trim{4587520}, Free{36727}, Alloc{1699633, 1}, Alloc{2161585, 0}, Free{21683},
                 FailNext{21, true}, Free{1628}, SetLimit{6160384}, Alloc{2815009, 1}}),
            "");
}

// A device that is out of memory for one call has it a moment later.
TEST(FoundPrograms, TheLastSearchAsksWhatTheDeviceHas) {
  EXPECT_EQ(run({Alloc{52074, 1}, Alloc{7657, 2}, Alloc{1812721, 0}, Alloc{1732, 1},
                 Alloc{564001, 0}, Free{25741}, Free{48630}, Alloc{3109393, 0}, Alloc{165697, 2},
                 Free{5540}, SetLimit{5701632}, FailNext{28, true}, Alloc{1803601, 2}}),
            "");
}

}  // namespace
}  // namespace gapless::testing
