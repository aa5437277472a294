#include "allocator/c_api.h"

#include "allocator/c_api_guard.h"
#include "allocator/driver/cuda_driver.h"

namespace gapless::c_api {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

gapless_status code_of(Status status) {
  switch (status) {
    case Status::ok:
      return GAPLESS_OK;
    case Status::out_of_memory:
      return GAPLESS_OUT_OF_MEMORY;
    case Status::invalid_argument:
      return GAPLESS_INVALID_ARGUMENT;
    case Status::driver_error:
      return GAPLESS_DRIVER_ERROR;
  }
  return GAPLESS_INTERNAL_ERROR;
}

}  // namespace gapless::c_api

namespace {

using namespace gapless::c_api;
using gapless::DeviceAllocator;
using gapless::Status;

// Runs act(device allocator) on the one that has the block: the first that does not say
// invalid_argument.
template <class F>
gapless_status on_owner(const gapless_allocator* allocator, const void* memory, F&& act) noexcept {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->forked) throw gapless::ForkedChild();
    const auto address = reinterpret_cast<gapless::DeviceAddress>(memory);
    for (gapless::DeviceIndex i = 0; i < allocator->devices->devices(); ++i) {
      DeviceAllocator& device = *allocator->devices->device(i);
      const Status status = act(device, address);
      if (status == Status::ok) return GAPLESS_OK;
      if (status != Status::invalid_argument) return fail(code_of(status), device.last_failure());
    }
    return fail(GAPLESS_INVALID_ARGUMENT, "no block there for which that can be done");
  });
}

}  // namespace

namespace gapless {

Allocator& allocator_of(const gapless_allocator& allocator) { return *allocator.devices; }
Driver& driver_of(const gapless_allocator& allocator) { return *allocator.driver; }
Live& live_of(const gapless_allocator& allocator) { return *allocator.live; }

using c_api::fail;

gapless_status create_over(std::unique_ptr<Driver> driver, const Options& options,
                           gapless_allocator** allocator) {
  auto made = std::make_unique<gapless_allocator>();
  DriverStatus status = DriverStatus::ok;
  made->devices = std::make_unique<Allocator>(*driver, options, status);
  if (status != DriverStatus::ok) {
    return fail(GAPLESS_DRIVER_ERROR, std::string("the driver failed with ") + to_string(status));
  }
  made->driver = std::move(driver);
  made->live = std::make_unique<Live>(*made->devices, options);
  *allocator = made.release();
  return GAPLESS_OK;
}

}  // namespace gapless

extern "C" {

const char* gapless_version(void) { return "0.1.0"; }

const char* gapless_status_text(gapless_status status) {
  switch (status) {
    case GAPLESS_OK:
      return "ok";
    case GAPLESS_OUT_OF_MEMORY:
      return "out of memory";
    case GAPLESS_INVALID_ARGUMENT:
      return "invalid argument";
    case GAPLESS_DRIVER_ERROR:
      return "driver error";
    case GAPLESS_INTERNAL_ERROR:
      return "internal error";
  }
  return "unknown status";
}

gapless_status gapless_create(const char* options, gapless_allocator** allocator) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the result is null");
    const gapless::Options chosen =
        options == nullptr ? gapless::options_from_environment() : gapless::read_options(options);
    std::string error;
    auto driver = gapless::CudaDriver::open(error);
    if (!driver) return fail(GAPLESS_DRIVER_ERROR, error);
    return gapless::create_over(std::move(driver), chosen, allocator);
  });
}

gapless_status gapless_destroy(gapless_allocator* allocator) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return GAPLESS_OK;
    const auto count = [](std::size_t n, const char* what) {
      return std::to_string(n) + (n == 1 ? " block is" : " blocks are") + what;
    };
    std::size_t live = 0;
    std::size_t pinned = 0;
    for (std::int32_t i = 0; i < allocator->devices->devices(); ++i) {
      const DeviceAllocator& device = *allocator->devices->device(i);
      live += static_cast<std::size_t>(device.statistics().allocation.all.current);
      pinned += device.pinned_blocks();
    }
    if (live != 0) return fail(GAPLESS_INVALID_ARGUMENT, count(live, " still live"));
    if (pinned != 0) {
      return fail(GAPLESS_INVALID_ARGUMENT, count(pinned, " freed, but still pinned or shared"));
    }
    {
      const std::scoped_lock lock(allocator->imports_lock);
      if (const std::size_t open = allocator->imports.size(); open != 0) {
        return fail(GAPLESS_INVALID_ARGUMENT, count(open, " another process's, and still open"));
      }
    }
    delete allocator;
    return GAPLESS_OK;
  });
}

int32_t gapless_devices(const gapless_allocator* allocator) {
  return allocator == nullptr ? 0 : allocator->devices->devices();
}

gapless_status gapless_alloc(gapless_allocator* allocator, int32_t device, size_t bytes,
                             void* stream, void** memory) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    if (memory == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the result is null");
    gapless::DeviceAddress address = 0;
    const Status status =
        found.alloc(bytes, reinterpret_cast<gapless::StreamHandle>(stream), address);
    if (status != Status::ok) return fail(code_of(status), found.last_failure());
    *memory = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    return GAPLESS_OK;
  });
}

gapless_status gapless_free(gapless_allocator* allocator, void* memory) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->forked) return GAPLESS_OK;
    const Status status =
        allocator->devices->free(reinterpret_cast<gapless::DeviceAddress>(memory));
    if (status == Status::invalid_argument) {
      return fail(GAPLESS_INVALID_ARGUMENT, "this address was not given out, or is free already");
    }
    return code_of(status);
  });
}

gapless_status gapless_record_stream(gapless_allocator* allocator, void* memory, void* stream) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    const Status status =
        allocator->devices->record_stream(reinterpret_cast<gapless::DeviceAddress>(memory),
                                          reinterpret_cast<gapless::StreamHandle>(stream));
    if (status == Status::ok) return GAPLESS_OK;
    return fail(code_of(status), "record_stream of an address that no block begins at");
  });
}

gapless_status gapless_record_stream_of(gapless_allocator* allocator, void* memory, int32_t device,
                                        void* stream) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->devices->device(device) == nullptr) {
      return fail(GAPLESS_INVALID_ARGUMENT, "there is no such device");
    }
    const Status status = allocator->devices->record_stream(
        reinterpret_cast<gapless::DeviceAddress>(memory),
        gapless::DeviceStream{device, reinterpret_cast<gapless::StreamHandle>(stream)});
    if (status == Status::ok) return GAPLESS_OK;
    return fail(code_of(status), "record_stream of an address that no block begins at");
  });
}

gapless_status gapless_begin_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                  uint64_t pool_second, void* stream, int all_streams) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const auto only = reinterpret_cast<gapless::StreamHandle>(stream);
    const bool all = all_streams != 0;
    (void)found.begin_pool({pool_first, pool_second}, [all, only](gapless::StreamHandle asked) {
      return all || asked == only;
    });
    return GAPLESS_OK;
  });
}

gapless_status gapless_end_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                uint64_t pool_second) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const Status status = found.end_pool({pool_first, pool_second});
    return status == Status::ok ? GAPLESS_OK : fail(code_of(status), "this pool is not begun");
  });
}

gapless_status gapless_release_pool(gapless_allocator* allocator, int32_t device,
                                    uint64_t pool_first, uint64_t pool_second) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const Status status = found.release_pool({pool_first, pool_second});
    return status == Status::ok ? GAPLESS_OK : fail(code_of(status), "this pool has no user");
  });
}

gapless_status gapless_sleep(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                             uint64_t pool_second, int save) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const Status status = found.sleep_pool({pool_first, pool_second}, save != 0);
    if (status == Status::ok) return GAPLESS_OK;
    return fail(code_of(status), status == Status::invalid_argument
                                     ? "there is no such pool, or it is asleep already"
                                     : "the driver refused, or a graph is being captured");
  });
}

gapless_status gapless_set_pool(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                                uint64_t pool_second, int use_on_oom, int no_split) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const gapless::PoolId pool{pool_first, pool_second};
    Status status = found.set_pool_no_split(pool, no_split != 0);
    if (status == Status::ok) status = found.set_pool_use_on_oom(pool, use_on_oom != 0);
    if (status == Status::ok) return GAPLESS_OK;
    return fail(code_of(status), "there is no such pool, or it has blocks that share pages");
  });
}

gapless_status gapless_pin(gapless_allocator* allocator, void* memory) {
  return on_owner(allocator, memory,
                  [](DeviceAllocator& device, auto address) { return device.pin(address); });
}

gapless_status gapless_unpin(gapless_allocator* allocator, void* memory) {
  return on_owner(allocator, memory,
                  [](DeviceAllocator& device, auto address) { return device.unpin(address); });
}

gapless_status gapless_share(gapless_allocator* allocator, void* memory, void* message,
                             size_t* size) {
  gapless::SharedBlock shared;
  const gapless_status status =
      on_owner(allocator, memory, [&](DeviceAllocator& device, auto address) {
        return size == nullptr ? Status::invalid_argument : device.share(address, shared);
      });
  if (status != GAPLESS_OK) return status;
  return guarded([&]() -> gapless_status {
    const gapless_status given = give(to_message(shared), message, size);
    if (given == GAPLESS_OK) return given;
    const std::string why = last_error();
    (void)gapless_unshare(allocator, memory);
    return fail(given, why);
  });
}

gapless_status gapless_unshare(gapless_allocator* allocator, void* memory) {
  return on_owner(allocator, memory,
                  [](DeviceAllocator& device, auto address) { return device.unshare(address); });
}

gapless_status gapless_open(gapless_allocator* allocator, int32_t device, const void* message,
                            size_t size, void** memory) {
  return on_device(allocator, device, [&](DeviceAllocator&) -> gapless_status {
    if (message == nullptr || memory == nullptr) {
      return fail(GAPLESS_INVALID_ARGUMENT, "message or memory is null");
    }
    gapless::SharedBlock block;
    std::string error;
    if (!from_message({static_cast<const char*>(message), size}, block, error)) {
      return fail(GAPLESS_INVALID_ARGUMENT, error);
    }
    auto imported = std::make_unique<gapless::ImportedBlock>(*allocator->driver, device);
    const gapless::DriverStatus status = imported->open(block);
    close_descriptors(block);
    if (status != gapless::DriverStatus::ok) {
      return fail(GAPLESS_DRIVER_ERROR, std::string("the driver failed with ") + to_string(status));
    }
    const gapless::DeviceAddress address = imported->address();
    const std::scoped_lock lock(allocator->imports_lock);
    allocator->imports[address] = std::move(imported);
    *memory = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    return GAPLESS_OK;
  });
}

gapless_status gapless_close(gapless_allocator* allocator, void* memory) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->forked) throw gapless::ForkedChild();
    const std::scoped_lock lock(allocator->imports_lock);
    const auto found = allocator->imports.find(reinterpret_cast<gapless::DeviceAddress>(memory));
    if (found == allocator->imports.end()) {
      return fail(GAPLESS_INVALID_ARGUMENT, "no block of another process is open there");
    }
    const gapless::DriverStatus status = found->second->close();
    if (status != gapless::DriverStatus::ok) {
      return fail(GAPLESS_DRIVER_ERROR, std::string("the driver failed with ") + to_string(status));
    }
    allocator->imports.erase(found);
    return GAPLESS_OK;
  });
}

gapless_status gapless_wake(gapless_allocator* allocator, int32_t device, uint64_t pool_first,
                            uint64_t pool_second) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const Status status = found.wake_pool({pool_first, pool_second});
    if (status == Status::ok) return GAPLESS_OK;
    return fail(code_of(status), status == Status::invalid_argument
                                     ? "there is no such pool"
                                     : "the device has not the memory for it now");
  });
}

gapless_status gapless_trim(gapless_allocator* allocator, int32_t device, size_t keep_bytes) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const Status status = found.trim(keep_bytes);
    if (status != Status::ok) return fail(code_of(status), "the driver kept some of the memory");
    return GAPLESS_OK;
  });
}

gapless_status gapless_set_limit(gapless_allocator* allocator, int32_t device, size_t bytes) {
  return on_device(allocator, device, [&](DeviceAllocator& found) {
    found.set_limit_bytes(bytes);
    return GAPLESS_OK;
  });
}

const char* gapless_last_error(void) { return last_error().c_str(); }

}  // extern "C"
