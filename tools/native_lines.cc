#include "tools/native_lines.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sys/wait.h>

#include "allocator/base/demangled.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/report/memory_kinds.h"
#include "allocator/trace/call_stacks.h"
#include "tools/launch.h"
#include "tools/temporary_folder.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using simgpu::Holder;
using simgpu::MemorySite;
using Frame = MemorySite::NativeFrame;

// Whether debug information is worth looking for: a program's own files, not the system's, and none
// of torch's or what it is built on.
bool is_own(const std::string& module) {
  const std::string name = fs::path(module).filename();
  for (const char* const system : {"/lib/", "/lib64/", "/usr/lib/"}) {
    if (module.starts_with(system)) return false;
  }
  for (const char* const library : {"libtorch", "libc10", "libcu", "libnv", "libsimgpu",
                                    "libgapless", "libgomp", "libstdc++", "libgcc_s"}) {
    if (name.starts_with(library)) return false;
  }
  return module.find("/torch/lib/") == std::string::npos;
}

// As seen from the folder that the program was started in, where that is shorter.
std::string short_path(const std::string& line) {
  if (!line.starts_with("/")) return line;
  std::string seen = fs::path(line).lexically_relative(fs::current_path());
  return seen.size() < line.size() && !seen.starts_with("../../..") ? seen : line;
}

// "train.cpp:42 Net::forward()" of each call that lies at an address, the innermost first: what was
// inlined has an address with its caller.
using Lines = std::map<std::uint64_t, std::vector<std::string>>;

void read_lines(const std::string& output, Lines& lines) {
  std::vector<std::string>* at = nullptr;
  std::string function;
  std::size_t begin = 0;
  while (begin < output.size()) {
    const std::size_t end = std::min(output.find('\n', begin), output.size());
    std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("0x")) {
      at = &lines[std::strtoull(line.c_str(), nullptr, 16)];
      function.clear();
    } else if (at != nullptr && function.empty()) {
      function = line;
    } else if (at != nullptr) {
      line = line.substr(0, line.find(" (discriminator"));
      if (line.ends_with(":?")) line = line.substr(0, line.size() - 1) + "0";
      if (function != "??") at->push_back(short_path(line) + " " + function);
      function.clear();
    }
  }
}

Lines lines_at(const std::string& module, const std::set<std::uint64_t>& offsets) {
  constexpr std::size_t kAtOnce = 1000;
  Lines lines;
  const TemporaryFolder folder;
  for (auto next = offsets.begin(); next != offsets.end();) {
    std::vector<std::string> words = {"addr2line", "-a", "-f", "-C", "-i", "-e", module};
    for (std::size_t i = 0; i < kAtOnce && next != offsets.end(); ++i, ++next) {
      words.push_back(fmt::format("{:#x}", *next));
    }
    try {
      const fs::path output = folder.path() / "lines";
      int status = 0;
      waitpid(start_program(words, {}, output), &status, 0);
      read_lines(read_file(output), lines);
    } catch (const InputError&) {  // it is not installed
      return lines;
    }
  }
  return lines;
}

// Where "train.cpp:42" ends in "train.cpp:42 Net::forward"; 0 where the line is not known.
std::size_t end_of_line(const std::string& text) {
  for (std::size_t at = text.find(':'); at != std::string::npos; at = text.find(':', at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end == std::string::npos || end == at + 1 || text[end] != ' ') continue;
    return text.substr(at + 1, end - at - 1) == "0" ? 0 : end;
  }
  return 0;
}

Holder holder_of(const std::vector<std::string>& frames) {
  switch (asked_by(frames)) {
    case Asked::module_move:
      return Holder::parameters;
    case Asked::forward:
      return Holder::activations;
    case Asked::loss:
      return Holder::loss;
    case Asked::backward:
      return Holder::backward;
    case Asked::accumulate:
      return Holder::gradients;
    case Asked::optimizer:
      return Holder::optimizer_step;
    case Asked::workspace:
    case Asked::unknown:
      break;
  }
  return Holder::unknown;
}

}  // namespace

void tell_native_lines(std::vector<MemorySite>& sites) {
  std::map<std::string, std::set<std::uint64_t>> wanted;
  for (const MemorySite& site : sites) {
    for (const Frame& frame : site.native) {
      if (is_own(frame.module)) wanted[frame.module].insert(frame.offset);
    }
  }
  std::map<std::string, Lines> known;
  for (const auto& [module, offsets] : wanted) known[module] = lines_at(module, offsets);
  for (MemorySite& site : sites) {
    if (site.native.empty()) continue;
    std::vector<std::string> frames;
    for (const Frame& frame : site.native) {
      const auto module = known.find(frame.module);
      const std::vector<std::string>* lines = nullptr;
      if (module != known.end()) {
        const auto found = module->second.find(frame.offset);
        if (found != module->second.end() && !found->second.empty()) lines = &found->second;
      }
      if (lines != nullptr) {
        frames.insert(frames.end(), lines->begin(), lines->end());
      } else {
        const std::string name = demangled(frame.symbol.c_str());
        // A C function of torch's or the system's says nothing, and would pass for the program's.
        if (module == known.end() && name.find("::") == std::string::npos) continue;
        frames.push_back(fs::path(frame.module).filename().string() + ":0 " + name);
      }
    }
    const std::vector<std::string_view> views(frames.begin(), frames.end());
    site.line = call_site(views);
    if (const std::size_t end = end_of_line(site.line); end != 0) {  // as of Python, no function
      site.line.resize(end);
    }
    site.called = called_there(views);
    site.at = holder_of(frames);
  }
}

}  // namespace gapless::tools
