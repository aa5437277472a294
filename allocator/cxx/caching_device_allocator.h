// gapless::CachingDeviceAllocator: in the place of cub::CachingDeviceAllocator, with its
// constructors, its methods and its figures.
//
//   gapless::CachingDeviceAllocator allocator(true);      skip_cleanup, as with cub's
//   allocator.DeviceAllocate(&memory, bytes, stream);
//   allocator.DeviceFree(memory);
//   allocator.cached_bytes[0].free
//
// cub's rounds requests up to powers of a growth factor and keeps what is freed for requests of the
// same bin; this one keeps it for all. Its bins are therefore accepted and have no meaning; and
// where no limit is given it keeps everything, where cub's keeps 6 MB.
// Header-only over gapless.h; for any thread.
#pragma once

#include <cstddef>
#include <mutex>

#include <cuda_runtime_api.h>

#include "allocator/gapless.h"

namespace gapless {

class CachingDeviceAllocator {
 public:
  static constexpr unsigned int INVALID_BIN = static_cast<unsigned int>(-1);
  static constexpr std::size_t INVALID_SIZE = static_cast<std::size_t>(-1);
  static constexpr int INVALID_DEVICE_ORDINAL = -1;

  /// Of a device: what lies free here, and what is handed out.
  struct TotalBytes {
    std::size_t free = 0;
    std::size_t live = 0;
  };

  /// cub's has a std::map here. This one looks at the device's memory each time it is asked.
  class CachedBytes {
   public:
    TotalBytes operator[](int device) const { return owner_.total_bytes(device); }
    TotalBytes at(int device) const { return owner_.total_bytes(device); }

   private:
    friend class CachingDeviceAllocator;
    explicit CachedBytes(const CachingDeviceAllocator& owner) : owner_(owner) {}
    const CachingDeviceAllocator& owner_;
  };
  CachedBytes cached_bytes{*this};

  /// `skip_cleanup`: memory that was not freed stays with the driver when this ends.
  CachingDeviceAllocator(unsigned int /*bin_growth*/, unsigned int /*min_bin*/ = 1,
                         unsigned int /*max_bin*/ = INVALID_BIN,
                         std::size_t max_cached_bytes = INVALID_SIZE, bool skip_cleanup = false)
      : skip_cleanup_(skip_cleanup), max_cached_bytes_(max_cached_bytes) {}
  /// `debug`: cub's prints each request; accepted, and without effect.
  CachingDeviceAllocator(bool skip_cleanup = false, bool /*debug*/ = false)
      : skip_cleanup_(skip_cleanup) {}
  CachingDeviceAllocator(const CachingDeviceAllocator&) = delete;
  CachingDeviceAllocator& operator=(const CachingDeviceAllocator&) = delete;
  virtual ~CachingDeviceAllocator() {
    if (!skip_cleanup_) (void)gapless_destroy(allocator_);
  }

  /// cudaErrorMemoryAllocation where memory is out.
  cudaError_t DeviceAllocate(int device, void** memory, std::size_t bytes,
                             cudaStream_t stream = nullptr) {
    if (memory == nullptr) return cudaErrorInvalidValue;
    *memory = nullptr;
    if (const cudaError_t error = resolve(device); error != cudaSuccess) return error;
    return error_of(gapless_alloc(allocator_, device, bytes, stream, memory));
  }
  /// On the current device.
  cudaError_t DeviceAllocate(void** memory, std::size_t bytes, cudaStream_t stream = nullptr) {
    return DeviceAllocate(INVALID_DEVICE_ORDINAL, memory, bytes, stream);
  }

  /// The memory may be used again at once by later work of the stream it was allocated for.
  cudaError_t DeviceFree(int device, void* memory) {
    if (const cudaError_t error = resolve(device); error != cudaSuccess) return error;
    const cudaError_t error = error_of(gapless_free(allocator_, memory));
    return error == cudaSuccess ? keep_within(device) : error;
  }
  cudaError_t DeviceFree(void* memory) { return DeviceFree(INVALID_DEVICE_ORDINAL, memory); }

  /// Gives all free memory back to the driver. Waits for the devices.
  cudaError_t FreeAllCached() {
    for (int device = 0; allocator_ != nullptr && device < gapless_devices(allocator_); ++device) {
      const cudaError_t error = error_of(gapless_trim(allocator_, device, 0));
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  /// Above so much free memory on a device, pages go back to the driver with every free.
  cudaError_t SetMaxCachedBytes(std::size_t bytes) {
    max_cached_bytes_ = bytes;
    return cudaSuccess;
  }

 private:
  static cudaError_t error_of(gapless_status status) {
    switch (status) {
      case GAPLESS_OK:
        return cudaSuccess;
      case GAPLESS_OUT_OF_MEMORY:
        return cudaErrorMemoryAllocation;
      case GAPLESS_INVALID_ARGUMENT:
        return cudaErrorInvalidValue;
      default:
        return cudaErrorUnknown;
    }
  }
  // The current device where none is named, and the allocator, made when first needed.
  cudaError_t resolve(int& device) {
    if (device == INVALID_DEVICE_ORDINAL) {
      if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    }
    const std::scoped_lock lock(mutex_);
    return allocator_ != nullptr ? cudaSuccess : error_of(gapless_create(nullptr, &allocator_));
  }
  cudaError_t keep_within(int device) {
    if (max_cached_bytes_ == INVALID_SIZE) return cudaSuccess;
    const TotalBytes total = total_bytes(device);
    if (total.free <= max_cached_bytes_) return cudaSuccess;
    return error_of(gapless_trim(allocator_, device, total.live + max_cached_bytes_));
  }
  // Nothing where the device was not used yet, or there is none.
  TotalBytes total_bytes(int device) const {
    {
      const std::scoped_lock lock(mutex_);
      if (allocator_ == nullptr) return {};
    }
    gapless_statistics statistics = GAPLESS_STATISTICS_INIT;
    if (gapless_stats(allocator_, device, &statistics) != GAPLESS_OK) return {};
    const auto live = static_cast<std::size_t>(statistics.allocated_bytes.all.current);
    const auto reserved = static_cast<std::size_t>(statistics.reserved_bytes.all.current);
    return {reserved - (live < reserved ? live : reserved), live};
  }

  bool skip_cleanup_;
  std::size_t max_cached_bytes_ = INVALID_SIZE;
  mutable std::mutex mutex_;
  gapless_allocator* allocator_ = nullptr;
};

}  // namespace gapless
