#include "tools/words_of_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gapless::tools {
namespace {

using ::testing::HasSubstr;

TEST(WordsOfProgram, AGpuBehindTheProgramIsNotSimulated) {
  const SimulatedGpus usual;
  EXPECT_THAT(gpu_behind_program_note({"python", "train.py", "--gpu", "16GiB"}, usual),
              HasSubstr("--gpu 16GiB stands behind the program, which gets it, and an A100"));
  EXPECT_THAT(gpu_behind_program_note({"train.py", "--gpu=t4", "x"}, usual), HasSubstr("--gpu t4"));
  for (const char* const own : {"0", "0,1", "cuda", "all", "1", ""}) {
    EXPECT_EQ(gpu_behind_program_note({"python", "train.py", "--gpu", own}, usual), "") << own;
  }
  EXPECT_EQ(gpu_behind_program_note({"python", "train.py", "--gpu"}, usual), "");
  SimulatedGpus given;
  given.gpus = "16GiB";
  EXPECT_EQ(gpu_behind_program_note({"python", "train.py", "--gpu", "T4"}, given), "");
}

TEST(WordsOfProgram, AContainerIsOutOfReach) {
  EXPECT_EQ(
      out_of_reach_note("gapless fits", {"/usr/bin/docker", "run", "pytorch", "train.py"}),
      "docker starts the program where simulated GPUs do not reach: put gapless in front of the "
      "program there (docker ... gapless fits -- python train.py)");
  EXPECT_THAT(out_of_reach_note("gapless fits", {"sudo", "python"}), HasSubstr("sudo starts"));
  EXPECT_EQ(out_of_reach_note("gapless fits", {"python", "docker"}), "");
}

}  // namespace
}  // namespace gapless::tools
