#include "torch_plugin/adapter/call_sites.h"

#include <array>
#include <atomic>

#include <dlfcn.h>

namespace gapless::torch_plugin {
namespace {

std::atomic<CallSitesNamer> namer{nullptr};

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

// A program that gapless came to by LD_PRELOAD need not have imported the package, which knows.
void import_package() {
  Python python;
  if (!python.load() || python.is_initialized() == 0) return;
  const int state = python.take_lock();
  // No name is bound: this runs in the program's own module.
  (void)python.run(
      "try: __import__('gapless')._installed()\n"
      "except Exception: pass\n",  // it is not there: the message is shorter
      nullptr);
  python.release_lock(state);
}

}  // namespace

void set_call_sites_namer(CallSitesNamer function) { namer.store(function); }

std::string call_sites(DeviceIndex device) {
  static std::atomic<bool> asked{false};
  if (namer.load() == nullptr && !asked.exchange(true)) import_package();
  const CallSitesNamer name = namer.load();
  if (name == nullptr) return "";
  std::array<char, 4096> text{};
  name(device, text.data(), text.size());
  return text.data();
}

}  // namespace gapless::torch_plugin
