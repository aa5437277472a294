// gapless record: all that a running process asks of gapless, to a file.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/live/live_client.h"
#include "tools/commands.h"
#include "tools/say.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct RecordArguments {
  int pid = 0;
  std::string output;
  double seconds = 0;  // 0: until Ctrl-C
  bool no_stacks = false;
  bool detach = false;
  bool stop = false;
  bool as_json = false;
};

volatile std::sig_atomic_t interrupted = 0;

void report(const RecordArguments& arguments, const json& answer) {
  if (arguments.as_json) {
    fmt::print("{}\n", json_text(answer, 1));
    return;
  }
  const auto lost = answer.value("lost", std::uint64_t{0});
  say(stdout, "{} events in {} ({}){}\n", with_commas(answer.value("events", std::uint64_t{0})),
      answer.value("path", ""), format_bytes(answer.value("file_bytes", std::uint64_t{0})),
      lost == 0 ? "" : "; " + with_commas(lost) + " were lost");
}

int stop(LiveClient& client, const RecordArguments& arguments) {
  constexpr std::uint64_t kMostMs = 30000;
  const json answer = json::parse(client.ask(R"({"do":"stop"})", kMostMs));
  report(arguments, answer);
  const std::string failed = answer.value("failed", "");
  if (failed.empty()) return kExitOk;
  throw InputError("process " + std::to_string(client.pid()) + ": the recording ended: " + failed);
}

// Whether it records still; false where it has ended, with its file whole.
bool goes_on(LiveClient& client) {
  try {
    const json recording = json::parse(client.ask(R"({"do":"status"})")).value("recording", json());
    return recording.is_object() && recording.value("on", false);
  } catch (const InputError&) {
    if (std::filesystem::exists("/proc/" + std::to_string(client.pid()))) throw;
    return false;
  }
}

int run(const RecordArguments& arguments) {
  LiveClient client(arguments.pid);
  if (arguments.stop) return stop(client, arguments);
  const std::string path =
      std::filesystem::absolute(arguments.output.empty()
                                    ? "record-" + std::to_string(arguments.pid) + ".gtrace"
                                    : arguments.output)
          .string();
  (void)client.ask(
      json_text(json{{"do", "record"}, {"path", path}, {"stacks", !arguments.no_stacks}}));
  if (arguments.detach) {
    if (arguments.as_json) {
      fmt::print("{}\n", json_text(json{{"path", path}}, 1));
    } else {
      say(stdout, "Process {} is recorded to {}; gapless record --pid {} --stop ends that.\n",
          arguments.pid, path, arguments.pid);
    }
    return kExitOk;
  }
  say(stderr, "gapless: recording process {} to {}{}\n", arguments.pid, path,
      arguments.seconds == 0 ? "; Ctrl-C ends" : "");
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  const Clock::time_point begin = Clock::now();
  Clock::time_point looked = begin;
  while (interrupted == 0) {
    constexpr std::chrono::milliseconds kPause{50};
    std::this_thread::sleep_for(kPause);
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> passed = now - begin;
    if (arguments.seconds != 0 && passed.count() >= arguments.seconds) break;
    if (now - looked < std::chrono::seconds(1)) continue;
    looked = now;
    if (!goes_on(client)) {
      say(stderr, "gapless: process {} ended, or ended the recording: {}\n", arguments.pid, path);
      return kExitOk;
    }
  }
  return stop(client, arguments);
}

}  // namespace

void add_record(CLI::App& app, int& status) {
  auto arguments = std::make_shared<RecordArguments>();
  CLI::App* command = app.add_subcommand(
      "record",
      "Record what a running process asks of gapless: every allocation and free, with where in "
      "the\nprogram, for gapless replay, inspect and view. To record from the start, set "
      "GAPLESS_CONF=record:FOLDER.\nThe file can be read at any time, and after whatever end of "
      "the process.\n"
      "\n"
      "Examples:\n"
      "  gapless record --pid 4711 -o run.gtrace          until Ctrl-C\n"
      "  gapless record --pid 4711 --seconds 60 && gapless view record-4711.gtrace\n"
      "  gapless record --pid 4711 --detach; ...; gapless record --pid 4711 --stop\n"
      "\n"
      "Exit status: 0; 2 where the process cannot be asked or the file not be written.");
  command->add_option("--pid", arguments->pid, "The process (gapless top shows them)")
      ->required()
      ->check(CLI::PositiveNumber);
  auto* const output = command
                           ->add_option("-o,--output", arguments->output,
                                        "A new file; record-PID.gtrace where it is not said")
                           ->option_text("FILE");
  auto* const seconds = command->add_option("--seconds", arguments->seconds, "End after so long")
                            ->check(CLI::Range(0.1, 1e9));
  command->add_flag("--no-stacks", arguments->no_stacks,
                    "Without places in the program: nanoseconds a request, not microseconds");
  auto* const detach =
      command->add_flag("--detach", arguments->detach, "Begin, and do not wait for the end");
  command->add_flag("--stop", arguments->stop, "End a recording")
      ->excludes(output)
      ->excludes(seconds)
      ->excludes(detach);
  detach->excludes(seconds);
  command->add_flag("--json", arguments->as_json, "Say what was recorded as JSON");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
