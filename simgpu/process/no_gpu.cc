#include "simgpu/process/no_gpu.h"

#include <cstdio>
#include <cstdlib>

namespace gapless::simgpu {

void note_why_no_gpu(const std::string& why) {
  const char* const folder = std::getenv("SIMGPU_REPORT_DIR");
  if (folder == nullptr || *folder == '\0') return;
  std::FILE* const file = std::fopen((std::string(folder) + "/no_gpu").c_str(), "w");
  if (file == nullptr) return;
  std::fputs(why.c_str(), file);
  std::fclose(file);
}

}  // namespace gapless::simgpu
