// The headers for CUDA C++ libraries as nvcc compiles them, with C++17: compiled, not run.
#include "allocator/cxx/caching_device_allocator.h"
#include "allocator/cxx/memory_resource.h"

static_assert(cuda::mr::async_resource_with<gapless::memory_resource, cuda::mr::device_accessible>);

gapless::CachingDeviceAllocator g_allocator(true);  // as programs have cub's

int main() {
  gapless::memory_resource resource(nullptr);
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> reference = resource;
  return g_allocator.cached_bytes[0].free == 0 && &reference != nullptr ? 0 : 1;
}
