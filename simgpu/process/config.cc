#include "simgpu/process/config.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

}  // namespace

Config config_from_environment() {
  Config config;
  const std::string gpus = text_of("SIMGPU_GPUS");
  try {
    config.gpus = parse_gpus(gpus.empty() ? "A100" : gpus);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("SIMGPU_GPUS: " + std::string(error.what()));
  }
  if (const std::string context = text_of("SIMGPU_CONTEXT"); !context.empty()) {
    const auto bytes = parse_bytes(context);
    if (!bytes) throw std::invalid_argument("SIMGPU_CONTEXT: \"" + context + "\" is no size");
    for (GpuProfile& gpu : config.gpus) {
      if (*bytes >= gpu.total_bytes) {
        throw std::invalid_argument("SIMGPU_CONTEXT: " + format_bytes(*bytes) +
                                    " is more than the GPU has");
      }
      gpu.context_bytes = *bytes;
    }
  }
  return config;
}

}  // namespace gapless::simgpu
