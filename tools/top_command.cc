// gapless top: running processes and the GPU memory they have.
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/live/live_client.h"
#include "tools/commands.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/top/prometheus.h"
#include "tools/top/top_screen.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;

struct TopArguments {
  std::vector<int> pids;
  double interval_s = 1;
  bool once = false;
  bool as_json = false;
  std::string prometheus;
};

volatile std::sig_atomic_t stopped = 0;

std::vector<ProcessState> look(const TopArguments& arguments) {
  std::vector<ProcessState> processes;
  for (const int pid : arguments.pids.empty() ? live_processes() : arguments.pids) {
    processes.push_back(state_of_process(pid));
  }
  return processes;
}

json json_of(const std::vector<ProcessState>& processes, const TopScreen& screen) {
  json list = json::array();
  for (const ProcessState& process : processes) {
    json one = process.answer.is_object() ? process.answer : json::object();
    one["pid"] = process.pid;
    one["command"] = process.command;
    one["problem"] = process.problem.empty() ? json(nullptr) : json(process.problem);
    if (one.contains("devices")) {
      for (json& device : one["devices"]) {
        const auto rate = screen.rate_of(process.pid, device.value("device", 0));
        device["allocations_per_second"] = rate ? json(*rate) : json(nullptr);
      }
    }
    list.push_back(std::move(one));
  }
  return {{"processes", std::move(list)}};
}

constexpr const char* kNobody =
    "No process of yours uses gapless on a GPU now (start one with `gapless run -- python "
    "train.py`). Other users' processes are seen by root.";

// Sleeps that long, or until a signal says to stop.
void pause_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + Seconds(seconds);
  while (stopped == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min<Seconds>(Seconds(0.05), Seconds(seconds)));
  }
}

int once(const TopArguments& arguments) {
  TopScreen screen;
  // Rates take two looks.
  constexpr double kBetweenS = 0.25;
  std::vector<ProcessState> processes = look(arguments);
  (void)screen.text(processes, 0, false);
  if (!processes.empty()) {
    pause_for(kBetweenS);
    processes = look(arguments);
  }
  const std::string text = screen.text(processes, terminal_columns(STDOUT_FILENO), colour_wanted());
  if (!arguments.prometheus.empty()) write_file(arguments.prometheus, prometheus_text(processes));
  if (arguments.as_json) {
    fmt::print("{}\n", json_text(json_of(processes, screen), 1));
  } else if (arguments.prometheus.empty()) {
    fmt::print("{}", processes.empty() ? paragraph(kNobody) : text);
  }
  for (const ProcessState& process : processes) {
    if (!process.problem.empty() && !arguments.pids.empty()) return kExitBadInput;
  }
  return kExitOk;
}

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  (void)::localtime_r(&now, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

int watch(const TopArguments& arguments) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool quiet = !arguments.prometheus.empty();
  std::signal(SIGINT, [](int) { stopped = 1; });
  std::signal(SIGTERM, [](int) { stopped = 1; });
  TopScreen screen;
  if (terminal && !quiet && !arguments.as_json) fmt::print("\x1b[?1049h\x1b[?25l");
  std::string failed;
  while (stopped == 0) {
    const std::vector<ProcessState> processes = look(arguments);
    std::string text = screen.text(processes, terminal_columns(STDOUT_FILENO), colour_wanted());
    if (quiet) {
      try {
        write_file(arguments.prometheus, prometheus_text(processes));
      } catch (const InputError& error) {
        failed = error.what();
        break;
      }
    }
    if (arguments.as_json) {
      fmt::print("{}\n", json_text(json_of(processes, screen)));
    } else if (!quiet) {
      if (processes.empty()) text = paragraph(kNobody);
      const std::string head = fmt::format("gapless top, {}, every {:g} s; Ctrl-C ends\n\n",
                                           clock_text(), arguments.interval_s);
      fmt::print("{}{}{}", terminal ? "\x1b[H\x1b[2J" : "", head, text);
    }
    std::fflush(stdout);
    pause_for(arguments.interval_s);
  }
  if (terminal && !quiet && !arguments.as_json) fmt::print("\x1b[?25h\x1b[?1049l");
  if (!failed.empty()) throw InputError(failed);
  return kExitOk;
}

}  // namespace

void add_top(CLI::App& app, int& status) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* command = app.add_subcommand(
      "top",
      "The processes that run with gapless and the GPU memory they have, as it changes: allocated "
      "and\nreserved, with history, by stream and pool, and of what is recorded the largest call "
      "sites.\nProcesses in containers are seen, too. Costs them nothing while nobody looks.\n"
      "\n"
      "Examples:\n"
      "  gapless top                           all of yours, every second\n"
      "  gapless top 4711 --interval 5         one\n"
      "  gapless top --once --json             for scripts\n"
      "  gapless top --prometheus /var/lib/node_exporter/gapless.prom --interval 15\n"
      "\n"
      "Exit status: 0; 2 where a process that was named cannot be asked, or the file not "
      "written.");
  command->add_option("PID", arguments->pids, "Only these processes")->check(CLI::PositiveNumber);
  command->add_option("-i,--interval", arguments->interval_s, "Seconds from one look to the next")
      ->check(CLI::Range(0.05, 86400.0))
      ->capture_default_str();
  command->add_flag("--once", arguments->once, "Look once and end");
  command->add_flag("--json", arguments->as_json, "As JSON; without --once a line for each look");
  command
      ->add_option("--prometheus", arguments->prometheus,
                   "Write to this file in Prometheus' text format, and nothing to the terminal")
      ->option_text("FILE");
  command->callback(
      [arguments, &status] { status = arguments->once ? once(*arguments) : watch(*arguments); });
}

}  // namespace gapless::tools
