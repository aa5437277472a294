// gapless view: traces as a page to look at.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/trace/load.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/inspect/moment_report.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/view/page.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ViewArguments {
  std::vector<std::string> inputs;
  std::string output;
  bool open = false;
  bool as_json = false;
};

bool same_file(const std::string& a, const std::string& b) {
  std::error_code neither;  // is there
  return fs::equivalent(a, b, neither);
}

// Where the page goes. Throws InputError where that would lose a recording.
std::string output_for(const ViewArguments& arguments) {
  std::string output = arguments.output;
  if (output == "-") return "/dev/stdout";
  const fs::path page = fs::path(arguments.inputs.front()).filename().replace_extension(".html");
  if (output.empty()) output = page.string();
  if (fs::is_directory(output)) output = (fs::path(output) / page).string();
  for (const std::string& input : arguments.inputs) {
    if (same_file(output, input)) {
      throw InputError("--output: " + output + " is one of the traces, and would be overwritten");
    }
  }
  return output;
}

json to_json(const std::string& file, const Trace& trace, const PageNumbers& numbers) {
  json entry = {{"file", file},
                {"name", trace.name},
                {"source", trace.source},
                {"device", trace.device},
                {"events", numbers.events},
                {"initial_events", numbers.initial_events},
                {"blocks", numbers.blocks},
                {"out_of_memory_events", numbers.ooms},
                {"peak_requested_bytes", numbers.peak_requested_bytes},
                {"peak_allocated_bytes", numbers.peak_allocated_bytes},
                {"peak_allocated_event", numbers.peak_allocated_event},
                {"warnings", trace.warnings}};
  entry["peak_reserved_bytes"] =
      numbers.peak_reserved_bytes ? json(*numbers.peak_reserved_bytes) : json();
  return entry;
}

// What `gapless inspect` says of it, without what takes long, and what is wrong with the recording.
std::vector<std::string> findings_of(Trace trace) {
  std::vector<std::string> findings;
  const std::vector<std::string> warnings = trace.warnings;
  if (!trace.events.empty()) {
    MomentOptions options;
    options.work = CureWork{affordable(trace).least, false};
    for (const Finding& found : report_moment(std::move(trace), {}, options).findings) {
      findings.push_back(found.text);
    }
  }
  for (const std::string& warning : warnings) findings.push_back("Warning: " + warning + ".");
  return findings;
}

// Two files of one name in two folders get the folders' names as well.
void tell_apart(std::vector<PageTrace>& pages, const json& list) {
  std::map<std::string, int> named;
  for (const PageTrace& page : pages) ++named[page.title];
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (named[pages[i].title] == 1) continue;
    const fs::path file = list[i]["file"].get<std::string>();
    pages[i].title = (file.parent_path() / pages[i].title).string();
  }
}

// Starts the browser, which goes on without us. Throws InputError where there is none.
void open_in_browser(const std::string& page) {
  const char* named = std::getenv("BROWSER");
  const std::string browser = named != nullptr && *named != '\0' ? named : "xdg-open";
  const std::string place = fs::absolute(page).string();
  int failed[2];  // closed by a successful exec; else it carries why not
  if (pipe2(failed, O_CLOEXEC) != 0) throw InputError("--open: " + std::string(strerror(errno)));
  const pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);  // so that nobody has to wait for the browser
    setsid();
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) dup2(nowhere, stream);
    execlp(browser.c_str(), browser.c_str(), place.c_str(), nullptr);
    const int cause = errno;
    (void)!write(failed[1], &cause, sizeof cause);
    _exit(127);
  }
  close(failed[1]);
  int cause = child < 0 ? errno : 0;
  if (child > 0) {
    (void)!read(failed[0], &cause, sizeof cause);
    waitpid(child, nullptr, 0);
  }
  close(failed[0]);
  if (cause != 0) {
    throw InputError("--open: cannot start " + browser + ": " + strerror(cause) +
                     "; the page is at " + place + " (BROWSER names another program)");
  }
  say(stderr, "gapless: opened {} with {}\n", place, browser);
}

int run(const ViewArguments& arguments) {
  const std::string output = output_for(arguments);
  const bool to_stdout = is_standard_output(output);
  if (to_stdout && arguments.as_json) throw InputError("--json: the page goes to standard output");
  if (to_stdout && arguments.open) throw InputError("--open: the page goes to standard output");
  std::vector<PageTrace> pages;
  json list = json::array();
  const bool all_good = for_each_file(arguments.inputs, [&](const std::string& input) {
    std::vector<Trace> traces = load_traces(input);
    for (Trace& trace : traces) {
      for (const std::string& warning : trace.warnings) {
        say(stderr, "gapless: {}: warning: {}\n", input, warning);
      }
      pages.push_back(page_trace(trace));
      if (traces.size() > 1) pages.back().title += fmt::format(" GPU {}", trace.device);
      list.push_back(to_json(input, trace, pages.back().numbers));
      pages.back().findings = findings_of(std::move(trace));
      trace = {};  // the next one may be as large
    }
  });
  if (pages.empty()) return kExitBadInput;
  tell_apart(pages, list);
  const std::string page = page_of(pages);
  write_file(output, page);
  if (arguments.as_json) {
    fmt::print("{}\n",
               json_text({{"output", output}, {"output_bytes", page.size()}, {"traces", list}}, 1));
  } else {
    say(to_stdout ? stderr : stdout, "{}: {} trace{}, {}\n", output, pages.size(),
        pages.size() == 1 ? "" : "s", format_bytes(page.size()));
  }
  if (arguments.open) open_in_browser(output);
  return status_of(all_good, true);
}

}  // namespace

void add_view(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ViewArguments>();
  CLI::App* command = app.add_subcommand(
      "view",
      "Make a page to look at traces: memory over time, the address space at any moment, every\n"
      "block, and which calls hold the memory. One file, which needs no network.\n"
      "\n"
      "Examples:\n"
      "  gapless view run.pickle --open             writes run.html here, and opens it\n"
      "  gapless view a.gtrace b.gtrace -o ab.html  runs side by side, up to four\n"
      "  gapless view run.pickle -o - | gzip > run.html.gz\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are in the page).");
  command->add_option("trace", arguments->inputs, "PyTorch snapshots or gapless traces")
      ->required();
  command->add_option("-o,--output", arguments->output,
                      "The file or folder to write (default: the first trace's name with .html,\n"
                      "here); - is standard output");
  command->add_flag("--open", arguments->open, "Open it with $BROWSER, or xdg-open");
  command->add_flag("--json", arguments->as_json, "What was written, as a JSON object");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
