// The gapless command as a user runs it: what it prints, and what it returns.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/trace/compact_format.h"
#include "tests/support/recording.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/run_command.h"
#include "tools/text_width.h"

namespace {

using gapless::GiB;
using gapless::MiB;
using gapless::testing::Output;
using gapless::testing::Recording;
using gapless::testing::run;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// What it shows in a terminal of so many columns, without colours.
std::string show(const std::string& arguments, int columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    unsetenv("COLUMNS");
    setenv("NO_COLOR", "1", 1);
    const std::string command = std::string(GAPLESS_COMMAND) + " " + arguments + " 2>/dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(terminal, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  std::erase(text, '\r');
  return text;
}

// Without what it says on standard error.
Output answer(const std::string& arguments) { return run(arguments, "2>/dev/null"); }

// Paragraphs as one line.
std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

const std::string kTiny = GAPLESS_TRACES "/tiny.gtrace";
const std::string kSmall = GAPLESS_TRACES "/lm-small-train.gtrace";
const std::string kVarlen = GAPLESS_TRACES "/qwen-lora-varlen.gtrace";

const std::vector<std::string> kCommands = {
    "run",     "replay", "fit", "inspect", "diff", "convert", "dryrun", "generate",
    "options", "view",   "top", "record",  "dump", "fits",    "advise", "search"};

class Command : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
    return folder.file(name);
  }
  std::string write(const Recording& run) {
    return write(run.trace().name + ".gtrace", gapless::write_compact({run.trace()}));
  }
  gapless::ScratchFolder folder;
};

TEST_F(Command, HelpHasExamplesForEveryCommand) {
  const Output help = run("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.text, HasSubstr("Examples:"));
  for (const std::string& command : kCommands) {
    EXPECT_THAT(help.text, HasSubstr("\n  " + command + "  "));
    const Output own = run(command + " --help");
    EXPECT_EQ(own.status, 0);
    EXPECT_THAT(own.text, HasSubstr("Example"));
    EXPECT_THAT(own.text, HasSubstr("Exit status"));
  }
  EXPECT_EQ(run("--version").status, 0);
}

TEST_F(Command, WrongUseIsTwo) {
  EXPECT_EQ(run("").status, 2);
  const Output command = run("replya x");
  EXPECT_EQ(command.status, 2);
  EXPECT_THAT(command.text, HasSubstr("no command \"replya\"; did you mean \"replay\"?"));
  const Output option = run("replay --capcity=16GiB " + kTiny);
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.text, HasSubstr("did you mean \"--capacity\""));
  EXPECT_EQ(run("replay").status, 2);
  EXPECT_EQ(run("replay --passes 0 " + kTiny).status, 2);
  const Output allocator = run("replay --allocator gapless,jemalloc " + kTiny);
  EXPECT_EQ(allocator.status, 2);
  EXPECT_THAT(allocator.text, HasSubstr("there is no allocator \"jemalloc\""));
  const Output capacity = run("replay --capacity huge " + kTiny);
  EXPECT_EQ(capacity.status, 2);
  EXPECT_THAT(capacity.text, HasSubstr("--capacity: \"huge\""));
  const Output profile = run("replay --profile h9000 " + kTiny);
  EXPECT_EQ(profile.status, 2);
  EXPECT_THAT(profile.text, HasSubstr("h9000"));
  const Output retired = run("replay --passes 1 --conf slack:1 " + kTiny);
  EXPECT_EQ(retired.status, 0);
  EXPECT_THAT(retired.text, HasSubstr("--conf: slack is no option any more"));
  const Output settings = run("replay --conf copies_slak:1 " + kTiny);
  EXPECT_EQ(settings.status, 2);
  EXPECT_THAT(settings.text, HasSubstr("\"copies_slack\""));
}

TEST_F(Command, CountsAreNotNegative) {
  for (const std::string words :
       {"inspect --blocks -1 " GAPLESS_SNAPSHOT, "inspect --segments -3 " GAPLESS_SNAPSHOT,
        "generate moe --steps 1 --seed -1 -o /dev/null", "generate moe --steps -1 -o /dev/null",
        "generate varlen --steps 1 --batch -1 -o /dev/null"}) {
    EXPECT_EQ(run(words).status, 2) << words;
  }
  EXPECT_EQ(run("replay --passes -1 " + kTiny).status, 2);
  EXPECT_EQ(run("fit --passes -1 " + kTiny).status, 2);
}

TEST_F(Command, ASizeWithoutAUnitIsAskedBack) {
  const Output capacity = run("replay --capacity 16 " + kTiny);
  EXPECT_EQ(capacity.status, 2);
  EXPECT_THAT(capacity.text, HasSubstr("--capacity: \"16\": that is 16 bytes; 16GiB?"));
  const Output settings = run("replay --conf limit:16 " + kTiny);
  EXPECT_EQ(settings.status, 2);
  EXPECT_THAT(settings.text, HasSubstr("option limit: \"16\": that is 16 bytes; 16GiB?"));
  const Output variable = run("dryrun --gpu 16 -- true");
  EXPECT_EQ(variable.status, 2);
  EXPECT_THAT(variable.text, HasSubstr("--gpu: \"16\": that is 16 bytes; 16GiB?"));
  // Meant so, but no GPU.
  for (const std::string bytes : {"16B", "0", "1MiB"}) {
    const Output small = run("replay --capacity " + bytes + " " + kTiny);
    EXPECT_EQ(small.status, 2);
    EXPECT_THAT(small.text, HasSubstr("less than a page of 2 MiB"));
  }
  EXPECT_EQ(run("replay --allocator native --capacity 3781165056 " + kTiny).status, 0);
}

TEST_F(Command, BadFilesAreNamedWithPlaceAndCause) {
  const Output absent = run("replay " + folder.file("absent.pickle"));
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.text, HasSubstr("absent.pickle: No such file"));
  const std::string code = write("code.pickle", std::string("\x80\x04") + "cos\nsystem\n.");
  for (const std::string command : {"replay ", "fit ", "inspect ", "convert "}) {
    const Output refused = run(command + code);
    EXPECT_EQ(refused.status, 2) << command;
    EXPECT_THAT(refused.text, HasSubstr("code.pickle: byte 2"));
    EXPECT_THAT(refused.text, HasSubstr("GLOBAL"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("code.gtrace")));
  const std::string text = write("notes.txt", "hello");
  EXPECT_EQ(run("inspect " + text).status, 2);
}

TEST_F(Command, OneBadFileStopsNoOther) {
  const std::string text = write("notes.txt", "hello");
  for (const std::string command : {"replay", "fit"}) {
    const Output both = answer(command + " --json " + text + " " + kTiny);
    EXPECT_EQ(both.status, 2) << command;
    EXPECT_EQ(json::parse(both.text).size(), 3U) << command;
    EXPECT_THAT(run(command + " " + text + " " + kTiny).text, HasSubstr("notes.txt: byte 0"));
  }
  const Output inspect = answer("inspect --json " + text + " " GAPLESS_SNAPSHOT);
  EXPECT_EQ(inspect.status, 2);
  EXPECT_EQ(json::parse(inspect.text).size(), 1U);
  const std::string snapshot = folder.file("run.pickle");
  std::filesystem::copy_file(GAPLESS_SNAPSHOT, snapshot);
  const Output convert = answer("convert --json " + text + " " + snapshot);
  EXPECT_EQ(convert.status, 2);
  EXPECT_EQ(json::parse(convert.text).size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(folder.file("run.gtrace")));
}

TEST_F(Command, ATruncatedSnapshotIsCalledThat) {
  std::ifstream file(GAPLESS_SNAPSHOT, std::ios::binary);
  std::string bytes(3000, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const Output cut = run("inspect " + write("cut.pickle", bytes));
  EXPECT_EQ(cut.status, 2);
  EXPECT_THAT(cut.text, HasSubstr("cut.pickle: byte 2: the file is cut off"));
  EXPECT_THAT(run("inspect " + write("empty.pickle", "")).text,
              HasSubstr("empty.pickle: is empty"));
}

// --- what fits ----------------------------------------------------------------------------------

TEST_F(Command, ARunThatEndedOutOfMemoryNeedsMoreThanItHad) {
  Recording dies("dies");
  dies.alloc(512 * MiB);
  const auto freed = dies.alloc(512 * MiB);
  dies.oom(GiB).free(freed);
  const std::string trace = write(dies);
  for (const std::string command : {"fit", "replay"}) {
    const Output told = run(command + " " + trace);
    EXPECT_EQ(told.status, 3) << command;
    EXPECT_THAT(in_one_line(told.text), HasSubstr("this run ended out of memory"));
    EXPECT_THAT(in_one_line(told.text), HasSubstr("at least 2.00 GiB"));
    EXPECT_THAT(in_one_line(told.text), HasSubstr("not known"));
    const Output rows = run(command + " --json " + trace);
    EXPECT_EQ(rows.status, 3);
    for (const json& row : json::parse(rows.text)) {
      EXPECT_EQ(row["ended_out_of_memory"], true);
      EXPECT_GE(row["at_least_bytes"], 2 * GiB);
      EXPECT_EQ(row["peak_allocated_bytes"], 2 * GiB);
      EXPECT_EQ(row["failed_requests"].size(), 1U);
      EXPECT_EQ(row["failed_requests"][0]["asked_bytes"], GiB);
      EXPECT_EQ(row["failed_requests"][0]["live_bytes"], GiB);
      EXPECT_TRUE(row[command == "fit" ? "min_capacity_bytes" : "fits"].is_null());
    }
  }
  // With as much as it had the request fails again.
  const Output rows = run("replay --json --capacity 1536MiB " + trace);
  EXPECT_EQ(rows.status, 3);
  for (const json& row : json::parse(rows.text)) {
    EXPECT_EQ(row["fits"], false);
    EXPECT_EQ(row["failed_bytes"], GiB);
  }
}

TEST_F(Command, ARunThatWentOnWithoutIsReplayedAsItWas) {
  Recording catches("catches");
  catches.alloc(512 * MiB);
  catches.oom(GiB);
  catches.alloc(256 * MiB);
  const std::string trace = write(catches);
  for (const std::string command : {"fit", "replay"}) {
    const Output told = run(command + " " + trace);
    EXPECT_EQ(told.status, 0) << command;
    EXPECT_THAT(in_one_line(told.text),
                HasSubstr("did not get its memory, and the program went on"));
    EXPECT_THAT(in_one_line(told.text), HasSubstr("1.00 GiB at event 1, with 512.00 MiB live"));
    EXPECT_THAT(in_one_line(told.text),
                HasSubstr("with that request served it needs at least 1.50 GiB"));
    for (const json& row : json::parse(run(command + " --json " + trace).text)) {
      EXPECT_EQ(row["ended_out_of_memory"], false);
      EXPECT_EQ(row["peak_allocated_bytes"], 768 * MiB);
      EXPECT_EQ(row["failed_requests"][0]["needs_bytes"], GiB + 512 * MiB);
    }
  }
}

// A program may ask for more than there is anywhere.
TEST_F(Command, ARequestBeyondAnyGpuIsTold) {
  Recording absurd("absurd");
  absurd.alloc(64 * MiB);
  absurd.oom(std::uint64_t{1} << 60);
  const std::string trace = write(absurd);
  for (const std::string command : {"fit", "replay"}) {
    const Output told = run(command + " " + trace);
    EXPECT_EQ(told.status, 3) << command;
    EXPECT_THAT(in_one_line(told.text), HasSubstr("more than any GPU has"));
  }
}

TEST_F(Command, FitAndReplayMeanTheSame) {
  const Output fit = run("fit --json --allocator native " + kVarlen);
  ASSERT_EQ(fit.status, 0) << fit.text;
  const auto least = json::parse(fit.text)[0]["min_capacity_bytes"].get<std::uint64_t>();
  const auto at = [](std::uint64_t bytes) {
    return run("replay --allocator native --capacity " + std::to_string(bytes) + " " + kVarlen);
  };
  EXPECT_EQ(at(least).status, 0);
  EXPECT_THAT(at(least).text, HasSubstr("Fits: 4 passes in a row complete"));
  EXPECT_EQ(at(least - 2 * MiB).status, 3);
  EXPECT_THAT(run("fit " + kTiny).text, HasSubstr("4 passes in a row complete"));
}

TEST_F(Command, WhatDidNotCompleteHasNoOverhead) {
  const Output output = run("replay --capacity 3300MiB --allocator native " + kTiny);
  EXPECT_EQ(output.status, 3);
  EXPECT_THAT(output.text, HasSubstr("tiny with native does not fit 3300MiB"));
  EXPECT_THAT(output.text, Not(HasSubstr("-0")));
  const json row =
      json::parse(run("replay --json --capacity 3300MiB --allocator native " + kTiny).text)[0];
  EXPECT_TRUE(row["overhead_percent"].is_null());
  EXPECT_TRUE(row["ns_per_op"].is_null());
  EXPECT_EQ(row["failed_pass"], 1);
}

// --- tables -------------------------------------------------------------------------------------

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (line.ends_with('\r')) line.pop_back();
    widest = std::max(widest, gapless::tools::columns_of(line));
  }
  return widest;
}

TEST_F(Command, TablesFitTheTerminal) {
  const std::string name(70, 'x');
  std::filesystem::copy_file(GAPLESS_SNAPSHOT, folder.file(name + ".pickle"));
  for (const std::string words : {"replay --capacity 3300MiB ", "fit ", "inspect "}) {
    for (const int columns : {100, 80, 40}) {
      const std::string text = show(words + folder.file(name + ".pickle"), columns);
      EXPECT_THAT(text, HasSubstr("allocated"));
      EXPECT_LE(widest_line(text), static_cast<std::size_t>(columns)) << words << "\n" << text;
    }
  }
  EXPECT_LE(widest_line(show("options", 80)), 80U);
  for (const std::string& command : kCommands) {
    EXPECT_LE(widest_line(show(command + " --help", 80)), 80U) << command;
  }
}

TEST_F(Command, TablesAreOneLineARowWhereNothingLimitsThem) {
  const std::string text = run("replay " + kTiny).text;
  std::istringstream lines(text);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" GiB") != std::string::npos && line.find(" yes ") != std::string::npos) ++rows;
  }
  EXPECT_EQ(rows, 3);
}

TEST_F(Command, ReplayPrintsATable) {
  const Output output = run("replay " + kTiny);
  EXPECT_EQ(output.status, 0);
  for (const char* word : {"tiny", "gapless", "native", "expandable", "overhead", "stalls"}) {
    EXPECT_THAT(output.text, HasSubstr(word));
  }
  EXPECT_THAT(output.text, Not(HasSubstr("\x1b[")));  // no colour into a pipe
}

TEST_F(Command, ReplayJsonHasEveryField) {
  const Output output = run("replay --json --passes 5 " + kTiny + " " + kSmall);
  ASSERT_EQ(output.status, 0) << output.text;
  const json rows = json::parse(output.text);
  ASSERT_EQ(rows.size(), 6U);
  for (const json& row : rows) {
    for (const char* field :
         {"trace", "device", "allocator", "events", "peak_allocated_bytes", "peak_reserved_bytes",
          "overhead_percent", "driver_calls", "last_pass_driver_calls", "host_syncs", "driver_ns",
          "ns_per_op", "fits"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["fits"], true);
    EXPECT_GE(row["peak_reserved_bytes"], row["peak_allocated_bytes"]);
    EXPECT_GT(row["driver_ns"], 0);
  }
  EXPECT_EQ(rows[0]["allocator"], "gapless");
  EXPECT_EQ(rows[0]["last_pass_driver_calls"], 0);
  EXPECT_EQ(rows[1]["peak_reserved_bytes"], 3781165056U);  // as recorded
}

TEST_F(Command, ReplayIsThreeWhereSomethingDoesNotFit) {
  const Output output = run("replay --json --capacity 3300MiB " + kTiny);
  EXPECT_EQ(output.status, 3);
  const json rows = json::parse(output.text);
  EXPECT_EQ(rows[0]["fits"], true);
  EXPECT_EQ(rows[1]["fits"], false);
  EXPECT_GT(rows[1]["failed_bytes"], 0);
}

TEST_F(Command, ProfilesChangeCosts) {
  const std::string profile =
      write("card.json", R"({"name": "card", "calls": {"mem_create": {"fixed_ns": 1000}}})");
  const auto ns = [&](const std::string& name) {
    const Output output = run("replay --json --allocator gapless --profile " + name + " " + kTiny);
    return json::parse(output.text)[0];
  };
  const json card = ns(profile);
  EXPECT_EQ(card["driver_ns"], 1000 * card["driver_calls_by_kind"]["mem_create"].get<int>());
  EXPECT_EQ(ns("free")["driver_ns"], 0);
  EXPECT_GT(ns("a100")["driver_ns"], ns("desktop")["driver_ns"]);
}

TEST_F(Command, FitFindsTheLeastCapacity) {
  const Output output = run("fit --json " + kTiny);
  ASSERT_EQ(output.status, 0) << output.text;
  const json rows = json::parse(output.text);
  ASSERT_EQ(rows.size(), 3U);
  const auto least = rows[0]["min_capacity_bytes"].get<std::uint64_t>();
  EXPECT_GE(least, rows[0]["peak_allocated_bytes"]);
  EXPECT_LT(least, rows[1]["min_capacity_bytes"]);
  const std::string at = std::to_string(least);
  EXPECT_EQ(run("replay --allocator gapless --capacity " + at + " " + kTiny).status, 0);
  const std::string below = std::to_string(least - 2 * MiB);
  EXPECT_EQ(run("replay --allocator gapless --capacity " + below + " " + kTiny).status, 3);
}

TEST_F(Command, GenerateConvertAndReplayWorkTogether) {
  const std::string made = folder.file("moe.gtrace");
  EXPECT_EQ(run("generate moe --steps 3 -o " + made).status, 0);
  const std::string again = folder.file("again.gtrace");
  EXPECT_EQ(run("convert " + made + " --note 'from a test' -o " + again).status, 0);
  EXPECT_EQ(run("convert " + made).status, 2);  // would overwrite itself
  const Output output = run("replay --json --allocator gapless " + again);
  ASSERT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(json::parse(output.text)[0]["trace"], "moe");
  EXPECT_EQ(run("generate dreams").status, 2);
  const json generated = json::parse(run("generate moe --steps 3 --json -o " + made).text);
  EXPECT_EQ(generated["output"], made);
  EXPECT_EQ(generated["peak_allocated_bytes"], json::parse(output.text)[0]["peak_allocated_bytes"]);
  EXPECT_EQ(generated["output_bytes"], std::filesystem::file_size(made));
  const json converted = json::parse(run("convert --json " + made + " -o " + again).text);
  EXPECT_EQ(converted[0]["input"], made);
  EXPECT_EQ(converted[0]["output"], again);
  EXPECT_EQ(converted[0]["events"], generated["events"]);
  EXPECT_EQ(run("generate moe --batch 16 -o " + made).status, 2);
}

TEST_F(Command, ConvertLosesNoFileOfTheSameName) {
  for (const std::string place : {"a", "b", "out"}) {
    std::filesystem::create_directory(folder.file(place));
  }
  for (const std::string place : {"a", "b"}) {
    std::filesystem::copy_file(GAPLESS_SNAPSHOT, folder.file(place + "/run.pickle"));
  }
  const Output output = run("convert " + folder.file("a/run.pickle") + " " +
                            folder.file("b/run.pickle") + " -o " + folder.file("out"));
  EXPECT_EQ(output.status, 2);
  EXPECT_THAT(output.text, HasSubstr("b/run.pickle: would overwrite"));
  EXPECT_TRUE(std::filesystem::exists(folder.file("out/run.gtrace")));
}

TEST_F(Command, RunTellsHowItEnded) {
  const std::string file = folder.file("run.json");
  const auto report = [&] {
    std::ifstream text(file);
    return json::parse(text);
  };
  EXPECT_EQ(run("run --conf window_factor:2 --json " + file + " -- sh -c 'exit 7'").status, 7);
  EXPECT_EQ(report()["exit_status"], 7);
  EXPECT_EQ(report()["command"], json({"sh", "-c", "exit 7"}));
  EXPECT_EQ(report()["options"]["window_factor"], "2");
  EXPECT_EQ(report()["options"]["page_size"], "2MiB");
  EXPECT_THAT(report()["library"].get<std::string>(), HasSubstr("libgapless_preload.so"));
  EXPECT_EQ(run("run --json " + file + " -- sh -c 'kill -9 $$'").status, 137);
  EXPECT_EQ(report()["exit_status"], 137);
  EXPECT_EQ(report()["signal"], 9);
  const json told = json::parse(run("run --json -- true").text);
  EXPECT_EQ(told["exit_status"], 0);
  EXPECT_TRUE(told["signal"].is_null());
  // Whoever ends it ends the program.
  EXPECT_EQ(run("run --json " + file + " -- sh -c 'kill -15 $PPID; exec sleep 60'").status, 143);
  EXPECT_EQ(report()["exit_status"], 143);
}

TEST_F(Command, GenerateMakesAProgramLarger) {
  const auto peak = [&](const std::string& flags) {
    const std::string made = folder.file("varlen.gtrace");
    EXPECT_EQ(run("generate varlen --steps 2 -o " + made + flags).status, 0);
    const Output output = run("replay --json --allocator native " + made);
    return json::parse(output.text)[0]["peak_allocated_bytes"].get<std::uint64_t>();
  };
  EXPECT_GT(peak(" --batch 16"), peak("") * 3 / 2);
}

TEST_F(Command, ReplayTakesPyTorchsSettings) {
  const auto reserved = [&](const std::string& allocator) {
    return json::parse(run("replay --json -a " + allocator + " " + kTiny).text)
        .at(0)["peak_reserved_bytes"]
        .get<std::uint64_t>();
  };
  EXPECT_NE(reserved("native+roundup_power2_divisions:2+max_split_size_mb:32"), reserved("native"));
  for (const std::string wrong :
       {"native+", "native+x:1", "native+max_split_size_mb:20", "native+max_split_size_mb:x",
        "native+roundup_power2_divisions:3", "native+garbage_collection_threshold:1.5",
        "gapless+max_split_size_mb:64", "native:4"}) {
    const Output output = run("replay -a " + wrong + " " + kTiny);
    EXPECT_EQ(output.status, 2) << wrong;
    EXPECT_THAT(output.text, HasSubstr("--allocator")) << wrong;
  }
}

TEST_F(Command, OptionsListsThem) {
  EXPECT_THAT(run("options").text, HasSubstr("page_size"));
  const json list = json::parse(run("options --json").text);
  EXPECT_EQ(list[0]["name"], "page_size");
  EXPECT_EQ(list[0]["default"], "2MiB");
}

}  // namespace
