// What the files of the C API share: the handle, and how errors become statuses.
#pragma once

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "allocator/base/error.h"
#include "allocator/base/fork.h"
#include "allocator/c_api.h"
#include "allocator/live/live.h"
#include "allocator/memory/shared_block.h"

struct gapless_allocator {
  std::unique_ptr<gapless::Driver> driver;
  std::unique_ptr<gapless::Allocator> devices;
  std::unique_ptr<gapless::Live> live;
  // Blocks of other processes, by address.
  std::mutex imports_lock;
  std::map<gapless::DeviceAddress, std::unique_ptr<gapless::ImportedBlock>> imports;
  // This is a child that was forked from the process that made it.
  bool forked = false;
  gapless::AfterFork after_fork{[this] { forked = true; }};
};

namespace gapless::c_api {

/// What gapless_last_error() says.
std::string& last_error();

inline gapless_status fail(gapless_status status, std::string text) {
  last_error() = std::move(text);
  return status;
}

gapless_status code_of(Status status);

/// Runs `body`, and turns whatever it throws into a status: nothing crosses the boundary.
template <class F>
gapless_status guarded(F&& body) noexcept {
  try {
    last_error().clear();
    return body();
  } catch (const InputError& error) {
    return fail(GAPLESS_INVALID_ARGUMENT, error.what());
  } catch (const ForkedChild& error) {
    return fail(GAPLESS_DRIVER_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    last_error().assign("no host memory");  // short enough to need none itself
    return GAPLESS_INTERNAL_ERROR;
  } catch (const std::exception& error) {
    try {
      return fail(GAPLESS_INTERNAL_ERROR, error.what());
    } catch (...) {
      last_error().assign("no host memory");
      return GAPLESS_INTERNAL_ERROR;
    }
  } catch (...) {
    return GAPLESS_INTERNAL_ERROR;
  }
}

/// Runs body(device allocator), or says what is wrong with the arguments.
template <class F>
gapless_status on_device(const gapless_allocator* allocator, int32_t device, F&& body) noexcept {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->forked) throw ForkedChild();
    DeviceAllocator* found = allocator->devices->device(device);
    if (found == nullptr) {
      return fail(GAPLESS_INVALID_ARGUMENT, "there is no device " + std::to_string(device) +
                                                "; there are " +
                                                std::to_string(allocator->devices->devices()));
    }
    return body(*found);
  });
}

/// Bytes to the caller's buffer of *size bytes; *size becomes how many there are.
inline gapless_status give(const std::string& bytes, void* buffer, size_t* size) {
  if (size == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the size is null");
  const size_t room = std::exchange(*size, bytes.size());
  if (buffer == nullptr || room < bytes.size()) {
    return fail(GAPLESS_INVALID_ARGUMENT, "there are " + std::to_string(bytes.size()) + " bytes");
  }
  std::memcpy(buffer, bytes.data(), bytes.size());
  return GAPLESS_OK;
}

}  // namespace gapless::c_api
