#include "simgpu/process/too_few_gpus.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "simgpu/process/gpu_profile.h"
#include "simgpu/process/ranks.h"

namespace gapless::simgpu {
namespace {

// A number beyond this is no GPU's but a mistake.
constexpr int kMostNumbers = ProcessRecord::kDevices;

std::string have_as_many(int count, const std::string& gpus) {
  const std::string number = std::to_string(count);
  const std::string kind = kind_of(gpus);
  return ": have as many as the program uses, " +
         (kind.empty() ? number + " names after --gpu" : "by --gpu " + number + "x" + kind);
}

std::string those_there(int count) {
  return count == 1 ? "there is GPU 0 only"
                    : "there are " + std::to_string(count) + " GPUs, from 0 on";
}

// The largest number in such a list; -1 where it has none.
int largest_in(const std::string& visible) {
  int largest = -1;
  std::stringstream words(visible);
  for (std::string word; std::getline(words, word, ',');) {
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    if (end != word.c_str() && number < kMostNumbers) {
      largest = std::max(largest, static_cast<int>(number));
    }
  }
  return largest;
}

std::string gpus_in_environment() {
  const char* const gpus = std::getenv("SIMGPU_GPUS");
  return gpus == nullptr ? "A100" : gpus;
}

// The command takes the one of the highest number.
void keep(int number, const std::string& text) {
  const char* const folder = std::getenv("SIMGPU_REPORT_DIR");
  if (folder == nullptr || *folder == '\0' || number < 0 || number >= kMostNumbers) return;
  const std::string path = std::string(folder) + "/too_few_gpus." + std::to_string(number);
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

}  // namespace

std::string text_of_absent_gpu(int device, const Config& config, const std::string& gpus,
                               int local_ranks) {
  const auto visible = static_cast<int>(config.gpus.size());
  const auto installed = static_cast<int>(config.installed.size());
  const std::string text =
      "GPU " + std::to_string(device) + " was asked for, and " + those_there(visible);
  if (device < installed) {
    return text + ": CUDA_VISIBLE_DEVICES hides the others of " + std::to_string(installed);
  }
  return text + have_as_many(std::max(device + 1, local_ranks), gpus);
}

std::string text_of_shared_gpu(int installed_index, int rank, int other, int ranks,
                               const Config& config, const std::string& gpus) {
  const std::string text = "ranks " + std::to_string(std::min(rank, other)) + " and " +
                           std::to_string(std::max(rank, other)) + " both have GPU " +
                           std::to_string(installed_index) + ", which NCCL refuses";
  return static_cast<int>(config.installed.size()) < ranks ? text + have_as_many(ranks, gpus)
                                                           : text;
}

std::string text_of_hidden_gpus(const std::string& visible, const Config& config,
                                const std::string& gpus) {
  const int largest = largest_in(visible);
  const auto installed = static_cast<int>(config.installed.size());
  if (largest < installed) return {};  // -1: the program wants none
  return "CUDA_VISIBLE_DEVICES=" + visible + " is set in the program, and " +
         those_there(installed) + have_as_many(largest + 1, gpus);
}

void note_absent_gpu(int device, const Config& config) {
  if (config.gpus.empty()) return;
  keep(device, text_of_absent_gpu(device, config, gpus_in_environment(),
                                  rank_variable("LOCAL_WORLD_SIZE")));
}

void note_hidden_gpus(const Config& config) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return;
  const std::string text = text_of_hidden_gpus(visible, config, gpus_in_environment());
  if (!text.empty()) keep(largest_in(visible), text);
}

void note_shared_gpu(int installed_index, int rank, int other, int ranks, const Config& config) {
  keep(ranks - 1,
       text_of_shared_gpu(installed_index, rank, other, ranks, config, gpus_in_environment()));
}

}  // namespace gapless::simgpu
