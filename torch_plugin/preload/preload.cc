// libgapless_preload.so: gapless for any program that uses PyTorch, by LD_PRELOAD.
//
//   LD_PRELOAD=libgapless_preload.so python train.py
//
//   torch.zeros(1, device="cuda")
//     torch calls c10::cuda::device_count_ensure_non_zero(), right before it makes its allocator
//     this library has that name too, and comes first: it loads libgapless_torch-VERSION.so, which
//     lies beside it or in the user's cache or is built now, and installs it; then it calls torch's
//
// It knows nothing of torch but that name, and does nothing in programs that never call it: it is
// in every child of the command it was started with. GAPLESS=0 turns it off.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include "allocator/base/terminal_text.h"
#include "torch_plugin/preload/build_adapter.h"
#include "torch_plugin/preload/torch_version.h"

namespace gapless::torch_plugin {
namespace {

constexpr const char* kEnsureDevices = "_ZN3c104cuda28device_count_ensure_non_zeroEv";
constexpr const char* kAdapter = "libgapless_torch-";

void say(const std::string& text) {
  std::fprintf(stderr, "gapless: %s\n", terminal_text(text).c_str());
}

std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Where adapters that were built on first use are (the Python package's _build.py).
std::string cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/gapless";
  const char* const home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/gapless";
}

// Whether the first file was written before the second; also where it is not there.
bool is_older(const std::string& path, const std::string& than) {
  struct stat file {};
  struct stat other {};
  if (stat(path.c_str(), &file) != 0) return true;
  return stat(than.c_str(), &other) == 0 && file.st_mtime < other.st_mtime;
}

// "2.11, 2.15": the versions that adapters lie beside this library for.
std::string versions_in(const std::string& folder) {
  std::string versions;
  DIR* const directory = opendir(folder.c_str());
  if (directory == nullptr) return "none";
  while (const dirent* const entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name.rfind(kAdapter, 0) != 0) continue;
    const std::size_t begin = std::strlen(kAdapter);
    versions += (versions.empty() ? "" : ", ") + name.substr(begin, name.rfind(".so") - begin);
  }
  closedir(directory);
  return versions.empty() ? "none" : versions;
}

// Loads it; builds it first where none is there that is as new as this library. Null: said why.
void* adapter_for(const std::string& version) {
  const auto load = [](const std::string& path) {
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  };
  const std::string folder = own_folder();
  const std::string name = "/" + (kAdapter + version) + ".so";
  if (void* const adapter = load(folder + name)) return adapter;
  std::string why = dlerror();
  const std::string cached = cache_folder() + name;
  if (!is_older(cached, folder + "/libgapless_preload.so")) {
    if (void* const adapter = load(cached)) return adapter;
  }
  if (build_adapter(folder, loaded_torch_folder())) {
    if (void* const adapter = load(cached)) return adapter;
    why = dlerror();
  }
  say("no adapter for torch " + version + " (" + why + "); there are: " + versions_in(folder) +
      ". PyTorch's own allocator is used");
  return nullptr;
}

void install() {
  const char* const switched = std::getenv("GAPLESS");
  if (switched != nullptr && std::strcmp(switched, "0") == 0) return;
  const std::string version = loaded_torch_version();
  if (version.empty()) {
    say("this torch is too old to tell its version: PyTorch's own allocator is used");
    return;
  }
  void* const adapter = adapter_for(version);
  if (adapter == nullptr) return;
  using Install = int (*)(char*, std::size_t);
  const auto function = reinterpret_cast<Install>(dlsym(adapter, "gapless_torch_install"));
  char message[1024] = "";
  const int result = function == nullptr ? 2 : function(message, sizeof message);
  constexpr int kRefused = 2;
  if (result == kRefused) {
    say(std::string(message) + ": PyTorch's own allocator is used");
  } else if (result == 0 && message[0] != '\0') {
    say(message);
  }
}

}  // namespace
}  // namespace gapless::torch_plugin

/// c10::DeviceIndex c10::cuda::device_count_ensure_non_zero(): torch's name for it, mangled.
extern "C" __attribute__((visibility("default"))) std::int8_t
_ZN3c104cuda28device_count_ensure_non_zeroEv() {  // NOLINT(bugprone-reserved-identifier)
  static std::once_flag once;
  std::call_once(once, gapless::torch_plugin::install);
  using EnsureDevices = std::int8_t (*)();
  void* const torch = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  const auto real = reinterpret_cast<EnsureDevices>(
      torch == nullptr ? nullptr : dlsym(torch, gapless::torch_plugin::kEnsureDevices));
  if (real == nullptr) {
    gapless::torch_plugin::say("libc10_cuda.so has no device_count_ensure_non_zero");
    std::abort();  // its caller cannot do without an answer
  }
  return real();
}
