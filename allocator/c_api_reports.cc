// The C API: statistics, and reports as JSON.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "allocator/base/files.h"
#include "allocator/c_api_guard.h"
#include "allocator/report/dump.h"
#include "allocator/report/out_of_memory.h"

namespace {

using namespace gapless::c_api;
using gapless::DeviceAllocator;

gapless_stat c_stat(const gapless::Stat& stat) {
  return {stat.current, stat.peak, stat.allocated, stat.freed};
}
gapless_pool_stat c_stat(const gapless::PoolStat& stat) {
  return {c_stat(stat.all), c_stat(stat.small_pool), c_stat(stat.large_pool)};
}

std::string dump_of(const gapless_allocator& allocator) {
  std::vector<gapless::HeapReport> reports;
  reports.reserve(static_cast<std::size_t>(allocator.devices->devices()));
  for (std::int32_t i = 0; i < allocator.devices->devices(); ++i) {
    reports.push_back(allocator.devices->device(i)->report());
  }
  return gapless::write_dump(reports);
}

}  // namespace

extern "C" {

gapless_status gapless_stats(const gapless_allocator* allocator, int32_t device,
                             gapless_statistics* statistics) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    if (statistics == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the result is null");
    // What the first version had; what is there by chance is mostly larger than any will have.
    constexpr size_t kLeast = offsetof(gapless_statistics, max_split_size) + sizeof(int64_t);
    constexpr size_t kMost = 1 << 16;
    const size_t room = statistics->size;
    if (room < kLeast || room > kMost) {
      return fail(GAPLESS_INVALID_ARGUMENT,
                  "statistics.size is not set: begin with GAPLESS_STATISTICS_INIT");
    }
    const gapless::DeviceStatistics from = found.statistics();
    gapless_statistics known = {0,
                                c_stat(from.allocation),
                                c_stat(from.segment),
                                c_stat(from.active),
                                c_stat(from.inactive_split),
                                c_stat(from.allocated_bytes),
                                c_stat(from.reserved_bytes),
                                c_stat(from.active_bytes),
                                c_stat(from.inactive_split_bytes),
                                c_stat(from.requested_bytes),
                                c_stat(from.oversize_allocations),
                                c_stat(from.oversize_segments),
                                from.num_alloc_retries,
                                from.num_ooms,
                                from.num_sync_all_streams,
                                from.num_device_alloc,
                                from.num_device_free,
                                from.max_split_size};
    known.size = std::min(room, sizeof known);
    std::memcpy(statistics, &known, known.size);
    return GAPLESS_OK;
  });
}

gapless_status gapless_reset_peak_stats(gapless_allocator* allocator, int32_t device) {
  return on_device(allocator, device, [&](DeviceAllocator& found) {
    found.reset_peak_statistics();
    return GAPLESS_OK;
  });
}

gapless_status gapless_reset_accumulated_stats(gapless_allocator* allocator, int32_t device) {
  return on_device(allocator, device, [&](DeviceAllocator& found) {
    found.reset_accumulated_statistics();
    return GAPLESS_OK;
  });
}

int gapless_owns(const gapless_allocator* allocator, const void* memory, size_t* bytes) {
  if (allocator == nullptr || bytes == nullptr || allocator->forked) return 0;
  const auto address = reinterpret_cast<gapless::DeviceAddress>(memory);
  for (std::int32_t i = 0; i < allocator->devices->devices(); ++i) {
    const auto block = allocator->devices->device(i)->find_block(address);
    if (!block) continue;
    *bytes = block->bytes;
    return 1;
  }
  return 0;
}

gapless_status gapless_check(gapless_allocator* allocator, int32_t device) {
  return on_device(allocator, device, [](DeviceAllocator& found) {
    found.check_now();
    return GAPLESS_OK;
  });
}

gapless_status gapless_dump(const gapless_allocator* allocator, const char* path) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr || path == nullptr) {
      return fail(GAPLESS_INVALID_ARGUMENT, "the allocator or the path is null");
    }
    gapless::write_file(path, dump_of(*allocator));
    return GAPLESS_OK;
  });
}

gapless_status gapless_record(gapless_allocator* allocator, const char* path, int stacks) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr || path == nullptr) {
      return fail(GAPLESS_INVALID_ARGUMENT, "the allocator or the path is null");
    }
    if (allocator->forked) throw gapless::ForkedChild();
    allocator->live->recorder().begin(path, stacks != 0);
    return GAPLESS_OK;
  });
}

gapless_status gapless_record_end(gapless_allocator* allocator) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    if (allocator->forked) throw gapless::ForkedChild();
    const gapless::Recorder::State state = allocator->live->recorder().end();
    if (state.path.empty()) return fail(GAPLESS_INVALID_ARGUMENT, "nothing is being recorded");
    if (!state.error.empty()) return fail(GAPLESS_INVALID_ARGUMENT, state.error);
    return GAPLESS_OK;
  });
}

gapless_status gapless_describe(const gapless_allocator* allocator, void* json, size_t* size) {
  return guarded([&]() -> gapless_status {
    if (allocator == nullptr) return fail(GAPLESS_INVALID_ARGUMENT, "the allocator is null");
    return give(dump_of(*allocator), json, size);
  });
}

gapless_status gapless_explain(const gapless_allocator* allocator, int32_t device, void* json,
                               size_t* size) {
  return on_device(allocator, device, [&](DeviceAllocator& found) -> gapless_status {
    const gapless::FailedRequest request = found.last_failed_request();
    if (request.bytes == 0) return fail(GAPLESS_INVALID_ARGUMENT, "no request has failed");
    gapless::MemInfo info;
    const gapless::DriverStatus status = allocator->driver->mem_info(device, info);
    if (status != gapless::DriverStatus::ok) {
      return fail(GAPLESS_DRIVER_ERROR, std::string("the driver failed with ") + to_string(status));
    }
    return give(to_json(explain(found.report(), request, info.free_bytes)), json, size);
  });
}

gapless_status gapless_config(void* json, size_t* size) {
  return guarded([&]() -> gapless_status {
    return give(gapless::write_options(gapless::options_from_environment()), json, size);
  });
}

}  // extern "C"
