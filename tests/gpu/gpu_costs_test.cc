// What driver calls cost on this GPU, by size and by count, alone and beside running work.
//
//   cuMemSetAccess    over 64 mappings of 2 MiB, beside work     median 512 us, 9 of 10 below 530
//   us
//
// GAPLESS_GPU_COSTS names the file for every row (default: none), GAPLESS_GPU_PROFILE that for the
// same as a cost profile, which the simulated GPU and `gapless replay --profile` read (default:
// gpu-profile.json in the working folder).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/work.h"

namespace gapless {
namespace {

// One call over `mappings` mappings of `bytes` bytes each; of calls that take one, one of so many.
struct Row {
  DriverCall call;
  std::uint64_t bytes = 0;
  std::uint64_t mappings = 1;
  bool beside_work = false;
  double median_ns = 0;
  double most_ns = 0;  // nine of ten are below
  std::size_t rounds = 0;
};

class GpuCosts : public testing::Gpu {
 protected:
  using Do = std::function<void()>;

  // How long `call` takes for each of its `times` calls, over some rounds: no more than half a
  // second of them. `prepare` is not counted.
  void measure(Row row, const Do& prepare, const Do& call, std::uint64_t times = 1) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> samples;
    const auto until = Clock::now() + std::chrono::milliseconds(500);
    while (samples.size() < 5 || (samples.size() < 50 && Clock::now() < until)) {
      prepare();
      const auto begin = Clock::now();
      call();
      const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
      samples.push_back(ns / static_cast<double>(times));
    }
    std::sort(samples.begin(), samples.end());
    row.median_ns = samples[samples.size() / 2];
    row.most_ns = samples[samples.size() * 9 / 10];
    row.rounds = samples.size();
    rows.push_back(row);
  }
  void measure(Row row, const Do& call, std::uint64_t times = 1) {
    measure(
        row, [] {}, call, times);
  }
  [[nodiscard]] const Row& row_of(DriverCall call, std::uint64_t bytes, std::uint64_t mappings) {
    for (const Row& row : rows) {
      if (row.call == call && row.bytes == bytes && row.mappings == mappings && !row.beside_work) {
        return row;
      }
    }
    ADD_FAILURE() << "nothing was measured of " << cuda_name_of(call) << " over " << bytes << " B";
    return rows.front();
  }

  void physical_memory() {
    MemHandle handle = 0;
    for (const std::uint64_t bytes : {page, 4 * MiB, 16 * MiB, 64 * MiB, 256 * MiB, GiB}) {
      measure(
          {.call = DriverCall::mem_create, .bytes = bytes},
          [&] {
            if (handle != 0) driver->mem_release(std::exchange(handle, 0));
          },
          [&] { driver->mem_create(0, bytes, handle); });
      driver->mem_release(std::exchange(handle, 0));
      measure(
          {.call = DriverCall::mem_release, .bytes = bytes},
          [&] { driver->mem_create(0, bytes, handle); },
          [&] { driver->mem_release(std::exchange(handle, 0)); });
    }
    // With more and more of it there.
    for (const std::uint64_t count : {64, 1024}) {
      std::vector<MemHandle> made(count, 0);
      measure(
          {.call = DriverCall::mem_create, .bytes = page, .mappings = count},
          [&] {
            for (MemHandle& one : made) {
              if (one != 0) driver->mem_release(std::exchange(one, 0));
            }
          },
          [&] {
            for (MemHandle& one : made) driver->mem_create(0, page, one);
          },
          count);
      for (const MemHandle one : made) driver->mem_release(one);
    }
    DeviceAddress address = 0;
    for (const std::uint64_t bytes : {page, GiB, 64 * GiB, 1024 * GiB}) {
      measure(
          {.call = DriverCall::address_reserve, .bytes = bytes},
          [&] {
            if (address != 0) driver->address_free(std::exchange(address, 0), bytes);
          },
          [&] { driver->address_reserve(bytes, 0, address); });
      driver->address_free(std::exchange(address, 0), bytes);
      measure(
          {.call = DriverCall::address_free, .bytes = bytes},
          [&] { driver->address_reserve(bytes, 0, address); },
          [&] { driver->address_free(std::exchange(address, 0), bytes); });
    }
  }

  // `count` handles of `bytes` bytes side by side: map each, one set_access and one unmap over all.
  void mappings(std::uint64_t bytes, std::uint64_t count, bool beside_work = false) {
    std::vector<MemHandle> handles(count, 0);
    for (MemHandle& handle : handles) {
      ASSERT_EQ(driver->mem_create(0, bytes, handle), DriverStatus::ok);
    }
    DeviceAddress address = 0;
    ASSERT_EQ(driver->address_reserve(count * bytes, 0, address), DriverStatus::ok);
    const auto map = [&] {
      for (std::uint64_t i = 0; i < count; ++i) {
        driver->mem_map(address + i * bytes, bytes, handles[i]);
      }
    };
    const auto access = [&] { driver->mem_set_access(address, count * bytes, 0); };
    const auto unmap = [&] { driver->mem_unmap(address, count * bytes); };
    const auto unmap_if_mapped = [&] { (void)driver->mem_unmap(address, count * bytes); };
    const auto work = [&] {
      if (beside_work) start_work();
    };
    const auto row = [&](DriverCall call) {
      return Row{.call = call, .bytes = bytes, .mappings = count, .beside_work = beside_work};
    };
    measure(
        row(DriverCall::mem_map),
        [&] {
          if (mapped) unmap_if_mapped();
          work();
          mapped = true;
        },
        map, count);
    measure(
        row(DriverCall::mem_set_access),
        [&] {
          unmap();
          map();
          work();
        },
        access);
    measure(
        row(DriverCall::mem_unmap),
        [&] {
          if (!mapped) map();
          access();
          work();
          mapped = false;
        },
        unmap);
    mapped = false;
    driver->device_synchronize(0);
    driver->address_free(address, count * bytes);
    for (const MemHandle handle : handles) driver->mem_release(handle);
  }

  void plain_memory() {
    for (const std::uint64_t bytes : {2 * MiB, 32 * MiB, 512 * MiB}) {
      DeviceAddress address = 0;
      measure(
          {.call = DriverCall::mem_alloc, .bytes = bytes},
          [&] {
            if (address != 0) driver->mem_free(0, std::exchange(address, 0));
          },
          [&] { driver->mem_alloc(0, bytes, address); });
      driver->mem_free(0, std::exchange(address, 0));
      measure(
          {.call = DriverCall::mem_free, .bytes = bytes},
          [&] { driver->mem_alloc(0, bytes, address); },
          [&] { driver->mem_free(0, std::exchange(address, 0)); });
    }
    DeviceAddress address = 0;
    measure(
        {.call = DriverCall::mem_alloc, .bytes = 2 * MiB, .beside_work = true},
        [&] {
          if (address != 0) driver->mem_free(0, std::exchange(address, 0));
          start_work();
        },
        [&] { driver->mem_alloc(0, 2 * MiB, address); });
    driver->mem_free(0, std::exchange(address, 0));
    measure(
        {.call = DriverCall::mem_free, .bytes = 2 * MiB, .beside_work = true},
        [&] {
          driver->mem_alloc(0, 2 * MiB, address);
          start_work();
        },
        [&] { driver->mem_free(0, std::exchange(address, 0)); });
  }

  void streams_and_events() {
    MemInfo info;
    measure({.call = DriverCall::mem_info}, [&] { driver->mem_info(0, info); });
    measure(
        {.call = DriverCall::mem_info, .beside_work = true}, [&] { start_work(); },
        [&] { driver->mem_info(0, info); });
    EventHandle event = 0;
    measure(
        {.call = DriverCall::event_create},
        [&] {
          if (event != 0) driver->event_destroy(0, std::exchange(event, 0));
        },
        [&] { driver->event_create(0, event); });
    driver->event_destroy(0, std::exchange(event, 0));
    measure(
        {.call = DriverCall::event_destroy}, [&] { driver->event_create(0, event); },
        [&] { driver->event_destroy(0, event); });
    driver->event_create(0, event);
    const StreamHandle on = stream();
    const StreamHandle other = stream();
    measure({.call = DriverCall::event_record}, [&] { driver->event_record(0, event, on); });
    measure({.call = DriverCall::event_query}, [&] { driver->event_query(0, event); });
    measure({.call = DriverCall::event_synchronize}, [&] { driver->event_synchronize(0, event); });
    measure({.call = DriverCall::stream_wait_event},
            [&] { driver->stream_wait_event(0, other, event); });
    bool capturing = false;
    measure({.call = DriverCall::stream_is_capturing},
            [&] { driver->stream_is_capturing(0, on, capturing); });
    CapturePoint point;
    measure({.call = DriverCall::stream_capture_point},
            [&] { driver->stream_capture_point(0, on, point); });
    measure({.call = DriverCall::stream_synchronize}, [&] { driver->stream_synchronize(0, on); });
    measure({.call = DriverCall::device_synchronize}, [&] { driver->device_synchronize(0); });
    driver->event_destroy(0, event);
    driver->stream_destroy(0, on);
    driver->stream_destroy(0, other);
    StreamHandle made = 0;
    measure(
        {.call = DriverCall::stream_create},
        [&] {
          if (made != 0) driver->stream_destroy(0, std::exchange(made, 0));
        },
        [&] { driver->stream_create(0, made); });
    driver->stream_destroy(0, std::exchange(made, 0));
    measure(
        {.call = DriverCall::stream_destroy}, [&] { driver->stream_create(0, made); },
        [&] { driver->stream_destroy(0, made); });
  }

  void contents() {
    std::vector<MemHandle> handles;
    for (int i = 0; i < 16; ++i) handles.push_back(create(*driver));
    const DeviceAddress address = map(handles);
    std::vector<std::uint32_t> host(16 * page / 4);
    for (const std::uint64_t bytes : {std::uint64_t{4}, page, 16 * page}) {
      measure(
          {.call = DriverCall::memset_d32, .bytes = bytes}, [&] { driver->device_synchronize(0); },
          [&] { driver->memset_d32(0, address, 7, bytes / 4, 0); });
      measure({.call = DriverCall::copy_to_device, .bytes = bytes},
              [&] { driver->copy_to_device(0, address, host.data(), bytes, 0); });
      measure({.call = DriverCall::copy_to_host, .bytes = bytes},
              [&] { driver->copy_to_host(0, host.data(), address, bytes, 0); });
    }
    unmap(address, handles.size());
    for (const MemHandle handle : handles) driver->mem_release(handle);
    if (!properties.can_share_fd) return;
    MemHandle own = 0;
    driver->mem_create(0, page, {.share = ShareType::fd}, own);
    SharedHandle shared;
    measure(
        {.call = DriverCall::mem_export, .bytes = page},
        [&] {
          if (shared.fd >= 0) close(shared.fd);
        },
        [&] { driver->mem_export(own, ShareType::fd, shared); });
    MemHandle imported = 0;
    measure(
        {.call = DriverCall::mem_import, .bytes = page},
        [&] {
          if (imported != 0) driver->mem_release(imported);
        },
        [&] { driver->mem_import(0, shared, imported); });
    driver->mem_release(imported);
    driver->mem_release(own);
    close(shared.fd);
  }

  // On a stream of its own, over memory of its own; what ran before has ended.
  void start_work() {
    if (work_bytes == 0) {
      work_bytes = 512 * MiB;
      MemHandle handle = 0;
      ASSERT_EQ(driver->mem_create(0, work_bytes, handle), DriverStatus::ok);
      ASSERT_EQ(driver->address_reserve(work_bytes, 0, work_address), DriverStatus::ok);
      ASSERT_EQ(driver->mem_map(work_address, work_bytes, handle), DriverStatus::ok);
      ASSERT_EQ(driver->mem_set_access(work_address, work_bytes, 0), DriverStatus::ok);
      work_stream = stream();
    }
    driver->device_synchronize(0);
    testing::keep_busy(*driver, work_stream, work_address, work_bytes);
  }

  void write_profile(const std::string& file) {
    nlohmann::json calls;
    const auto put = [&](DriverCall call, double fixed, double per_page) {
      calls[std::string(name_of(call))] = {{"fixed_ns", std::max(0.0, fixed)},
                                           {"per_page_ns", std::max(0.0, per_page)}};
    };
    // A line through the costs for few and for many pages of 2 MiB.
    const auto put_line = [&](DriverCall call, const Row& few, const Row& many) {
      const auto pages = [](const Row& row) {
        return static_cast<double>(div_up(row.bytes, 2 * MiB) * row.mappings);
      };
      const double slope = (many.median_ns - few.median_ns) / (pages(many) - pages(few));
      put(call, few.median_ns - slope * pages(few), slope);
    };
    for (const Row& row : rows) {
      if (!row.beside_work && !calls.contains(name_of(row.call))) put(row.call, row.median_ns, 0);
    }
    for (const DriverCall call : {DriverCall::mem_create, DriverCall::mem_release}) {
      put_line(call, row_of(call, page, 1), row_of(call, 64 * MiB, 1));
    }
    for (const DriverCall call : {DriverCall::mem_set_access, DriverCall::mem_unmap}) {
      put_line(call, row_of(call, page, 1), row_of(call, page, 64));
    }
    for (const DriverCall call : {DriverCall::mem_alloc, DriverCall::mem_free}) {
      put_line(call, row_of(call, 2 * MiB, 1), row_of(call, 512 * MiB, 1));
    }
    put(DriverCall::mem_map, row_of(DriverCall::mem_map, page, 64).median_ns, 0);
    for (const DriverCall call :
         {DriverCall::memset_d32, DriverCall::copy_to_device, DriverCall::copy_to_host}) {
      put_line(call, row_of(call, page, 1), row_of(call, 16 * page, 1));
    }
    write_file(file, json_text({{"name", properties.name}, {"calls", calls}}, 1) + "\n");
  }

  std::vector<Row> rows;
  bool mapped = false;
  std::uint64_t work_bytes = 0;
  DeviceAddress work_address = 0;
  StreamHandle work_stream = 0;
};

TEST_F(GpuCosts, AsAProfile) {
  physical_memory();
  for (const std::uint64_t count : {1, 4, 16, 64, 256, 1024}) mappings(page, count);
  for (const std::uint64_t bytes : {4 * MiB, 32 * MiB, GiB}) mappings(bytes, 1);
  for (const std::uint64_t count : {1, 64}) mappings(page, count, true);
  plain_memory();
  streams_and_events();
  contents();

  nlohmann::json table = nlohmann::json::array();
  for (const Row& row : rows) {
    fmt::print("{:<31} {:>14} B x {:<5}{:>13.0f} ns {:>13.0f} ns{}\n", cuda_name_of(row.call),
               row.bytes, row.mappings, row.median_ns, row.most_ns,
               row.beside_work ? ", beside work" : "");
    table.push_back({{"call", cuda_name_of(row.call)},
                     {"bytes", row.bytes},
                     {"mappings", row.mappings},
                     {"beside_work", row.beside_work},
                     {"median_ns", std::round(row.median_ns)},
                     {"p90_ns", std::round(row.most_ns)},
                     {"rounds", row.rounds}});
  }
  if (const char* const path = std::getenv("GAPLESS_GPU_COSTS")) {
    write_file(path, json_text(table, 1) + "\n");
  }
  const char* const path = std::getenv("GAPLESS_GPU_PROFILE");
  const std::string file = path != nullptr ? path : "gpu-profile.json";
  write_profile(file);
  fmt::print("{}: costs written to {}\n", properties.name, file);
  // The simulated GPU reads it.
  const simgpu::CostProfile profile = simgpu::load_cost_profile(file);
  EXPECT_EQ(profile.name, properties.name);
  EXPECT_GT(profile.cost_ns(DriverCall::mem_create, page), 0U);
  EXPECT_GT(profile.cost_ns(DriverCall::mem_set_access, 64 * page), 0U);
}

}  // namespace
}  // namespace gapless
