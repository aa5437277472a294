// Commands for one of several machines.
#include "tools/other_nodes.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace gapless::tools {
namespace {

using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(OtherNodes, TheOptionsOfLaunchers) {
  EXPECT_THAT(other_nodes_note({"torchrun", "--nnodes", "2", "--node-rank", "0", "train.py"}),
              StartsWith("--nnodes 2: it will wait for other machines"));
  EXPECT_THAT(other_nodes_note({"torchrun", "--nnodes=4", "train.py"}), StartsWith("--nnodes 4:"));
  EXPECT_THAT(other_nodes_note({"accelerate", "launch", "--num_machines", "2", "train.py"}),
              StartsWith("--num_machines 2:"));
  EXPECT_THAT(other_nodes_note({"python", "train.py", "--num_nodes=2"}),
              StartsWith("--num_nodes 2:"));
  EXPECT_THAT(other_nodes_note({"bash", "-c", "torchrun --nnodes 2 train.py"}),
              StartsWith("--nnodes 2:"));
}

TEST(OtherNodes, OneOrWhoeverComes) {
  EXPECT_THAT(other_nodes_note({"torchrun", "--nnodes", "1", "train.py"}), IsEmpty());
  EXPECT_THAT(other_nodes_note({"torchrun", "--nnodes", "1:4", "train.py"}), IsEmpty());
  EXPECT_THAT(other_nodes_note({"torchrun", "--nnodes", "$N", "train.py"}), IsEmpty());
  EXPECT_THAT(other_nodes_note({"python", "train.py", "--my--nnodes", "2"}), IsEmpty());
  EXPECT_THAT(
      other_nodes_note({"bash", "-c", "torchrun --nnodes 2 a.py & torchrun --nnodes 2 a.py; wait"}),
      IsEmpty());
}

TEST(OtherNodes, InAScript) {
  const ScratchFolder folder;
  const std::string script = folder.file("run.sh");
  std::ofstream(script) << "# torchrun --nnodes 8\ntorchrun \\\n  --nnodes 2 \\\n  train.py\n";
  EXPECT_THAT(other_nodes_note({"bash", script}), StartsWith("--nnodes 2:"));
  std::ofstream(script) << "# torchrun --nnodes 8\ntorchrun --nnodes $N train.py\n";
  EXPECT_THAT(other_nodes_note({"bash", script}), IsEmpty());
  EXPECT_THAT(other_nodes_note({"bash", folder.file("none.sh")}), IsEmpty());
}

}  // namespace
}  // namespace gapless::tools
