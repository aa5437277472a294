// What C++ extensions of PyTorch do with its allocator, and Python cannot: callbacks that free
// memory before a request fails, and memory at an address of the caller's choice. Loaded with
// ctypes.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <c10/cuda/CUDACachingAllocator.h>

namespace c10 {
namespace {

bool (*free_some)() = nullptr;

struct FreeSome : FreeMemoryCallback {
  bool Execute() override { return free_some != nullptr && free_some(); }
};
REGISTER_FREE_MEMORY_CALLBACK(free_some, FreeSome)

}  // namespace
}  // namespace c10

namespace {

template <class Allocator>
c10::DataPtr allocate(Allocator& allocator, size_t bytes, void* address) {
  if constexpr (requires { allocator.allocateWithAddress(bytes, address); }) {
    return allocator.allocateWithAddress(bytes, address);
  } else {
    throw std::runtime_error("this version has no allocateWithAddress");
  }
}

}  // namespace

extern "C" void before_out_of_memory(bool (*callback)()) { c10::free_some = callback; }

// The address, to be freed with free_at(); nullptr, and why, where there is none.
extern "C" void* allocate_at(size_t bytes, void* address, char* error, size_t error_bytes) {
  try {
    c10::DataPtr data = allocate(*c10::cuda::CUDACachingAllocator::get(), bytes, address);
    return data.release_context();
  } catch (const std::exception& thrown) {
    const size_t length = std::min(std::strlen(thrown.what()), error_bytes - 1);
    std::memcpy(error, thrown.what(), length);
    error[length] = '\0';
    return nullptr;
  }
}

extern "C" void free_at(void* address) { c10::cuda::CUDACachingAllocator::raw_delete(address); }
