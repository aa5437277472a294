// Driver: the calls gapless makes to a GPU, and what each may rely on and must leave behind.
//
// Physical memory and addresses are apart (CUDA's virtual memory management):
//
//   mem_create        handle 7  [ 2 MiB of device memory ]   no address yet
//   address_reserve   0x7f..    [ . . . . . . . . . . . . ]   no memory yet
//   mem_map           0x7f..    [ 7 . . . . . . . . . . . ]   one handle may be mapped many times
//   mem_set_access    0x7f..    [ 7 ]  kernels of the device may now touch it
//
// There are three kinds of Driver: CudaDriver (the real one), simgpu::SimDriver (a simulated GPU),
// and decorators around another Driver (counting, failing on purpose).
//
// Rules for all calls:
// - They return a status and never throw. A call that does not return ok changed nothing.
// - Results are written to the out-parameter only on ok.
// - They may be called from any thread.
// - Work given to a stream runs in order; nothing here waits for the device except the calls that
//   is_host_sync() names.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/driver/status.h"

namespace gapless {

using DeviceIndex = std::int32_t;
/// A device address as an integer.
using DeviceAddress = std::uint64_t;
/// Physical memory made by mem_create; 0 is none.
using MemHandle = std::uint64_t;
/// A stream as CUDA's own pointer value; 0 is the default stream.
using StreamHandle = std::uint64_t;
/// A stream and the device it belongs to: every device has a default stream 0.
struct DeviceStream {
  DeviceIndex device = 0;
  StreamHandle handle = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): the linter sees the 0 that comparisons are made of
  auto operator<=>(const DeviceStream&) const = default;
};
/// An event; 0 is none.
using EventHandle = std::uint64_t;

/// How physical memory may be given to another process.
enum class ShareType : std::uint8_t {
  none,
  fd,      // a POSIX file descriptor, on this machine
  fabric,  // a 64-byte name, also on other machines of an NVLink fabric
};

/// What physical memory is made for.
struct MemKind {
  bool on_host = false;  // in host memory near the device, which the device maps like its own
  ShareType share = ShareType::none;
};

/// Memory that another process may import. A descriptor is owned by whoever holds this.
struct SharedHandle {
  ShareType type = ShareType::none;
  int fd = -1;
  std::array<unsigned char, 64> fabric{};
};

/// How far a stream's part of a graph that is being captured has come.
struct CapturePoint {
  std::uint64_t capture = 0;        // which capture; 0: the stream is not capturing
  std::vector<std::uint64_t> ends;  // the nodes that the stream's next work would come after

  bool operator==(const CapturePoint&) const = default;
};

struct DeviceProperties {
  std::string name;
  std::uint64_t total_bytes = 0;
  /// Virtual memory management: address_reserve to mem_set_access work.
  bool has_vmm = false;
  /// The least size and alignment of mem_create, mem_map and address_reserve; 0 without VMM.
  std::uint64_t granularity_bytes = 0;
  bool can_share_fd = false;
  bool can_share_fabric = false;
  /// MemKind::on_host works.
  bool can_map_host = false;
  std::int32_t compute_major = 0;
  std::int32_t compute_minor = 0;
};

struct MemInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  // --- devices ---------------------------------------------------------------------------------

  virtual DriverStatus device_count(std::int32_t& count) = 0;
  virtual DriverStatus device_properties(DeviceIndex device, DeviceProperties& properties) = 0;
  /// What is free on the device now, other processes' use included.
  virtual DriverStatus mem_info(DeviceIndex device, MemInfo& info) = 0;

  // --- physical memory and addresses -----------------------------------------------------------

  /// pre: bytes > 0 and a multiple of the granularity. post: bytes of device memory (or of host
  /// memory) are charged. out_of_memory where there is not that much left; not_supported where
  /// the device has no such kind.
  virtual DriverStatus mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                                  MemHandle& handle) = 0;
  /// Plain device memory.
  DriverStatus mem_create(DeviceIndex device, std::uint64_t bytes, MemHandle& handle) {
    return mem_create(device, bytes, {}, handle);
  }
  /// The caller gives its hold up. The memory itself goes when its last mapping goes.
  virtual DriverStatus mem_release(MemHandle handle) = 0;
  /// For another process. pre: the handle was created with that ShareType, not none. post: the
  /// memory stays while anyone holds or maps it. A descriptor is the caller's to close.
  virtual DriverStatus mem_export(MemHandle handle, ShareType type, SharedHandle& shared) = 0;
  /// What another process (or this one) exported; a hold of it, given up with mem_release. The
  /// descriptor stays the caller's.
  virtual DriverStatus mem_import(DeviceIndex device, const SharedHandle& shared,
                                  MemHandle& handle) = 0;

  /// pre: bytes > 0, a multiple of the granularity; alignment 0 or a power of two.
  /// post: [address, address + bytes) belongs to the caller and holds no memory.
  virtual DriverStatus address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                                       DeviceAddress& address) = 0;
  /// pre: exactly one reservation, nothing mapped in it.
  virtual DriverStatus address_free(DeviceAddress address, std::uint64_t bytes) = 0;

  /// Maps the whole handle, of `bytes` bytes, at `address`.
  /// pre: inside a reservation, aligned to the granularity, nothing mapped there.
  /// post: mapped, not accessible yet.
  virtual DriverStatus mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) = 0;
  /// pre: the range is made of whole mappings, and no work in flight touches it through these
  /// addresses. post: the range is reserved and empty.
  virtual DriverStatus mem_unmap(DeviceAddress address, std::uint64_t bytes) = 0;
  /// Read and write access for `device` over a range that is mapped without a gap.
  virtual DriverStatus mem_set_access(DeviceAddress address, std::uint64_t bytes,
                                      DeviceIndex device) = 0;

  // --- plain allocation, where there is no VMM -------------------------------------------------

  /// Mapped, accessible memory aligned to 512 B or better.
  virtual DriverStatus mem_alloc(DeviceIndex device, std::uint64_t bytes,
                                 DeviceAddress& address) = 0;
  /// Waits for the device's work first.
  virtual DriverStatus mem_free(DeviceIndex device, DeviceAddress address) = 0;

  // --- streams and events ----------------------------------------------------------------------

  virtual DriverStatus stream_create(DeviceIndex device, StreamHandle& stream) = 0;
  virtual DriverStatus stream_destroy(DeviceIndex device, StreamHandle stream) = 0;
  virtual DriverStatus stream_synchronize(DeviceIndex device, StreamHandle stream) = 0;
  /// Later work of the stream starts after the event's work; the host does not wait.
  virtual DriverStatus stream_wait_event(DeviceIndex device, StreamHandle stream,
                                         EventHandle event) = 0;
  /// Whether work given to the stream goes into a graph that is being captured. Allowed then.
  virtual DriverStatus stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                           bool& capturing) = 0;
  /// Where the stream's capture has come to. Allowed while capturing.
  virtual DriverStatus stream_capture_point(DeviceIndex device, StreamHandle stream,
                                            CapturePoint& point) = 0;
  /// The nodes that a node of a graph that is being captured comes right after.
  virtual DriverStatus graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                               std::vector<std::uint64_t>& nodes) = 0;
  virtual DriverStatus device_synchronize(DeviceIndex device) = 0;

  /// Without timing.
  virtual DriverStatus event_create(DeviceIndex device, EventHandle& event) = 0;
  virtual DriverStatus event_destroy(DeviceIndex device, EventHandle event) = 0;
  /// The event now stands for all work that the stream has been given so far.
  virtual DriverStatus event_record(DeviceIndex device, EventHandle event, StreamHandle stream) = 0;
  /// ok where the event's work is done (or it was never recorded), not_ready where it is not.
  virtual DriverStatus event_query(DeviceIndex device, EventHandle event) = 0;
  virtual DriverStatus event_synchronize(DeviceIndex device, EventHandle event) = 0;

  // --- contents (checks, saving to host memory) ------------------------------------------------

  /// `count` 32-bit words from `address` on become `value`, in stream order.
  virtual DriverStatus memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                                  std::uint64_t count, StreamHandle stream) = 0;
  /// In stream order; the copy is done when the call returns.
  virtual DriverStatus copy_to_device(DeviceIndex device, DeviceAddress target, const void* source,
                                      std::uint64_t bytes, StreamHandle stream) = 0;
  /// After the stream's earlier work; the copy is done when the call returns.
  virtual DriverStatus copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                                    std::uint64_t bytes, StreamHandle stream) = 0;
  /// Whether copy_to_host() would give what a GPU holds there. A simulated GPU does not know what
  /// kernels wrote that it did not run.
  virtual bool knows_contents(DeviceIndex /*device*/, DeviceAddress /*address*/,
                              std::uint64_t /*bytes*/) {
    return true;
  }
};

}  // namespace gapless
