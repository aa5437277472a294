// gapless dump: what lies where in a running process's GPU memory, to a file.
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/json_text.h"
#include "allocator/live/live_client.h"
#include "tools/commands.h"
#include "tools/say.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct DumpArguments {
  int pid = 0;
  std::string output;
  bool as_json = false;
};

int run(const DumpArguments& arguments) {
  LiveClient client(arguments.pid);
  const std::string path =
      std::filesystem::absolute(arguments.output.empty()
                                    ? "dump-" + std::to_string(arguments.pid) + ".json"
                                    : arguments.output)
          .string();
  constexpr std::uint64_t kMostMs = 60000;
  const json answer =
      json::parse(client.ask(json_text(json{{"do", "dump"}, {"path", path}}), kMostMs));
  if (arguments.as_json) {
    fmt::print("{}\n", json_text(answer, 1));
  } else {
    say(stdout, "wrote {} (gapless inspect reads it)\n", answer.value("path", ""));
  }
  return kExitOk;
}

}  // namespace

void add_dump(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DumpArguments>();
  CLI::App* command = app.add_subcommand(
      "dump",
      "Write what lies where in the GPU memory of a running process. A file that ends with "
      ".pickle is\nPyTorch's snapshot, for its viewers and gapless view; any other a dump for "
      "gapless inspect.\n"
      "\n"
      "Examples:\n"
      "  gapless dump --pid 4711 && gapless inspect dump-4711.json\n"
      "  gapless dump --pid 4711 -o now.pickle\n"
      "\n"
      "Exit status: 0; 2 where the process cannot be asked or the file not be written.");
  command->add_option("--pid", arguments->pid, "The process (gapless top shows them)")
      ->required()
      ->check(CLI::PositiveNumber);
  command->add_option("-o,--output", arguments->output, "dump-PID.json where it is not said")
      ->option_text("FILE");
  command->add_flag("--json", arguments->as_json, "Say where it is as JSON");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
