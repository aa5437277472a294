// SimDriver: a simulated GPU behind the Driver interface, and the judge of every other test.
//
//   simgpu::SimDriver gpu({.devices = {{.total_bytes = 16 * GiB}}});
//   ... run an allocator over it, put work on streams with launch() ...
//   EXPECT_TRUE(gpu.violations().empty());
//
// It answers exactly: capacity to the byte, errors as the driver reports them, time by a cost
// profile on a virtual clock. What a driver reports as an error other than "out of memory", and
// what a real driver leaves undefined (unmapping under running work, touching unmapped memory, use
// of memory before the event that frees it), is also kept as a *violation*, in words.
#pragma once

#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "allocator/driver/driver.h"
#include "simgpu/access_checker.h"
#include "simgpu/captured_graph.h"
#include "simgpu/cost_profile.h"
#include "simgpu/memory_model.h"
#include "simgpu/timeline.h"

namespace gapless::simgpu {

struct SimDevice {
  std::string name = "simulated GPU";
  std::uint64_t total_bytes = 80 * (std::uint64_t{1} << 30);
  bool has_vmm = true;
  std::uint64_t granularity_bytes = 2 * (std::uint64_t{1} << 20);
  /// Host memory that the device may map; 0: it maps none.
  std::uint64_t host_bytes = 0;
  bool has_fabric = false;
  std::int32_t compute_major = 8;
  std::int32_t compute_minor = 0;
};

struct SimOptions {
  std::vector<SimDevice> devices = {SimDevice{}};
  CostProfile costs{};
  /// Addresses that may be reserved in all; a process has 128 TiB of them or less.
  std::uint64_t address_bytes = UINT64_MAX;
  /// Keep what is written to device memory, so that it can be read back.
  bool keep_contents = false;
};

class SimDriver final : public Driver {
 public:
  explicit SimDriver(SimOptions options = {});

  // --- what a real GPU has not -----------------------------------------------------------------

  /// Puts work on a stream: it takes `duration_ns` on the virtual clock and touches that memory.
  DriverStatus launch(DeviceIndex device, StreamHandle stream, std::uint64_t duration_ns,
                      std::span<const Access> accesses);
  /// From now on work given to the stream goes into a graph.
  void begin_capture(DeviceIndex device, StreamHandle stream);
  /// The graph of the capture that began on that stream.
  CapturedGraph end_capture(StreamHandle stream);
  /// `later` comes after what `earlier` was given so far; joins the capture where that captures.
  void order(DeviceIndex device, StreamHandle earlier, StreamHandle later);
  /// The same for streams of two devices, neither of which captures.
  void order(const DeviceStream& earlier, const DeviceStream& later);
  /// Runs a graph on a stream.
  void replay(const CapturedGraph& graph, StreamHandle stream);
  /// The host spends time without waiting for anything.
  void advance(std::uint64_t ns);
  [[nodiscard]] std::uint64_t now_ns() const;
  /// When all work given to the device so far will be done, on the virtual clock.
  [[nodiscard]] std::uint64_t work_end_ns(DeviceIndex device) const;
  /// The same for one stream.
  [[nodiscard]] std::uint64_t work_end_ns(DeviceIndex device, StreamHandle stream) const;
  /// Every rule broken so far, in order, in words.
  [[nodiscard]] std::vector<std::string> violations() const;
  /// What is still held: "3 handles, 1 reservation"; empty where nothing is.
  [[nodiscard]] std::string leaks() const;
  [[nodiscard]] std::uint64_t used_bytes(DeviceIndex device) const;
  /// The most that was ever in use.
  [[nodiscard]] std::uint64_t peak_used_bytes(DeviceIndex device) const;
  /// Host memory that handles of the device take.
  [[nodiscard]] std::uint64_t used_host_bytes(DeviceIndex device) const;
  /// What is mapped anywhere, by address.
  [[nodiscard]] std::vector<std::pair<DeviceAddress, Mapping>> mappings() const;
  /// Memory behind a handle; 0 for one that is not held.
  [[nodiscard]] std::uint64_t bytes_of(MemHandle handle) const;
  /// Whether it is mapped anywhere.
  [[nodiscard]] bool is_mapped(MemHandle handle) const;
  /// Whether that is host memory.
  [[nodiscard]] bool is_on_host(MemHandle handle) const;
  /// The physical memory behind a range, or nothing where the device could not touch all of it.
  [[nodiscard]] std::optional<std::vector<PhysicalRange>> resolve(DeviceIndex device,
                                                                  DeviceAddress address,
                                                                  std::uint64_t bytes) const;

  // --- Driver ----------------------------------------------------------------------------------

  DriverStatus device_count(std::int32_t& count) override;
  DriverStatus device_properties(DeviceIndex device, DeviceProperties& properties) override;
  DriverStatus mem_info(DeviceIndex device, MemInfo& info) override;
  using Driver::mem_create;
  DriverStatus mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                          MemHandle& handle) override;
  DriverStatus mem_release(MemHandle handle) override;
  DriverStatus mem_export(MemHandle handle, ShareType type, SharedHandle& shared) override;
  DriverStatus mem_import(DeviceIndex device, const SharedHandle& shared,
                          MemHandle& handle) override;
  DriverStatus address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                               DeviceAddress& address) override;
  DriverStatus address_free(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) override;
  DriverStatus mem_unmap(DeviceAddress address, std::uint64_t bytes) override;
  DriverStatus mem_set_access(DeviceAddress address, std::uint64_t bytes,
                              DeviceIndex device) override;
  DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address) override;
  DriverStatus mem_free(DeviceIndex device, DeviceAddress address) override;
  DriverStatus stream_create(DeviceIndex device, StreamHandle& stream) override;
  DriverStatus stream_destroy(DeviceIndex device, StreamHandle stream) override;
  DriverStatus stream_synchronize(DeviceIndex device, StreamHandle stream) override;
  DriverStatus stream_wait_event(DeviceIndex device, StreamHandle stream,
                                 EventHandle event) override;
  DriverStatus stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                   bool& capturing) override;
  DriverStatus stream_capture_point(DeviceIndex device, StreamHandle stream,
                                    CapturePoint& point) override;
  DriverStatus graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                       std::vector<std::uint64_t>& nodes) override;
  DriverStatus device_synchronize(DeviceIndex device) override;
  DriverStatus event_create(DeviceIndex device, EventHandle& event) override;
  DriverStatus event_destroy(DeviceIndex device, EventHandle event) override;
  DriverStatus event_record(DeviceIndex device, EventHandle event, StreamHandle stream) override;
  DriverStatus event_query(DeviceIndex device, EventHandle event) override;
  DriverStatus event_synchronize(DeviceIndex device, EventHandle event) override;
  DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                          std::uint64_t count, StreamHandle stream) override;
  DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                              std::uint64_t bytes, StreamHandle stream) override;
  DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                            std::uint64_t bytes, StreamHandle stream) override;
  bool knows_contents(DeviceIndex /*device*/, DeviceAddress /*address*/,
                      std::uint64_t /*bytes*/) override {
    return options_.keep_contents;
  }

 private:
  /// Charges the call's time; the lock is held.
  void pay(DriverCall call, std::uint64_t bytes = 0);
  /// Keeps `misuse`, if there is any, and passes the status on.
  DriverStatus judged(DriverStatus status, const std::string& misuse);
  [[nodiscard]] bool known(DeviceIndex device) const;
  /// The stream's index; keeps a violation where there is none.
  std::optional<std::uint32_t> stream_index(DeviceIndex device, StreamHandle stream,
                                            std::string_view call);
  bool known_event(EventHandle event, std::string_view call);
  CapturedGraph* capture_of(StreamHandle stream);
  static std::size_t branch_of(const CapturedGraph& graph, StreamHandle stream);
  void order_streams(DeviceIndex device, std::uint32_t earlier, std::uint32_t later);
  /// A wait while any stream captures, which keeps a violation, as the driver allows it where the
  /// thread says that it knows what it does (CudaDriver does). Not of a stream that captures:
  /// false, and its capture is not valid any more.
  bool may_wait(std::string_view call, std::optional<StreamHandle> stream = {});
  /// Work on a stream that touches one range; the ranges behind it, or nothing after a violation.
  std::optional<std::vector<PhysicalRange>> touch(DeviceIndex device, const Access& access,
                                                  const Stamp& stamp);
  void write_words(const std::vector<PhysicalRange>& ranges, std::uint32_t value);

  SimOptions options_;
  mutable std::mutex mutex_;
  Timeline timeline_;
  MemoryModel memory_;
  AccessChecker checker_;
  std::vector<CapturedGraph> capturing_;
  std::set<EventHandle> captured_;  // events that a capture recorded last
  std::uint64_t captures_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace gapless::simgpu
