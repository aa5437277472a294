#include "bench/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "bench/peers/peer.h"
#include "bench/replay/in_torch.h"
#include "simgpu/sim_driver.h"

namespace gapless::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::uint32_t ns_between(Clock::time_point begin, Clock::time_point end) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
  return static_cast<std::uint32_t>(std::min<std::int64_t>(ns, UINT32_MAX));
}

// What reading the clock costs between two operations: the least of many tries.
std::uint32_t clock_cost_ns() {
  static const std::uint32_t cost = [] {
    std::uint32_t least = UINT32_MAX;
    for (int i = 0; i < 2000; ++i) {
      const auto begin = Clock::now();
      least = std::min(least, ns_between(begin, Clock::now()));
    }
    return least;
  }();
  return cost;
}

OperationTimes summarize(std::vector<std::uint32_t>& samples) {
  if (samples.empty()) return {};
  const std::uint32_t cost = clock_cost_ns();
  for (std::uint32_t& sample : samples) sample -= std::min(sample, cost);
  const auto at = [&](double fraction) {
    const auto index = static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1));
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index),
                     samples.end());
    return static_cast<double>(samples[index]);
  };
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {sum / static_cast<double>(samples.size()), at(0.5), at(0.99)};
}

// Enough for any allocator here: the native one has needed up to three times the peak.
std::uint64_t ample_bytes(std::uint64_t peak) {
  return std::min(std::max(80 * GiB, align_up(4 * peak, GiB)), kLargestGpuBytes);
}

class Player {
 public:
  Player(const Trace& trace, Peer& peer, std::vector<StreamHandle> streams)
      : trace_(trace), peer_(peer), streams_(std::move(streams)), addresses_(trace.blocks, 0) {}

  // False at the first allocation that does not fit; failed_event says which. `warm` is called
  // after the first sixth of the events.
  bool pass(std::vector<std::uint32_t>* samples, CourseTaker* course,
            const std::function<void(double)>& progress, const std::function<void()>& warm) {
    constexpr std::size_t kReportEvery = 1 << 14;
    auto before = Clock::now();
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      if (i == trace_.events.size() / 6 && warm) {
        warm();
        allocations_when_warm = allocations;
      }
      if (event.kind == EventKind::alloc) {
        ++allocations;
        const DeviceAddress address = peer_.alloc(event.bytes, streams_[event.stream], event.pool);
        if (address == 0) {
          failed_event = i;
          if (course != nullptr) course->end_pass(i);
          return false;
        }
        addresses_[event.block] = address;
      } else if (event.kind == EventKind::free) {
        peer_.free(std::exchange(addresses_[event.block], 0));
      } else {
        continue;
      }
      if (samples != nullptr) {
        const auto now = Clock::now();
        samples->push_back(ns_between(before, now));
        before = now;
      }
      if (course != nullptr) {
        course->played(i);
        before = Clock::now();
      }
      if (i % kReportEvery == 0 && progress) {
        progress(static_cast<double>(i) / static_cast<double>(trace_.events.size()));
        before = Clock::now();
      }
    }
    if (course != nullptr) course->end_pass(trace_.events.size());
    free_all();
    return true;
  }

  void free_all() {
    for (DeviceAddress& address : addresses_) {
      if (address != 0) peer_.free(std::exchange(address, 0));
    }
  }

  std::size_t failed_event = 0;
  std::uint64_t allocations = 0;            // in all passes
  std::uint64_t allocations_when_warm = 0;  // of them, before the first sixth had passed

 private:
  const Trace& trace_;
  Peer& peer_;
  std::vector<StreamHandle> streams_;
  std::vector<DeviceAddress> addresses_;
};

}  // namespace

std::optional<double> ReplayResult::overhead_percent() const {
  if (!fits) return {};
  if (peak_allocated_bytes == 0) return 0;
  return (static_cast<double>(peak_reserved_bytes) / static_cast<double>(peak_allocated_bytes) -
          1) *
         100;
}

ReplayResult replay_through(const Trace& trace, Peer& peer,
                            const std::vector<StreamHandle>& streams,
                            const std::function<DriverCallCounts()>& counts,
                            const ReplayOptions& options) {
  ReplayResult result;
  result.trace = trace.name;
  result.device = trace.device;
  result.events = trace.events.size();
  result.operations = trace.operations();
  result.peak_allocated_bytes = peak_live_bytes(trace);
  Player player(trace, peer, streams);
  std::optional<CourseTaker> course;
  if (options.keep_course) course.emplace(trace, peer);
  const DriverCallCounts start = counts();
  std::vector<std::uint32_t> samples;
  std::optional<std::uint64_t> before_pass;
  for (int pass = 0; pass < options.passes; ++pass) {
    const bool last = pass + 1 == options.passes;
    const DriverCallCounts before = counts();
    if (last && options.time_operations) samples.reserve(result.operations);
    DriverCallCounts warm = before;
    result.fits = player.pass(
        last && options.time_operations ? &samples : nullptr,
        course && course->begin_pass() ? &*course : nullptr,
        [&](double fraction) {
          if (options.progress) {
            options.progress((pass + fraction) / options.passes);
          }
        },
        [&] { warm = counts(); });
    result.last_pass = counts().since(before);
    if (options.keep_passes) {
      result.passes.push_back({result.last_pass, peer.peak_reserved_bytes()});
    }
    if (pass == 0) {
      result.first_pass = result.last_pass;
      const std::uint64_t allocations = player.allocations - player.allocations_when_warm;
      result.calls_per_1000_allocations =
          1000 * static_cast<double>(counts().since(warm).total()) /
          static_cast<double>(std::max<std::uint64_t>(1, allocations));
    }
    if (!result.fits) {
      result.failed_pass = pass + 1;
      result.failed_event = player.failed_event;
      result.failed_bytes = trace.events[player.failed_event].bytes;
      break;
    }
    const auto state = options.stop_when_steady ? peer.idle_state() : std::nullopt;
    if (state && state == before_pass) break;
    before_pass = state;
  }
  result.all_passes = counts().since(start);
  result.times = summarize(samples);
  result.peak_reserved_bytes = peer.peak_reserved_bytes();
  if (course) result.course = course->passes();
  player.free_all();
  return result;
}

ReplayResult replay(const Trace& trace, const std::string& allocator,
                    const ReplayOptions& options) {
  const std::uint64_t capacity_bytes =
      options.capacity_bytes != 0 ? options.capacity_bytes : ample_bytes(peak_live_bytes(trace));
  if (capacity_bytes > kLargestGpuBytes) {
    throw InputError("a GPU of " + format_bytes(capacity_bytes) + ": none has more than " +
                     format_bytes(kLargestGpuBytes) + ", and none is simulated");
  }
  if (is_in_torch(allocator)) return replay_in_torch(trace, allocator, capacity_bytes, options);
  simgpu::SimDevice device;
  device.total_bytes = capacity_bytes;
  simgpu::SimDriver gpu({.devices = {device}, .costs = options.costs});
  CountingDriver counting(gpu, [&] { return gpu.now_ns(); });
  std::vector<StreamHandle> streams;
  for (const std::uint64_t recorded : trace.streams) {
    StreamHandle stream = 0;
    if (recorded != 0) gpu.stream_create(0, stream);
    streams.push_back(stream);
  }
  const std::unique_ptr<Peer> peer = make_peer(allocator, counting, 0, options.settings);
  if (!peer) throw std::invalid_argument("unknown allocator \"" + allocator + "\"");
  ReplayResult result = replay_through(
      trace, *peer, streams, [&] { return counting.counts(); }, options);
  result.allocator = allocator;
  return result;
}

}  // namespace gapless::bench
