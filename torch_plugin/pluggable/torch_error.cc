#include "torch_plugin/pluggable/torch_error.h"

#include <cstdint>
#include <new>
#include <stdexcept>
#include <typeinfo>

#include <cxxabi.h>
#include <dlfcn.h>

namespace gapless::torch_plugin {
namespace {

// c10::SourceLocation
struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

// c10::Error::Error(SourceLocation, std::string), of which OutOfMemoryError has nothing more.
using Construct = void (*)(void* error, SourceLocation where, std::string text);
constexpr const char* kConstruct =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr const char* kTable = "_ZTVN3c1016OutOfMemoryErrorE";

// c10::Error is 24 pointers large or so; room for it to grow.
constexpr std::size_t kErrorBytes = 1024;

void* symbol(const char* name) {
  for (const char* library : {"libc10_cuda.so", "libc10.so"}) {
    void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const found = dlsym(handle, name);
    dlclose(handle);  // it stays loaded: torch has it
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace

void throw_out_of_memory(const std::string& text) {
  const auto construct = reinterpret_cast<Construct>(symbol(kConstruct));
  auto* const type = static_cast<std::type_info*>(symbol(kType));
  auto** const table = static_cast<void**>(symbol(kTable));
  if (construct == nullptr || type == nullptr || table == nullptr) throw std::runtime_error(text);
  // Before the first virtual function are an offset and the type; the first is the destructor.
  void** const functions = table + 2;
  void* const error = abi::__cxa_allocate_exception(kErrorBytes);
  construct(error, {"gapless_torch_alloc", "gapless", 0}, text);
  *static_cast<void***>(error) = functions;
  abi::__cxa_throw(error, type, reinterpret_cast<void (*)(void*)>(functions[0]));
}

}  // namespace gapless::torch_plugin
