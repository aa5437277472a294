#include "torch_plugin/preload/build_adapter.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gapless::torch_plugin {
namespace {

// The folder that the package lies in: site-packages, or the one of the source tree.
std::string package_parent(const std::string& own_folder) {
  for (const char* const parent : {"/../..", "/../../../torch_plugin/python"}) {
    std::string folder = own_folder + parent;
    if (access((folder + "/gapless/_build.py").c_str(), R_OK) == 0) return folder;
  }
  return {};
}

// This process's own interpreter, where it is one.
std::string interpreter() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string self(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return self.find("/python", self.rfind('/')) != std::string::npos ? self : "python3";
}

// Ours, but that the compiler is not to have this library preloaded, nor a simulated GPU's.
std::vector<std::string> environment_with(const std::string& python_path) {
  std::vector<std::string> variables = {"PYTHONPATH=" + python_path};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto is = [&](const char* name) { return text.rfind(name, 0) == 0; };
    if (!is("PYTHONPATH=") && !is("LD_PRELOAD=") && !is("GAPLESS=")) variables.push_back(text);
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

}  // namespace

bool build_adapter(const std::string& own_folder, const std::string& torch_folder) {
  const std::string parent = package_parent(own_folder);
  if (parent.empty() || torch_folder.empty()) return false;
  std::vector<std::string> words = {interpreter(), "-m",     "gapless",
                                    "build",       "--once", torch_folder};
  std::vector<std::string> variables = environment_with(parent);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // It prints the adapter's path, which is not for the program's own output.
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, words.front().c_str(), &actions, nullptr,
                                  pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  int status = 0;
  // A program that ignores its children's ends gets no status: what was built will tell.
  if (waitpid(child, &status, 0) != child) return true;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace gapless::torch_plugin
