// What an answer leaves open: a tight "yes".
#include "tools/left_open.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json row_of_peaks(std::uint64_t reserved_mib, std::uint64_t used_mib) {
  return {{"fits", true},
          {"is_named", true},
          {"total_bytes", 8192 * MiB},
          {"peak_reserved_bytes", reserved_mib * MiB},
          {"peak_used_bytes", used_mib * MiB}};
}

TEST(LeftOpen, LessRoomThanWhatIsEstimatedIsTold) {
  EXPECT_THAT(left_open(row_of_peaks(7756, 8180)),
              ElementsAre("less is left than the 424.00 MiB that context and libraries are taken "
                          "to have: what they have of a real GPU differs by its driver, and with "
                          "more it may not fit (--context)"));
  EXPECT_THAT(tight_note(row_of_peaks(7768, 8192)), HasSubstr("the 424.00 MiB"));
  EXPECT_THAT(tight_note(row_of_peaks(7345, 7769)), HasSubstr("the 424.00 MiB"));
}

TEST(LeftOpen, WhereMoreIsLeftNothingIsToBeSaid) {
  EXPECT_THAT(left_open(row_of_peaks(7344, 7768)), IsEmpty());
  EXPECT_THAT(tight_note(row_of_peaks(8192, 8192)), IsEmpty());  // --context 0MiB
  json row = row_of_peaks(7756, 8180);
  row["fits"] = false;
  EXPECT_THAT(tight_note(row), IsEmpty());
  row = row_of_peaks(7756, 8180);
  row["peak_reserved_bytes"] = nullptr;  // of an allocator that does not tell
  EXPECT_THAT(tight_note(row), IsEmpty());
}

json steps_of(std::uint64_t least_mib, std::uint64_t most_mib, bool differ) {
  return {{"steps", 10},
          {"least_bytes", least_mib * MiB},
          {"most_bytes", most_mib * MiB},
          {"times_most", differ ? 1 : 2},
          {"differ", differ}};
}

TEST(LeftOpen, WhereStepsDifferALargerOneMayCome) {
  json row = row_of_peaks(6144, 6568);  // beside the largest step 1.77 GiB
  row["step_peaks"] = steps_of(4096, 5960, true);
  EXPECT_THAT(left_open(row),
              ElementsAre("steps differ: 10 of them took 4.00 GiB to 5.82 GiB at their peaks, the "
                          "most in one alone, and 1.77 GiB are free beside that: a larger one that "
                          "does not fit may come. The largest batch that there can be would show "
                          "it"));
  row["step_peaks"] = steps_of(4152, 5960, true);
  EXPECT_THAT(left_open(row), IsEmpty()) << "as much is left";
  row["step_peaks"] = steps_of(4096, 5960, false);
  EXPECT_THAT(left_open(row), IsEmpty()) << "the largest came again";
  row["step_peaks"] = nullptr;
  EXPECT_THAT(left_open(row), IsEmpty());
}

TEST(LeftOpen, WhatLoadersTellOfTheirLargestBatchIsEnough) {
  json row = row_of_peaks(6144, 6568);
  row["step_peaks"] = steps_of(4096, 5960, true);
  row["data"] = {{{"may_be_larger", nullptr}, {"one_size", false}}};
  EXPECT_THAT(steps_note(row), HasSubstr("steps differ"));
  row["data"] = {{{"may_be_larger", false}, {"one_size", true}}};
  EXPECT_THAT(steps_note(row), HasSubstr("steps differ")) << "it is not by the data";
  row["data"] = {{{"may_be_larger", false}, {"one_size", false}}};
  EXPECT_THAT(steps_note(row), IsEmpty()) << "the longest were fed";
  row["data"] = {{{"may_be_larger", true}, {"one_size", false}}};
  EXPECT_THAT(steps_note(row), IsEmpty()) << "it is told of the data";
}

TEST(LeftOpen, WhatAProgramAllowsItselfEndsBeforeTheGpu) {
  json row = row_of_peaks(3072, 3496);
  row["limit_bytes"] = 4096 * MiB;
  EXPECT_THAT(left_open(row),
              ElementsAre("the program allows itself 4.00 GiB of the GPU's 8.00 GiB (memory "
                          "fraction): 1.00 GiB of that are left"));
  row["step_peaks"] = steps_of(1024, 3072, true);  // of the GPU more is free than they differ by
  EXPECT_THAT(left_open(row), Contains(HasSubstr("and 1.00 GiB are free")));
  row["step_peaks"] = nullptr;
  row["steps"] = 1;
  row["state_bytes_of_first_step"] = 2048 * MiB;
  EXPECT_THAT(left_open(row), Contains(HasSubstr("and no more than 1.00 GiB are left")));
  row = row_of_peaks(7344, 7768);
  row["limit_bytes"] = 8000 * MiB;  // which the GPU has not beside context and libraries
  EXPECT_THAT(limit_note(row), IsEmpty());
  row["limit_bytes"] = nullptr;
  EXPECT_THAT(limit_note(row), IsEmpty());
}

TEST(LeftOpen, WhatAProgramEndedItselfHadMorePerhaps) {
  json row = row_of_peaks(7344, 7768);
  row["end"] = {{"how", "stopped"}, {"signal", "SIGTERM"}};
  EXPECT_THAT(
      left_open(row),
      ElementsAre("the program itself ended it, by SIGTERM: what it had still to do, it did "
                  "not"));
  row["fits"] = nullptr;
  EXPECT_THAT(left_open(row), IsEmpty());
  row["fits"] = true;
  row["end"] = {{"how", "exited"}, {"status", 0}};
  EXPECT_THAT(left_open(row), IsEmpty());
}

TEST(LeftOpen, WhatATrainingWithoutStepsWouldTake) {
  json row = row_of_peaks(7344, 7768);
  row["made_optimizer"] = true;
  row["steps"] = 0;
  EXPECT_THAT(left_open(row), ElementsAre(HasSubstr("an optimizer was made, and took no step")));
  for (const auto& [name, value] :
       {std::pair("steps", json(1)), std::pair("made_optimizer", json(false)),
        std::pair("fits", json(false)), std::pair("fits", json())}) {
    json other = row;
    other[name] = value;
    EXPECT_THAT(left_open(other), IsEmpty()) << name;
  }
}

TEST(LeftOpen, WhatASecondStepHasBesideTheFirst) {
  json row = row_of_peaks(7344, 7768);
  row["steps"] = 1;
  EXPECT_THAT(left_open(row), IsEmpty());
  row["state_bytes_of_first_step"] = 128 << 20;
  EXPECT_THAT(left_open(row),
              ElementsAre(HasSubstr("states of 128.00 MiB: a second one has these beside what the "
                                    "first took. Two steps")));
  for (const auto& [name, value] :
       {std::pair("steps", json(2)), std::pair("stopped_after_steps", json(1)),
        std::pair("fits", json(false)), std::pair("state_bytes_of_first_step", json())}) {
    json other = row;
    other[name] = value;
    EXPECT_THAT(left_open(other), IsEmpty()) << name;
  }
  row["total_bytes"] = row["peak_used_bytes"].get<std::uint64_t>() + (100U << 20);
  EXPECT_THAT(left_open(row), Contains(HasSubstr("and no more than 100.00 MiB are left")));
}

TEST(LeftOpen, ParametersThatWereLeftOnTheHost) {
  json row = row_of_peaks(7344, 7768);
  row["offloaded_parameter_bytes"] = 0;
  EXPECT_THAT(left_open(row), IsEmpty());
  row["offloaded_parameter_bytes"] = 3 * MiB;
  EXPECT_THAT(left_open(row), ElementsAre(HasSubstr("3.00 MiB of parameters stay on the host")));
  row["fits"] = false;
  EXPECT_THAT(left_open(row), IsEmpty());
}

TEST(LeftOpen, FunctionsThatAreNotSimulated) {
  json row = row_of_peaks(7344, 7768);
  row["not_simulated"] = {"nvmlDeviceGetVbiosVersion"};
  EXPECT_THAT(left_open(row), IsEmpty());
  row["not_simulated"] = {"nvmlDeviceGetVbiosVersion", "cuLinkCreate_v2", "cuFoo"};
  EXPECT_THAT(left_open(row), ElementsAre(HasSubstr("went on without: cuLinkCreate_v2, cuFoo.")));
  row["fits"] = false;
  EXPECT_THAT(left_open(row), IsEmpty());
}

TEST(LeftOpen, AnAssertThatWasPassedOver) {
  json row = row_of_peaks(7344, 7768);
  row["assert_passed_over"] = nullptr;
  EXPECT_THAT(left_open(row), IsEmpty());
  row["assert_passed_over"] = {{"line", "train.py:3"}, {"library_line", "demucs/apply.py:299"}};
  EXPECT_THAT(
      left_open(row),
      ElementsAre(HasSubstr("an assert failed (train.py:3, in demucs/apply.py:299) after")));
  row["fits"] = nullptr;
  EXPECT_THAT(left_open(row), IsEmpty());
}

TEST(LeftOpen, RoomForTheBuffersOfNccl) {
  json row = row_of_peaks(6600, 7024);  // 1.14 GiB left
  row["unknown_workspaces"] = {"libcudnn.so.9"};
  EXPECT_THAT(left_open(row), IsEmpty());
  row["unknown_workspaces"] = {"libcudnn.so.9", "libnccl.so.2"};
  EXPECT_THAT(left_open(row), ElementsAre(HasSubstr("less is left than NCCL may take")));
  row["peak_used_bytes"] = 6666 * MiB;  // 1.6 GB and a bit
  EXPECT_THAT(left_open(row), IsEmpty());
  row["peak_used_bytes"] = 6667 * MiB;
  EXPECT_THAT(left_open(row), ElementsAre(HasSubstr("NCCL may take")));
  json with_room = row_of_peaks(5000, 7048);  // --context 2GiB
  with_room["unknown_workspaces"] = {"libnccl.so.2"};
  EXPECT_THAT(collectives_note(with_room), IsEmpty());
  row["fits"] = false;
  EXPECT_THAT(collectives_note(row), IsEmpty());
}

}  // namespace
}  // namespace gapless::tools
