// gapless options: the table of options, for people and for docs/options.md.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/json_text.h"
#include "allocator/device/options.h"
#include "tools/commands.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

const char* type_name(OptionType type) {
  switch (type) {
    case OptionType::bytes:
      return "size";
    case OptionType::percent:
      return "percent";
    case OptionType::flag:
      return "flag";
    case OptionType::count:
      return "count";
    case OptionType::folder:
      return "folder";
    case OptionType::streams_choice:
    case OptionType::share_choice:
    case OptionType::signal_choice:
    case OptionType::checks_choice:
    case OptionType::fence_choice:
      return "choice";
  }
  return "?";
}

int run(bool as_json, bool as_markdown) {
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const OptionFacts& facts : option_table()) {
      list.push_back({{"name", facts.name},
                      {"type", type_name(facts.type)},
                      {"default", facts.default_text},
                      {"help", facts.help}});
    }
    fmt::print("{}\n", json_text(list, 1));
    return kExitOk;
  }
  if (as_markdown) {
    fmt::print(
        "# Options\n\n"
        "Set them with `GAPLESS_CONF=\"key:value,key:value\"`, in `gapless_create`, or with "
        "`--conf` of the tools.\nAn option that cannot be understood stops the program before it "
        "starts, or with its first use of CUDA.\n"
        "What was an option in earlier versions only (`slack`, `frames_from`, "
        "`frames_per_request`) is "
        "passed over.\n"
        "This page is written by `gapless options --markdown`.\n\n"
        "| key | type | default | what it does |\n|---|---|---|---|\n");
    for (const OptionFacts& facts : option_table()) {
      fmt::print("| `{}` | {} | {} | {} |\n", facts.name, type_name(facts.type), facts.default_text,
                 facts.help);
    }
    return kExitOk;
  }
  using Align = Table::Align;
  Table table({{"key", Align::left},
               {"type", Align::left},
               {"default", Align::left},
               {"what it does", Align::left, true}});
  for (const OptionFacts& facts : option_table()) {
    table.add({{std::string(facts.name)},
               {type_name(facts.type)},
               {facts.default_text},
               {std::string(facts.help)}});
  }
  fmt::print("{}", table.text(colour_wanted()));
  return kExitOk;
}

}  // namespace

void add_options(CLI::App& app, int& status) {
  auto as_json = std::make_shared<bool>(false);
  auto as_markdown = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("options",
                         "List the options of the allocator, for GAPLESS_CONF and --conf.\n"
                         "\n"
                         "Examples:\n"
                         "  GAPLESS_CONF=limit:14GiB,page_size:4MiB my_program\n"
                         "  gapless options --json\n"
                         "\n"
                         "Exit status: 0 done; 2 a wrong command line.");
  command->add_flag("--json", *as_json, "As JSON");
  command->add_flag("--markdown", *as_markdown, "As docs/options.md");
  command->callback([as_json, as_markdown, &status] { status = run(*as_json, *as_markdown); });
}

}  // namespace gapless::tools
