// gapless::memory_resource: a gapless allocator as a cuda::mr resource of CCCL, for libraries that
// take their memory from one (RAPIDS, cudax, Thrust).
//
//   gapless_allocator* allocator;
//   gapless_create(nullptr, &allocator);
//   gapless::memory_resource resource(allocator, /*device=*/0);
//   void* memory = resource.allocate_async(bytes, stream);      // cuda::stream_ref
//   resource.deallocate_async(memory, bytes, stream);
//
// Header-only over gapless.h. It has the names of CCCL 3.0 (allocate_async) and those of later ones
// (allocate with a stream, allocate_sync). Alignments up to 512 B.
//
// CCCL 3.0 (CUDA 13.0) has <cuda/memory_resource> only where a macro says so. This header defines
// it: include it before that one, or define the macro for the whole program.
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>

#include <cuda/std/version>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#ifdef _CUDA_MEMORY_RESOURCE
#error \
    "include gapless's memory_resource.h before <cuda/memory_resource>, or define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE: without it CCCL 3.0 leaves that header empty"
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda_runtime_api.h>

#include "allocator/gapless.h"

namespace gapless {

class memory_resource {
 public:
  static constexpr std::size_t kAlignment = 512;

  /// The allocator must live as long as the resource and its memory.
  explicit memory_resource(gapless_allocator* allocator, int device = 0) noexcept
      : allocator_(allocator), device_(device) {}

  /// In the order of the stream: for its work from here on. Throws std::bad_alloc where memory is
  /// out, std::invalid_argument for a larger alignment, std::runtime_error where the driver fails.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    if (alignment > kAlignment) {
      throw std::invalid_argument("gapless::memory_resource: alignments up to 512 bytes");
    }
    void* memory = nullptr;
    check(gapless_alloc(allocator_, device_, bytes, stream.get(), &memory));
    return memory;
  }
  void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return allocate_async(bytes, kAlignment, stream);
  }
  /// When the stream gets here the memory is free again, whatever stream it was allocated on.
  void deallocate_async(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/,
                        cuda::stream_ref stream) {
    check(gapless_record_stream(allocator_, memory, stream.get()));
    check(gapless_free(allocator_, memory));
  }
  void deallocate_async(void* memory, std::size_t bytes, cuda::stream_ref stream) {
    deallocate_async(memory, bytes, kAlignment, stream);
  }

  /// For work of any stream: the host waits until whoever had that memory before is done with it.
  void* allocate(std::size_t bytes, std::size_t alignment = kAlignment) {
    void* const memory = allocate_async(bytes, alignment, cuda::stream_ref{cudaStream_t{}});
    if (cudaStreamSynchronize(cudaStream_t{}) == cudaSuccess) return memory;
    (void)gapless_free(allocator_, memory);
    throw std::runtime_error("gapless::memory_resource: the stream cannot be waited for");
  }
  /// All work that uses the memory is done.
  void deallocate(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/ = kAlignment) {
    check(gapless_free(allocator_, memory));
  }

  // --- CCCL's later names -----------------------------------------------------------------------

  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate_async(bytes, alignment, stream);
  }
  void deallocate(cuda::stream_ref stream, void* memory, std::size_t bytes,
                  std::size_t alignment = kAlignment) {
    deallocate_async(memory, bytes, alignment, stream);
  }
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    return allocate(bytes, alignment);
  }
  void deallocate_sync(void* memory, std::size_t bytes, std::size_t alignment = kAlignment) {
    deallocate(memory, bytes, alignment);
  }

  /// Memory of one may be given back to the other.
  friend bool operator==(const memory_resource& a, const memory_resource& b) noexcept {
    return a.allocator_ == b.allocator_;
  }
  friend bool operator!=(const memory_resource& a, const memory_resource& b) noexcept {
    return !(a == b);
  }
  friend void get_property(const memory_resource& /*resource*/,
                           cuda::mr::device_accessible /*property*/) noexcept {}

 private:
  static void check(gapless_status status) {
    if (status == GAPLESS_OK) return;
    if (status == GAPLESS_OUT_OF_MEMORY) throw std::bad_alloc();
    throw std::runtime_error(gapless_last_error());
  }

  gapless_allocator* allocator_;
  int device_;
};

}  // namespace gapless
