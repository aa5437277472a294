#include "torch_plugin/adapter/pickled_snapshot.h"

#include <stdexcept>

#include <dlfcn.h>

namespace gapless::torch_plugin {

std::string pickled_snapshot() {
  // The adapter is loaded with libc10_cuda, before libtorch_cuda may be; so it cannot be linked.
  constexpr const char* kName = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev";
  void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : dlsym(library, kName);
  if (library != nullptr) dlclose(library);  // it stays: the program has it
  if (found == nullptr) throw std::runtime_error("this torch writes no snapshot from C++");
  return reinterpret_cast<std::string (*)()>(found)();
}

}  // namespace gapless::torch_plugin
