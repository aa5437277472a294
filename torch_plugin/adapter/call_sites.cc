#include "torch_plugin/adapter/call_sites.h"

#include <array>
#include <atomic>

#include <dlfcn.h>

namespace gapless::torch_plugin {
namespace {

std::atomic<gapless_torch_call_sites> namer{nullptr};
std::atomic<gapless_torch_call_site> teller{nullptr};

// Python's functions (Python.h), found at run time: C++ programs have none.
struct Python {
  int (*is_initialized)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*release_lock)(int) = nullptr;
  int (*run)(const char*, void*) = nullptr;

  template <class F>
  static bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
  [[nodiscard]] bool load() {
    return find(is_initialized, "Py_IsInitialized") && find(take_lock, "PyGILState_Ensure") &&
           find(release_lock, "PyGILState_Release") && find(run, "PyRun_SimpleStringFlags");
  }
};

// The folder, for as long as the process lives.
std::string& package() {
  static auto* folder = new std::string;
  return *folder;
}

// A text as it may stand in a Python program.
std::string quoted(const std::string& text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string digits;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    digits += kDigits[byte / 16];
    digits += kDigits[byte % 16];
  }
  return "bytes.fromhex('" + digits + "').decode('utf-8', 'surrogateescape')";
}

// A program that gapless came to by LD_PRELOAD need not have imported the package, which knows.
void load_package() {
  Python python;
  Dl_info own{};
  if (package().empty() || !python.load() || python.is_initialized() == 0 ||
      dladdr(reinterpret_cast<void*>(&load_package), &own) == 0) {
    return;
  }
  // No name is bound in the program's own module, where this runs.
  const std::string program =
      "exec('''\n"
      "try:\n"
      "  import ctypes, importlib.util\n"
      "  spec = importlib.util.spec_from_file_location('_gapless_call_sites', path)\n"
      "  module = importlib.util.module_from_spec(spec)\n"
      "  spec.loader.exec_module(module)\n"
      "  module.tell(ctypes.CDLL(library))\n"
      "except Exception: pass\n"  // the message is shorter
      "''', {'path': " +
      quoted(package() + "/_call_sites.py") + ", 'library': " + quoted(own.dli_fname) + "})\n";
  const int state = python.take_lock();
  (void)python.run(program.c_str(), nullptr);
  python.release_lock(state);
}

void load_package_once() {
  static std::atomic<bool> asked{false};
  if (!asked.exchange(true)) load_package();
}

}  // namespace

void set_call_sites_namer(gapless_torch_call_sites function) { namer.store(function); }
void set_call_site_teller(gapless_torch_call_site function) { teller.store(function); }

std::string call_site() {
  if (teller.load() == nullptr) load_package_once();
  std::array<char, 512> text{};
  if (const gapless_torch_call_site tell = teller.load()) tell(text.data(), text.size());
  return text.data();
}

void set_package(const std::string& folder) { package() = folder; }

std::string package_folder() { return package(); }

gapless_torch_places call_sites(DeviceIndex device) {
  if (namer.load() == nullptr) load_package_once();
  gapless_torch_places places{};
  if (const gapless_torch_call_sites name = namer.load()) name(device, &places);
  return places;
}

}  // namespace gapless::torch_plugin
