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
// in every child of the command it was started with. GAPLESS=0 turns it off. Where an option cannot
// be understood it throws in torch's place: a program that asks for a limit does not run without.
#include <array>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dirent.h>
#include <dlfcn.h>

#include "allocator/base/terminal_text.h"
#include "simgpu/torch/build_library.h"
#include "simgpu/torch/torch_version.h"

namespace gapless::torch_plugin {
namespace {

constexpr const char* kEnsureDevices = "_ZN3c104cuda28device_count_ensure_non_zeroEv";
constexpr const char* kCheckFail = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_";
constexpr const char* kAdapter = "libgapless_torch-";

void say(const std::string& text) {
  std::fprintf(stderr, "gapless: %s\n", terminal_text(text).c_str());
}

void* symbol_of(const char* library, const char* name) {
  void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : dlsym(loaded, name);
}

// Throws c10::Error, as torch's own function does where there is no GPU: by torch, for an exception
// of this library's own C++ runtime would be none of torch's. For the same reason neither this
// function nor its caller may have anything to destroy when it passes.
[[gnu::noinline, noreturn]] void refuse(const char* why) {
  using CheckFail = void (*)(const char*, const char*, std::uint32_t, const char*);
  const auto fail = reinterpret_cast<CheckFail>(symbol_of("libc10.so", kCheckFail));
  if (fail != nullptr) fail("install", "gapless", 0, why);
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// Where this library lies, without links in the path; empty where that cannot be told.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0) return {};
  std::array<char, PATH_MAX> whole{};
  if (realpath(info.dli_fname, whole.data()) == nullptr) return {};
  const std::string path = whole.data();
  return path.substr(0, path.rfind('/'));
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

// Loads it from beside this library, or as the package has it. Null: said why.
void* adapter_for(const std::string& version, const std::string& package) {
  const auto load = [](const std::string& path) {
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  };
  const std::string folder = own_folder();
  std::string why = "this library's own folder cannot be told";
  if (!folder.empty()) {
    if (void* const adapter = load(folder + "/" + kAdapter + version + ".so")) return adapter;
    why = dlerror();
  }
  if (const std::string built =
          simgpu::build_library("adapter", package, folder, simgpu::loaded_torch_folder());
      !built.empty()) {
    if (void* const adapter = load(built)) return adapter;
    why = dlerror();
  }
  say("no adapter for torch " + version + " (" + why + "); there are: " + versions_in(folder) +
      ". PyTorch's own allocator is used");
  return nullptr;
}

// What stands in the way of going on at all; empty where the program may.
std::string install() {
  const char* const switched = std::getenv("GAPLESS");
  const std::string wanted = switched == nullptr ? "" : switched;
  if (wanted == "0") return {};
  if (!wanted.empty() && wanted != "1") return "GAPLESS: \"" + wanted + "\": expected 1 or 0";
  const std::string version = simgpu::loaded_torch_version();
  if (version.empty()) {
    say("this torch is too old to tell its version: PyTorch's own allocator is used");
    return {};
  }
  const std::string package = simgpu::package_folder(own_folder());
  void* const adapter = adapter_for(version, package);
  if (adapter == nullptr) return {};
  using Install = int (*)(char*, std::size_t);
  const auto function = reinterpret_cast<Install>(dlsym(adapter, "gapless_torch_install"));
  char message[1024] = "gapless_torch_install is not there";
  constexpr int kRefused = 2;
  constexpr int kWrongOptions = 3;
  const int result = function == nullptr ? kRefused : function(message, sizeof message);
  if (result == kWrongOptions) return message;
  if (result == kRefused) {
    say(std::string(message) + ": PyTorch's own allocator is used");
  } else if (result == 0 && message[0] != '\0') {
    say(message);
  }
  using SetPackage = void (*)(const char*);
  if (const auto set = reinterpret_cast<SetPackage>(dlsym(adapter, "gapless_torch_set_package"))) {
    set(package.c_str());
  }
  return {};
}

// install(), once: nullptr, or what to refuse with, for all the process's life.
[[gnu::noinline]] const char* hindrance() {
  static const auto* const text = [] {
    const std::string why = install();
    return why.empty() ? nullptr : new std::string("gapless: " + why);
  }();
  return text == nullptr ? nullptr : text->c_str();
}

}  // namespace
}  // namespace gapless::torch_plugin

/// c10::DeviceIndex c10::cuda::device_count_ensure_non_zero(): torch's name for it, mangled.
extern "C" __attribute__((visibility("default"))) std::int8_t
_ZN3c104cuda28device_count_ensure_non_zeroEv() {  // NOLINT(bugprone-reserved-identifier)
  namespace plugin = gapless::torch_plugin;
  if (const char* const why = plugin::hindrance()) plugin::refuse(why);
  using EnsureDevices = std::int8_t (*)();
  const auto real =
      reinterpret_cast<EnsureDevices>(plugin::symbol_of("libc10_cuda.so", plugin::kEnsureDevices));
  if (real == nullptr) {
    std::fputs("gapless: libc10_cuda.so has no device_count_ensure_non_zero\n", stderr);
    std::abort();  // its caller cannot do without an answer
  }
  return real();
}
