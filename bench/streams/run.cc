#include "bench/streams/run.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "allocator/base/bytes.h"
#include "bench/peers/peer.h"
#include "simgpu/sim_driver.h"

namespace gapless::bench {
namespace {

using Kind = StreamOp::Kind;

// Memory without end: every block has addresses of its own, and nothing costs anything.
class UnlimitedPeer final : public Peer {
 public:
  DeviceAddress alloc(std::uint64_t bytes, StreamHandle /*stream*/,
                      std::uint8_t /*pool*/) override {
    const DeviceAddress address = next_;
    next_ += align_up(bytes, 512);
    return address;
  }
  void free(DeviceAddress /*address*/) override {}
  void record_stream(DeviceAddress /*address*/, StreamHandle /*stream*/) override {}
  [[nodiscard]] std::uint64_t reserved_bytes() const override { return 0; }
  [[nodiscard]] std::uint64_t peak_reserved_bytes() const override { return 0; }

 private:
  DeviceAddress next_ = 0x10000;
};

class Runner {
 public:
  Runner(const StreamProgram& program, simgpu::SimDriver& gpu, const StreamRunOptions& options)
      : program_(program),
        gpu_(gpu),
        options_(options),
        addresses_(program.blocks, 0),
        bytes_(program.blocks, 0),
        events_(program.events, 0) {
    streams_.push_back(0);
    for (std::uint32_t i = 1; i < program.streams; ++i) {
      StreamHandle stream = 0;
      gpu.stream_create(0, stream);
      streams_.push_back(stream);
    }
  }

  /// Calls warm() after the warm-up; false where a block did not fit. `touches`: work says what it
  /// touches, and is judged.
  template <class F>
  bool run(Peer& peer, bool touches, F&& warm) {
    int iteration = 0;
    std::uint64_t begin_ns = 0;
    for (const StreamOp& op : program_.ops) {
      gpu_.advance(options_.host_ns);
      switch (op.kind) {
        case Kind::iteration:
          // The device's queues are full where the host is two iterations ahead.
          gpu_.advance(std::max(gpu_.now_ns(), ends_ns_[0]) - gpu_.now_ns());
          ends_ns_ = {ends_ns_[1], gpu_.work_end_ns(0)};
          if (iteration++ != options_.warm_up) break;
          begin_ns = gpu_.work_end_ns(0);
          warm();
          break;
        case Kind::alloc:
          addresses_[op.block] = peer.alloc(op.amount, streams_[op.stream], 0);
          bytes_[op.block] = op.amount;
          if (addresses_[op.block] == 0) return false;
          break;
        case Kind::free:
          peer.free(std::exchange(addresses_[op.block], 0));
          break;
        case Kind::record_stream:
          peer.record_stream(addresses_[op.block], streams_[op.stream]);
          break;
        case Kind::work:
          work(op, touches);
          break;
        case Kind::record:
          gpu_.event_create(0, events_[op.block]);
          gpu_.event_record(0, events_[op.block], streams_[op.stream]);
          break;
        case Kind::wait:
          gpu_.stream_wait_event(0, streams_[op.stream], events_[op.block]);
          break;
        case Kind::sync:
          gpu_.event_synchronize(0, events_[op.block]);
          break;
      }
    }
    ns_ = gpu_.work_end_ns(0) - begin_ns;
    return true;
  }

  void free_all(Peer& peer) {
    for (DeviceAddress& address : addresses_) {
      if (address != 0) peer.free(std::exchange(address, 0));
    }
  }

  [[nodiscard]] std::uint64_t ns() const { return ns_; }

 private:
  void work(const StreamOp& op, bool touches) {
    accesses_.clear();
    for (std::uint32_t i = 0; touches && i < op.count; ++i) {
      const std::uint32_t block = program_.touched[op.first + i];
      // Only what the work makes is written: the last one. The others are read by many.
      accesses_.push_back({addresses_[block], bytes_[block], i + 1 == op.count});
    }
    gpu_.launch(0, streams_[op.stream], op.amount, accesses_);
  }

  const StreamProgram& program_;
  simgpu::SimDriver& gpu_;
  const StreamRunOptions& options_;
  std::vector<StreamHandle> streams_;
  std::vector<DeviceAddress> addresses_;
  std::vector<std::uint64_t> bytes_;
  std::vector<EventHandle> events_;
  std::vector<simgpu::Access> accesses_;
  // When the work of the iterations before the last two was done.
  std::array<std::uint64_t, 2> ends_ns_{};
  std::uint64_t ns_ = 0;
};

double percent_above(std::uint64_t value, std::uint64_t base) {
  return base == 0 ? 0 : (static_cast<double>(value) / static_cast<double>(base) - 1) * 100;
}

}  // namespace

double StreamRunResult::overhead_percent() const {
  return percent_above(peak_reserved_bytes, peak_live_bytes);
}

double StreamRunResult::lost_percent() const { return percent_above(ns, ideal_ns); }

StreamRunResult run_streams(const StreamProgram& program, const std::string& allocator,
                            const StreamRunOptions& options) {
  StreamRunResult result;
  result.program = program.name;
  result.allocator = allocator;
  result.peak_live_bytes = program.peak_live_bytes();
  {
    simgpu::SimDriver gpu;
    Runner runner(program, gpu, options);
    UnlimitedPeer unlimited;
    runner.run(unlimited, false, [] {});
    result.ideal_ns = runner.ns();
  }
  simgpu::SimDevice device;
  device.total_bytes = options.capacity_bytes != 0
                           ? options.capacity_bytes
                           : std::max(80 * GiB, align_up(16 * result.peak_live_bytes, GiB));
  simgpu::SimDriver gpu({.devices = {device}, .costs = options.costs});
  CountingDriver counting(gpu, [&] { return gpu.now_ns(); });
  Runner runner(program, gpu, options);
  const auto peer = make_peer(allocator, counting, 0, options.settings);
  if (!peer) throw std::invalid_argument("unknown allocator \"" + allocator + "\"");
  DriverCallCounts warm = counting.counts();
  result.fits = runner.run(*peer, true, [&] { warm = counting.counts(); });
  result.ns = result.fits ? runner.ns() : 0;
  result.calls = counting.counts().since(warm);
  result.peak_reserved_bytes = peer->peak_reserved_bytes();
  result.violations = gpu.violations();
  runner.free_all(*peer);
  return result;
}

}  // namespace gapless::bench
