// What driver calls cost on this GPU, by size and count, as a cost profile for the simulated one.
//
// GAPLESS_GPU_PROFILE names the file that the measured costs are written to (default:
// gpu-profile.json in the working folder).
#include <algorithm>
#include <chrono>
#include <functional>

#include <fmt/format.h>

#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "tests/gpu/gpu.h"

namespace gapless {
namespace {

using testing::Gpu;

double median_ns(int rounds, const std::function<void()>& prepare,
                 const std::function<void()>& call) {
  std::vector<double> samples;
  for (int i = 0; i < rounds; ++i) {
    prepare();
    const auto begin = std::chrono::steady_clock::now();
    call();
    samples.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(samples.begin(), samples.begin() + rounds / 2, samples.end());
  return samples[static_cast<std::size_t>(rounds / 2)];
}

// Costs of every call, by size and count; written as a cost profile.
TEST_F(Gpu, CostsAsAProfile) {
  nlohmann::json calls;
  const auto put = [&](DriverCall call, double fixed, double per_page) {
    calls[std::string(name_of(call))] = {{"fixed_ns", std::max(0.0, fixed)},
                                         {"per_page_ns", std::max(0.0, per_page)}};
  };
  // A line through the costs for few and for many pages of 2 MiB.
  const auto put_line = [&](DriverCall call, double few, double few_pages, double many,
                            double many_pages) {
    const double slope = (many - few) / (many_pages - few_pages);
    put(call, few - slope * few_pages, slope);
    fmt::print("{:<20} {:>12.0f} ns for {:>4.0f} pages {:>12.0f} ns for {:>4.0f} pages\n",
               cuda_name_of(call), few, few_pages, many, many_pages);
  };
  const auto nothing = [] {};
  constexpr std::uint64_t kMany = 64;
  const double pages_of_one = static_cast<double>(div_up(page, 2 * MiB));
  const double pages_of_many = static_cast<double>(div_up(kMany * page, 2 * MiB));

  std::vector<MemHandle> kept;
  MemHandle handle = 0;
  const double create_one = median_ns(100, nothing, [&] {
    driver->mem_create(0, page, handle);
    kept.push_back(handle);
  });
  const double release_one = median_ns(100, nothing, [&] {
    driver->mem_release(kept.back());
    kept.pop_back();
  });
  const double create_many = median_ns(20, nothing, [&] {
    driver->mem_create(0, kMany * page, handle);
    kept.push_back(handle);
  });
  const double release_many = median_ns(20, nothing, [&] {
    driver->mem_release(kept.back());
    kept.pop_back();
  });
  put_line(DriverCall::mem_create, create_one, pages_of_one, create_many, pages_of_many);
  put_line(DriverCall::mem_release, release_one, pages_of_one, release_many, pages_of_many);

  DeviceAddress address = 0;
  std::vector<DeviceAddress> reserved;
  const double reserve_ns = median_ns(50, nothing, [&] {
    driver->address_reserve(8 * GiB, 0, address);
    reserved.push_back(address);
  });
  const double free_ns = median_ns(50, nothing, [&] {
    driver->address_free(reserved.back(), 8 * GiB);
    reserved.pop_back();
  });
  put_line(DriverCall::address_reserve, reserve_ns, 1, reserve_ns, 4096);
  put_line(DriverCall::address_free, free_ns, 1, free_ns, 4096);

  // One page at a time against many with one call of set_access and of unmap.
  std::vector<MemHandle> handles;
  for (std::uint64_t i = 0; i < kMany; ++i) handles.push_back(create(*driver));
  address = reserve(*driver, kMany);
  const auto map_all = [&] {
    for (std::uint64_t i = 0; i < kMany; ++i) {
      driver->mem_map(address + i * page, page, handles[i]);
    }
  };
  const auto unmap_all = [&] { driver->mem_unmap(address, kMany * page); };
  const double map_one = median_ns(50, nothing,
                                   [&] {
                                     map_all();
                                     unmap_all();
                                   }) /
                         static_cast<double>(kMany);
  const double set_one = median_ns(
      50, [&] { driver->mem_map(address, page, handles[0]); },
      [&] {
        driver->mem_set_access(address, page, 0);
        driver->mem_unmap(address, page);
      });
  const double unmap_one = median_ns(
      50,
      [&] {
        driver->mem_map(address, page, handles[0]);
        driver->mem_set_access(address, page, 0);
      },
      [&] { driver->mem_unmap(address, page); });
  double set_many = 0;
  double unmap_many = 0;
  double map_many = 0;
  double set_each = 0;
  {
    std::vector<double> set_samples;
    std::vector<double> unmap_samples;
    std::vector<double> map_samples;
    std::vector<double> each_samples;
    const auto timed = [](const std::function<void()>& call) {
      return median_ns(
          1, [] {}, call);
    };
    for (int round = 0; round < 30; ++round) {
      map_samples.push_back(timed(map_all));
      set_samples.push_back(timed([&] { driver->mem_set_access(address, kMany * page, 0); }));
      unmap_samples.push_back(timed(unmap_all));
      map_all();
      each_samples.push_back(timed([&] {
        for (std::uint64_t i = 0; i < kMany; ++i) {
          driver->mem_set_access(address + i * page, page, 0);
        }
      }));
      unmap_all();
    }
    const auto middle = [](std::vector<double>& samples) {
      std::nth_element(samples.begin(), samples.begin() + 15, samples.end());
      return samples[15];
    };
    set_many = middle(set_samples);
    unmap_many = middle(unmap_samples);
    map_many = middle(map_samples);
    set_each = middle(each_samples);
  }
  put(DriverCall::mem_map, map_many / static_cast<double>(kMany), 0);
  put_line(DriverCall::mem_set_access, set_one - unmap_one, pages_of_one, set_many, pages_of_many);
  put_line(DriverCall::mem_unmap, unmap_one, pages_of_one, unmap_many, pages_of_many);
  fmt::print(
      "one page: map and unmap {:.0f} ns; {} pages: map {:.0f} ns each, one set_access "
      "{:.0f} ns, {} of them {:.0f} ns\n",
      map_one, kMany, map_many / static_cast<double>(kMany), set_many, kMany, set_each);
  driver->address_free(address, kMany * page);
  for (const MemHandle one : handles) driver->mem_release(one);

  std::vector<DeviceAddress> plain;
  const auto plain_costs = [&](std::uint64_t bytes) {
    const double alloc = median_ns(20, nothing, [&] {
      driver->mem_alloc(0, bytes, address);
      plain.push_back(address);
    });
    const double free = median_ns(20, nothing, [&] {
      driver->mem_free(0, plain.back());
      plain.pop_back();
    });
    return std::pair{alloc, free};
  };
  const auto small = plain_costs(2 * MiB);
  const auto large = plain_costs(128 * MiB);
  put_line(DriverCall::mem_alloc, small.first, 1, large.first, 64);
  put_line(DriverCall::mem_free, small.second, 1, large.second, 64);

  MemInfo info;
  put(DriverCall::mem_info, median_ns(50, nothing, [&] { driver->mem_info(0, info); }), 0);
  std::vector<EventHandle> events(50, 0);
  std::size_t at = 0;
  put(DriverCall::event_create,
      median_ns(50, nothing, [&] { driver->event_create(0, events[at++]); }), 0);
  at = 0;
  put(DriverCall::event_record,
      median_ns(50, nothing, [&] { driver->event_record(0, events[at++], 0); }), 0);
  at = 0;
  put(DriverCall::event_query,
      median_ns(50, nothing, [&] { driver->event_query(0, events[at++]); }), 0);
  at = 0;
  put(DriverCall::event_synchronize,
      median_ns(50, nothing, [&] { driver->event_synchronize(0, events[at++]); }), 0);
  at = 0;
  put(DriverCall::stream_wait_event,
      median_ns(50, nothing, [&] { driver->stream_wait_event(0, 0, events[at++]); }), 0);
  at = 0;
  put(DriverCall::event_destroy,
      median_ns(50, nothing, [&] { driver->event_destroy(0, events[at++]); }), 0);
  put(DriverCall::stream_synchronize,
      median_ns(50, nothing, [&] { driver->stream_synchronize(0, 0); }), 0);
  put(DriverCall::device_synchronize,
      median_ns(50, nothing, [&] { driver->device_synchronize(0); }), 0);

  const char* path = std::getenv("GAPLESS_GPU_PROFILE");
  const std::string file = path != nullptr ? path : "gpu-profile.json";
  write_file(file, json_text({{"name", properties.name}, {"calls", calls}}, 1) + "\n");
  fmt::print("{}: costs written to {}\n", properties.name, file);
  // The simulated GPU reads it.
  const simgpu::CostProfile profile = simgpu::load_cost_profile(file);
  EXPECT_EQ(profile.name, properties.name);
  EXPECT_GT(profile.cost_ns(DriverCall::mem_create, page), 0U);
}

}  // namespace
}  // namespace gapless
