// Where a program is told its settings: words, options of its parser, keys of files.
#include "tools/advise/settings.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

OptionFacts option(std::vector<std::string> names, json value, bool takes_value = true) {
  OptionFacts facts;
  facts.names = std::move(names);
  facts.value = std::move(value);
  facts.takes_value = takes_value;
  facts.sets = true;
  return facts;
}

std::string command_with(const std::vector<std::string>& command, const ProgramFacts& facts,
                         Role role, const std::string& value) {
  const Settings settings(command, facts);
  const auto place = settings.find(role);
  if (!place) return "(not found)";
  const auto word = spelled(*place, role, value);
  if (!word) return "(as it is)";
  Attempt attempt;
  attempt.command = command;
  set(attempt, *place, *word);
  return shell_text(attempt.command);
}

TEST(Settings, ReplaceWordsOfTheCommand) {
  EXPECT_EQ(command_with({"python", "t.py", "--batch_size", "8", "x"}, {}, Role::batch, "4"),
            "python t.py --batch_size 4 x");
  EXPECT_EQ(command_with({"python", "t.py", "--batch-size=8"}, {}, Role::batch, "4"),
            "python t.py --batch-size=4");
  EXPECT_EQ(command_with({"python", "t.py", "train.batch_size=8"}, {}, Role::batch, "4"),
            "python t.py train.batch_size=4");
  EXPECT_EQ(command_with({"python", "t.py", "--rate", "8"}, {}, Role::batch, "4"), "(not found)");
}

TEST(Settings, AddOptionsThatTheParserKnows) {
  ProgramFacts facts;
  facts.options = {option({"--bs", "-b"}, 8), option({"--gradient_checkpointing"}, false, false),
                   option({"--bf16"}, false)};
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::batch, "2"), "python t.py --bs 2");
  EXPECT_EQ(command_with({"python", "t.py", "-b", "8"}, facts, Role::batch, "2"),
            "python t.py -b 2");
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::checkpointing, "true"),
            "python t.py --gradient_checkpointing");
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::bf16, "true"), "python t.py --bf16 True");
  // What is appended would not reach it.
  EXPECT_EQ(command_with({"bash", "t.sh"}, facts, Role::batch, "2"), "(not found)");
}

TEST(Settings, LeaveAloneWhatIsSetOrMeansSomethingElse) {
  ProgramFacts facts;
  facts.options = {option({"--gradient_checkpointing"}, true, false),
                   option({"--ckpt"}, "model.pt"), option({"--precision"}, "bf16-mixed"),
                   option({"--batch"}, "auto")};
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::checkpointing, "true"), "(as it is)");
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::bf16, "true"), "(as it is)");
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::batch, "2"), "(not found)");
  facts.options = {option({"--ckpt"}, "model.pt")};
  EXPECT_EQ(command_with({"python", "t.py"}, facts, Role::checkpointing, "true"), "(not found)");
}

TEST(Settings, ChangeCopiesOfFiles) {
  const ScratchFolder folder;
  const std::string path = folder.file("train.yaml");
  std::ofstream(path) << "per_device_train_batch_size: 8  # a GPU\noutput_dir: out\n";
  const std::vector<std::string> command = {"python", "t.py", path};
  const Settings settings(command, {});
  Attempt attempt;
  attempt.command = command;
  set(attempt, settings.find(Role::batch).value(), "4");
  set(attempt, settings.find(Role::accumulation).value(), "2");
  EXPECT_EQ(
      attempt.files.at(path),
      "per_device_train_batch_size: 4  # a GPU\noutput_dir: out\ngradient_accumulation_steps: 2\n");
  const std::vector<std::string> words = command_of(attempt, folder.path() + "copies");
  EXPECT_NE(words[2], path);
  std::ifstream copy(words[2]);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(copy), {}), attempt.files.at(path));
}

}  // namespace
}  // namespace gapless::tools
