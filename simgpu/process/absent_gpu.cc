#include "simgpu/process/absent_gpu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "simgpu/process/ranks.h"

namespace gapless::simgpu {
namespace {

// A number beyond this is no GPU's but a mistake.
constexpr int kMostNumbers = ProcessRecord::kDevices;

// "2xA100" -> "A100"; nothing where GPUs differ.
std::string one_of(const std::string& gpus) {
  if (gpus.find(',') != std::string::npos) return {};
  const std::size_t digits = gpus.find_first_not_of("0123456789");
  const bool has_count = digits != 0 && digits != std::string::npos && gpus[digits] == 'x';
  return has_count ? gpus.substr(digits + 1) : gpus;
}

}  // namespace

std::string text_of_absent_gpu(int device, const Config& config, const std::string& gpus,
                               int local_ranks) {
  const auto visible = static_cast<int>(config.gpus.size());
  const auto installed = static_cast<int>(config.installed.size());
  std::string text = "GPU " + std::to_string(device) + " was asked for, and there ";
  text += visible == 1 ? "is GPU 0 only" : "are " + std::to_string(visible) + " GPUs, from 0 on";
  if (device < installed) {
    return text + ": CUDA_VISIBLE_DEVICES hides the others of " + std::to_string(installed);
  }
  const std::string count = std::to_string(std::max(device + 1, local_ranks));
  const std::string kind = one_of(gpus);
  return text + ": have as many as the program uses, " +
         (kind.empty() ? count + " names after --gpu" : "by --gpu " + count + "x" + kind);
}

void note_absent_gpu(int device, const Config& config) {
  const char* const folder = std::getenv("SIMGPU_REPORT_DIR");
  if (folder == nullptr || *folder == '\0' || config.gpus.empty()) return;
  if (device < 0 || device >= kMostNumbers) return;
  const std::string path = std::string(folder) + "/absent_gpu." + std::to_string(device);
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  const char* const gpus = std::getenv("SIMGPU_GPUS");
  std::fputs(text_of_absent_gpu(device, config, gpus == nullptr ? "A100" : gpus,
                                rank_variable("LOCAL_WORLD_SIZE"))
                 .c_str(),
             file);
  std::fclose(file);
}

}  // namespace gapless::simgpu
