#include "simgpu/process/config.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

// Zero where not set.
double number_of(const char* variable, double most) {
  const std::string text = text_of(variable);
  if (text.empty()) return 0;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(number >= 0 && number <= most)) {
    throw std::invalid_argument(std::string(variable) + ": \"" + text +
                                "\": expected a number from 0 on");
  }
  return number;
}

}  // namespace

Config config_from_environment() {
  Config config;
  std::optional<std::uint64_t> context_bytes;
  if (const std::string context = text_of("SIMGPU_CONTEXT"); !context.empty()) {
    std::string cause;
    context_bytes = read_bytes(context, cause);
    if (!context_bytes) {
      throw std::invalid_argument("SIMGPU_CONTEXT: \"" + context + "\": " + cause);
    }
  }
  const std::string gpus = text_of("SIMGPU_GPUS");
  try {
    config.gpus = parse_gpus(gpus.empty() ? "A100" : gpus, context_bytes);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("SIMGPU_GPUS: " + std::string(error.what()));
  }
  config.installed = config.gpus;
  const auto count = static_cast<int>(config.installed.size());
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; i < count; ++i) config.installed_index.push_back(i);
  if (visible != nullptr) {
    config.installed_index = visible_devices(visible, count);
    config.gpus.clear();
    for (const int index : config.installed_index) {
      config.gpus.push_back(config.installed[static_cast<std::size_t>(index)]);
    }
  }
  config.shared_file = text_of("SIMGPU_SHARED");
  const std::string unknown = text_of("SIMGPU_UNKNOWN");
  const auto* const named = std::find(std::begin(kUnknownNames), std::end(kUnknownNames), unknown);
  if (!unknown.empty() && named == std::end(kUnknownNames)) {
    throw std::invalid_argument("SIMGPU_UNKNOWN: \"" + unknown +
                                "\": expected zeros, noise or most");
  }
  if (!unknown.empty()) config.unknown = static_cast<Unknown>(named - std::begin(kUnknownNames));
  config.skew = number_of("SIMGPU_SKEW", 1000);
  config.seed = static_cast<std::uint64_t>(number_of("SIMGPU_SEED", 0x1p53));
  return config;
}

std::vector<int> visible_devices(const std::string& text, int installed) {
  std::vector<int> found;
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    char* end = nullptr;
    const long index = std::strtol(word.c_str(), &end, 10);
    while (*end == ' ') ++end;
    if (end == word.c_str() || *end != '\0' || index < 0 || index >= installed) break;
    if (std::find(found.begin(), found.end(), index) != found.end()) return {};
    found.push_back(static_cast<int>(index));
  }
  return found;
}

}  // namespace gapless::simgpu
