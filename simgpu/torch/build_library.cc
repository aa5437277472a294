#include "simgpu/torch/build_library.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gapless::simgpu {
namespace {

constexpr const char* kHelper = "/_for_preload.py";

// Whoever may write the file may as well write this library: its owner, or root.
bool is_as_safe_as(const std::string& file, const std::string& library_folder) {
  struct stat facts {};
  struct stat own {};
  return stat(file.c_str(), &facts) == 0 && stat(library_folder.c_str(), &own) == 0 &&
         (facts.st_uid == own.st_uid || facts.st_uid == 0) && (facts.st_mode & S_IWOTH) == 0;
}

// This process's own interpreter, where it is one; else the first in PATH, where entries that
// depend on the current folder do not count. Empty where there is none.
std::string interpreter() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  std::string self(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (self.find("/python", self.rfind('/')) != std::string::npos) return self;
  const char* const variable = std::getenv("PATH");
  std::string folders = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  while (!folders.empty()) {
    const std::size_t colon = std::min(folders.find(':'), folders.size());
    std::string candidate = folders.substr(0, colon) + "/python3";
    folders.erase(0, colon + 1);
    if (candidate.front() == '/' && candidate != "/python3" &&
        access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return {};
}

// Ours, but that the compiler is not to have this library preloaded, nor a simulated GPU's.
std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto is = [&](const char* name) { return text.rfind(name, 0) == 0; };
    if (!is("LD_PRELOAD=") && !is("GAPLESS=")) variables.push_back(text);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> made;
  made.reserve(words.size() + 1);
  for (std::string& word : words) made.push_back(word.data());
  made.push_back(nullptr);
  return made;
}

// What a program prints, to its first line end. The program may ignore its children's ends: what
// is printed tells, not the status.
std::string first_line_of(std::vector<std::string> words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> variables = environment();
  pid_t child = 0;
  const int failed = posix_spawn(&child, words.front().c_str(), &actions, nullptr,
                                 pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  if (failed == 0) {
    std::array<char, 4096> buffer{};
    ssize_t got = 0;
    while ((got = read(ends[0], buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR)) {
      if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    (void)waitpid(child, nullptr, 0);
  }
  close(ends[0]);
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string package_folder(const std::string& own_folder) {
  if (own_folder.empty()) return {};
  std::vector<std::string> places = {own_folder + "/..",
                                     own_folder + "/../../../torch_plugin/python/gapless"};
  const std::string elsewhere = own_folder + "/package_folder";
  std::ifstream file;
  if (is_as_safe_as(elsewhere, own_folder)) file.open(elsewhere);
  if (std::string place; std::getline(file, place)) places.push_back(place);
  for (const std::string& folder : places) {
    if (is_as_safe_as(folder + kHelper, own_folder)) return folder;
  }
  return {};
}

std::string build_library(const char* which, const std::string& package,
                          const std::string& own_folder, const std::string& torch_folder) {
  const std::string python = interpreter();
  if (package.empty() || torch_folder.empty() || python.empty()) return {};
  return first_line_of({python, "-I", package + kHelper, torch_folder, own_folder, which});
}

}  // namespace gapless::simgpu
