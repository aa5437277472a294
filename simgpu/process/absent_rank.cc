// A rank that is not to run (ranks.h) ends when its Python begins, before it imports anything.
//
//   torchrun, accelerate launch   the store is the launcher's, and waits for nobody: end
//   deepspeed, env://             rank 0 keeps the store, and waits for all to have come to it:
//                                 python/absent_rank.py does that, in this process's place
//
// Shells and other programs run on: the Python that they start is asked itself.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include "simgpu/process/ranks.h"

extern char** environ;

namespace gapless::simgpu {
namespace {

std::string own_folder_of_rank() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder_of_rank), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

bool is_python(const std::string& program) {
  return program.substr(program.rfind('/') + 1).starts_with("python");
}

// As a rank that comes to the store and goes. Returns where it cannot be started.
void come_to_the_store(char* program) {
  std::string script = own_folder_of_rank() + "/python/absent_rank.py";
  char* words[] = {program, script.data(), nullptr};
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::strncmp(*each, "SIMGPU_RANKS=", 13) != 0) variables.push_back(*each);
  }
  variables.push_back(nullptr);
  execvpe(program, words, variables.data());
}

// The program's words come with the call, as glibc has it.
[[gnu::constructor]] void end_where_absent(int count, char** words, char**) {
  if (std::getenv("SIMGPU_RANKS") == nullptr) return;
  const int rank = rank_variable("RANK");
  if (rank < 0 || rank_variable("WORLD_SIZE") < 0 || rank_variable("LOCAL_RANK") < 0) return;
  if (ranks_from_environment().run(rank) || count < 1 || !is_python(words[0])) return;
  if (const char* const folder = std::getenv("SIMGPU_REPORT_DIR"); folder != nullptr) {
    const std::string path = std::string(folder) + "/absent." + std::to_string(rank);
    if (std::FILE* const file = std::fopen(path.c_str(), "w"); file != nullptr) std::fclose(file);
  }
  const char* const of_agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool kept_by_agent = of_agent != nullptr && std::strcmp(of_agent, "True") == 0;
  if (!kept_by_agent && std::getenv("MASTER_ADDR") != nullptr) come_to_the_store(words[0]);
  _exit(0);
}

}  // namespace
}  // namespace gapless::simgpu
