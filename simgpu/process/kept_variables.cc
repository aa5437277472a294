#include "simgpu/process/kept_variables.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

namespace gapless::simgpu {
namespace {

constexpr std::string_view kPreload = "LD_PRELOAD=";
constexpr std::string_view kOutside = "SIMGPU_OUTSIDE=";

// Those that this process was started with, where a command put it on simulated GPUs; the program
// may take them from its own environment.
struct Kept {
  static constexpr std::size_t kMost = 64;
  std::array<char*, kMost> texts{};
  std::size_t count = 0;
};
Kept kept;

bool is_kept(std::string_view text) {
  constexpr std::array<std::string_view, 6> kNames = {"SIMGPU_",
                                                      kPreload,
                                                      "GAPLESS_CONF=",
                                                      "TRITON_LIBCUDA_PATH=",
                                                      "TORCHINDUCTOR_CACHE_DIR=",
                                                      "TRITON_CACHE_DIR="};
  for (const std::string_view name : kNames) {
    if (text.starts_with(name)) return true;
  }
  return false;
}

[[gnu::constructor]] void keep() {
  if (std::getenv("SIMGPU_REPORT_DIR") == nullptr || std::getenv("LD_PRELOAD") == nullptr) return;
  for (char** text = environ; *text != nullptr && kept.count < Kept::kMost; ++text) {
    if (is_kept(*text)) kept.texts[kept.count++] = strdup(*text);
  }
}

// "NAME=" of a variable.
std::string_view name_of(std::string_view text) { return text.substr(0, text.find('=') + 1); }

const char* find(char* const* all, std::string_view name) {
  for (; *all != nullptr; ++all) {
    if (std::string_view(*all).starts_with(name)) return *all;
  }
  return nullptr;
}

}  // namespace

KeptVariables::KeptVariables(char* const* given) : given_(given) {
  if (kept.count == 0 || given == nullptr || find(given, kOutside) != nullptr) return;
  std::size_t count = 0;
  for (char* const* text = given; *text != nullptr; ++text) {
    if (count + Kept::kMost + 1 >= kMost) return;
    all_[count++] = *text;
  }
  for (std::size_t i = 0; i < kept.count; ++i) {
    char* const mine = kept.texts[i];
    const std::string_view name = name_of(mine);
    const char* const theirs = find(given, name);
    if (theirs == nullptr) {
      all_[count++] = mine;
      continue;
    }
    const std::string_view value = std::string_view(mine).substr(kPreload.size());
    if (name != kPreload || std::string_view(theirs).find(value) != std::string_view::npos)
      continue;
    const std::size_t length = std::strlen(mine);
    const std::size_t more = std::strlen(theirs) - kPreload.size();
    if (length + 1 + more + 1 > kLongest) continue;
    std::memcpy(preload_.data(), mine, length);
    preload_[length] = ':';
    std::memcpy(preload_.data() + length + 1, theirs + kPreload.size(), more + 1);
    for (std::size_t at = 0; at < count; ++at) {
      if (all_[at] == theirs) all_[at] = preload_.data();
    }
  }
  all_[count] = nullptr;
  given_ = all_.data();
}

}  // namespace gapless::simgpu
