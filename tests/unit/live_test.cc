// What a running process tells of itself, asked by another as `gapless top` and its like do.
#include "allocator/live/live.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/live/live_client.h"
#include "allocator/report/memory_state.h"
#include "allocator/trace/load.h"
#include "simgpu/sim_driver.h"
#include "tests/support/running_process.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

using gapless::testing::RunningProcess;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

json ask(int pid, const json& request) {
  LiveClient client(pid);
  return json::parse(client.ask(request.dump()));
}

std::string problem_with(int pid, const json& request = {{"do", "status"}}) {
  try {
    (void)ask(pid, request);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Live, TellsOfItsMemory) {
  const RunningProcess process;
  ASSERT_TRUE(process.ready());
  EXPECT_THAT(live_processes(), Contains(process.pid()));
  const json status = ask(process.pid(), {{"do", "status"}, {"details", true}});
  ASSERT_EQ(status["devices"].size(), 2U);
  EXPECT_EQ(status["devices"][0]["allocated_bytes"]["now"], 0);
  const json& device = status["devices"][1];
  EXPECT_THAT(device["allocated_bytes"]["now"].get<std::uint64_t>(),
              ::testing::AnyOf(8 * MiB, 9 * MiB));
  EXPECT_EQ(device["total_bytes"], 1 * GiB);
  EXPECT_EQ(device["streams"].size(), 2U);
  EXPECT_GE(device["streams"][0]["allocated_bytes"], 5 * MiB);
  EXPECT_EQ(device["streams"][1]["allocated_bytes"], 3 * MiB);
  EXPECT_EQ(device["pools"].size(), 1U);
  EXPECT_TRUE(status["recording"].is_null());
}

TEST(Live, IsRecordedAndDumpedFromOutside) {
  const ScratchFolder folder;
  const RunningProcess process;
  const std::string path = folder.file("run.gtrace");
  EXPECT_EQ(ask(process.pid(), {{"do", "record"}, {"path", path}, {"stacks", true}})["path"], path);
  EXPECT_THAT(problem_with(process.pid(), {{"do", "record"}, {"path", path + "2"}}),
              HasSubstr("recorded already"));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(ask(process.pid(), {{"do", "status"}})["recording"]["on"], true);
  const json stopped = ask(process.pid(), {{"do", "stop"}});
  EXPECT_GT(stopped["events"], 10);
  EXPECT_EQ(stopped["lost"], 0);
  const std::vector<Trace> traces = load_traces(path);
  ASSERT_EQ(traces.size(), 2U);
  EXPECT_GE(traces[1].initial_events, 2U);  // what was live when it began
  EXPECT_GT(traces[1].events.size(), 10U);
  EXPECT_THAT(problem_with(process.pid(), {{"do", "stop"}}), HasSubstr("not being recorded"));

  const std::string dump = folder.file("now.json");
  EXPECT_EQ(ask(process.pid(), {{"do", "dump"}, {"path", dump}})["path"], dump);
  EXPECT_THAT(read_file(dump), HasSubstr("home"));
  EXPECT_THAT(problem_with(process.pid(), {{"do", "dump"}, {"path", folder.file("a.pickle")}}),
              HasSubstr("a.pickle"));
  EXPECT_THAT(problem_with(process.pid(), {{"do", "dump"}, {"path", folder.file("no/a.json")}}),
              HasSubstr("no/a.json"));
}

TEST(Live, SaysWhyItCannotBeAsked) {
  EXPECT_THAT(problem_with(::getpid()), HasSubstr("does not use gapless"));
  RunningProcess process("live:off");
  EXPECT_THAT(problem_with(process.pid()), HasSubstr("live:off"));
  process.end(SIGKILL);
  constexpr int kNobody = 4194303;  // above what Linux numbers processes up to
  EXPECT_THAT(problem_with(kNobody), HasSubstr("there is none"));
  RunningProcess other;
  EXPECT_THAT(problem_with(other.pid(), {{"do", "fly"}}), HasSubstr("cannot do \"fly\""));
  EXPECT_THAT(problem_with(other.pid(), {{"path", "x"}}), HasSubstr("\"do\""));
  EXPECT_THAT(problem_with(other.pid(), json::array()), HasSubstr("no JSON object"));
  ::kill(other.pid(), SIGSTOP);
  ::waitpid(other.pid(), nullptr, WUNTRACED);
  LiveClient client(other.pid());
  EXPECT_THROW((void)client.ask(R"({"do":"status"})", 200), InputError);
  ::kill(other.pid(), SIGCONT);
  EXPECT_THAT(client.ask(R"({"do":"status"})"), HasSubstr("devices"));
}

TEST(Live, AnswersManyWhoAskAtOnce) {
  const RunningProcess process;
  std::vector<std::thread> askers;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) {
        const bool detailed = (i + k) % 2 == 0;
        const json status = ask(process.pid(), {{"do", "status"}, {"details", detailed}});
        if (status["devices"][1].contains("streams") == detailed) ++answered;
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(answered, 200);
}

TEST(Live, ARecordingEndsWithTheProcess) {
  const ScratchFolder folder;
  RunningProcess process("record:" + folder.file("traces"), true);
  ASSERT_TRUE(process.ready());
  const std::string path =
      folder.file("traces/record-" + std::to_string(process.pid()) + ".gtrace");
  process.end(SIGTERM);
  const std::vector<Trace> traces = load_traces(path);
  EXPECT_THAT(traces.at(1).warnings, ::testing::IsEmpty());
  EXPECT_EQ(traces.at(1).operations(), 2U);
  EXPECT_EQ(traces.at(1).sites.size(), 3U);  // the two lines that ask
}

TEST(Live, ADumpIsWrittenAtASignal) {
  const ScratchFolder folder;
  const RunningProcess process("dump_signal:USR1,dump_on_oom:" + folder.file("dumps"));
  ASSERT_TRUE(process.ready());
  const std::string path =
      folder.file("dumps/signal-" + std::to_string(process.pid()) + "-1.dump.json");
  ::kill(process.pid(), SIGUSR1);
  for (int i = 0; i < 500 && ::access(path.c_str(), F_OK) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(read_file(path), HasSubstr("home"));
  EXPECT_EQ(problem_with(process.pid()), "");  // and it answers still
}

// A request that came while a signal was served was answered under the signal's number, and its
// asker waited for ever.
TEST(Live, AnswersWhoAsksWhileADumpIsWritten) {
  const ScratchFolder folder;
  const RunningProcess process("dump_signal:USR2,dump_on_oom:" + folder.file("dumps"));
  ASSERT_TRUE(process.ready());
  for (int i = 0; i < 200; ++i) {
    ::kill(process.pid(), SIGUSR2);
    std::this_thread::sleep_for(std::chrono::microseconds(50 * (i % 20)));
    ASSERT_EQ(problem_with(process.pid()), "") << i;
  }
}

TEST(Live, AForkedChildIsNotItsParent) {
  simgpu::SimDriver gpu({.devices = {{.total_bytes = 64 * MiB}}});
  DriverStatus status = DriverStatus::ok;
  const Options options;
  Allocator allocator(gpu, options, status);
  const Live live(allocator, options);
  EXPECT_EQ(problem_with(::getpid()), "");
  const pid_t child = ::fork();
  if (child == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    ::_exit(0);
  }
  EXPECT_THAT(problem_with(child), HasSubstr("forked"));
  EXPECT_THAT(live_processes(), Not(Contains(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(problem_with(::getpid()), "");
}

}  // namespace
}  // namespace gapless
