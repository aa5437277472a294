#include "tools/inputs.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/device/options.h"
#include "allocator/trace/load.h"
#include "bench/peers/peer.h"
#include "bench/peers/torch_settings.h"
#include "bench/replay/in_torch.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/say.h"

namespace gapless::tools {

bool for_each_file(const std::vector<std::string>& paths,
                   const std::function<void(const std::string&)>& work) {
  bool all_good = true;
  Progress progress;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    progress.show(paths[i], static_cast<double>(i) / static_cast<double>(paths.size()));
    try {
      work(paths[i]);
    } catch (const InputError& error) {
      progress.clear();
      std::fflush(stdout);
      say(stderr, "gapless: {}\n", error.what());
      if (paths[i].ends_with(".py")) {
        say(stderr, "gapless: for a program: gapless fits -- python {}\n", paths[i]);
      }
      all_good = false;
    }
  }
  return all_good;
}

LoadedTraces load_all(const std::vector<std::string>& paths) {
  LoadedTraces loaded;
  loaded.all_good = for_each_file(paths, [&](const std::string& path) {
    for (Trace& trace : load_traces(path)) loaded.traces.push_back(std::move(trace));
  });
  for (const Trace& trace : loaded.traces) {
    for (const std::string& warning : trace.warnings) {
      say(stderr, "gapless: {}: warning: {}\n", trace.name, warning);
    }
  }
  return loaded;
}

int status_of(bool all_files_good, bool all_fit) {
  return !all_files_good ? kExitBadInput : all_fit ? kExitOk : kExitNoFit;
}

std::vector<std::string> allocators_of(const std::string& list) {
  std::vector<std::string> known = bench::peer_names();
  for (std::string& name : bench::torch_allocator_names()) known.push_back(std::move(name));
  std::vector<std::string> chosen;
  std::stringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const std::string plain =
        item.starts_with("torch-") ? item.substr(std::string("torch-").size()) : item;
    const bool set = item.find('+') != std::string::npos && bench::torch_settings(plain);
    if (!set && std::find(known.begin(), known.end(), item) == known.end()) {
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      throw InputError("--allocator: there is no allocator \"" + item + "\"; there are " + names);
    }
    chosen.push_back(item);
  }
  if (chosen.empty()) throw InputError("--allocator: the list is empty");
  return chosen;
}

std::uint64_t bytes_of(const std::string& text, const std::string& option) {
  if (text.empty()) return 0;
  std::string cause;
  const auto bytes = read_bytes(text, cause);
  if (!bytes) throw InputError(option + ": \"" + text + "\": " + cause);
  return *bytes;
}

CLI::Validator whole_number() {
  return {[](std::string& text) {
            return text.starts_with('-') ? text + " is less than 0" : std::string();
          },
          ""};
}

void check_settings(const std::string& settings) {
  (void)read_options(settings, "--conf");
  for (const std::string& name : passed_over(settings)) {
    say(stderr, "gapless: --conf: {} is no option any more; it changes nothing\n", name);
  }
}

void check_writable(const std::string& file, const char* option) {
  const std::string cause = file.empty() ? "" : cannot_write(file);
  if (!cause.empty()) throw InputError(file, option, "cannot be written: " + cause);
}

}  // namespace gapless::tools
