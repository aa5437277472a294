#include "simgpu/process/python_watch.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>

#include "simgpu/process/memory_trace.h"
#include "simgpu/process/python.h"
#include "simgpu/process/python_callback.h"
#include "simgpu/process/recorder.h"

namespace gapless::simgpu {
namespace {

std::atomic<bool> watched{false};
PythonCallback reads_callback;
PythonCallback estimate_callback;
PythonCallback assertion_callback;
PythonCallback end_callback;

bool wanted() {
  const char* folder = std::getenv("SIMGPU_REPORT_DIR");
  return folder != nullptr && *folder != '\0' && !watched.load();
}

// The folder that this library lies in.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// With Python's lock.
void run_watch(const Python& python) {
  if (python.error() != nullptr || Python::is_finalizing()) return;
  // While torch is still being imported it is too early: there will be another call.
  constexpr const char* kCode =
      "import sys\n"
      "torch = sys.modules.get('torch')\n"
      "if torch is None or getattr(torch.__spec__, '_initializing', False):\n"
      "    raise ImportError\n"
      "try:\n"
      "    with open(path, encoding='utf-8') as file:\n"
      "        code = compile(file.read(), path, 'exec')\n"
      "    exec(code, {'__name__': 'watch_torch', '__file__': path})\n"
      "except Exception as error:\n"
      "    print('gapless dryrun: steps and lines will not be known:', error, file=sys.stderr)\n";
  constexpr int kFileInput = 257;
  if (watched.exchange(true)) return;
  void* const names = python.new_dict();
  void* const path = python.decode_path((own_folder() + "/python/watch_torch.py").c_str());
  void* result = nullptr;
  if (names != nullptr && path != nullptr && python.set_item(names, "path", path) == 0 &&
      python.set_item(names, "__builtins__", python.builtins()) == 0) {
    result = python.run(kCode, kFileInput, names, names, nullptr);
  }
  if (result == nullptr) {
    python.clear_error();
    watched.store(false);
  }
  for (void* const object : {result, path, names}) {
    if (object != nullptr) python.drop(object);
  }
}

}  // namespace

void watch_python() {
  if (!wanted()) return;
  Python python;
  if (python.find() && python.has_lock() != 0) run_watch(python);
}

void tell_python_of_end() {
  Python python;
  if (!end_callback.is_set() || !Recorder::get().kept()) return;
  // Without the lock there is no telling who holds it, and whether it will ever be free.
  if (python.find() && python.has_lock() != 0) end_callback();
}

void tell_python_of_stop() {
  if (end_callback.is_set()) end_callback();
}

void tell_python_of_reads(unsigned long long count) { reads_callback(count); }

void tell_python_of_estimate(int what) { estimate_callback(static_cast<unsigned long long>(what)); }

void tell_python_of_assertion(const char* what) {
  if (assertion_callback.is_set()) {
    assertion_callback(reinterpret_cast<unsigned long long>(what));
  } else {
    std::fprintf(stderr, "gapless: %s: a kernel's assertion does not hold\n", what);
  }
}

}  // namespace gapless::simgpu

extern "C" void simgpu_watch(void* reads, void* estimated, void* asserted, void* ended) {
  gapless::simgpu::reads_callback.set(reads);
  gapless::simgpu::estimate_callback.set(estimated);
  gapless::simgpu::assertion_callback.set(asserted);
  gapless::simgpu::end_callback.set(ended);
}

extern "C" const char* simgpu_report_stem() {
  static std::string stem;  // by Python's lock
  stem = gapless::simgpu::Recorder::get().stem();
  return stem.c_str();
}

extern "C" void simgpu_report_step() {
  gapless::simgpu::Recorder::get().step();
  if (gapless::simgpu::MemoryTrace::wanted()) {
    gapless::simgpu::MemoryEvent event;
    event.kind = gapless::simgpu::MemoryEvent::Kind::step;
    gapless::simgpu::MemoryTrace::get().add(event);
  }
}
