// The driver calls gapless makes, as a list: counted, timed, failed and priced by kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gapless {

/// One entry for each method of Driver. `host_sync` marks the calls in which the host may wait for
/// the device: the stalls that a caching allocator exists to avoid.
enum class DriverCall : std::uint8_t {
  device_count,
  device_properties,
  mem_info,
  mem_create,
  mem_release,
  mem_export,
  mem_import,
  address_reserve,
  address_free,
  mem_map,
  mem_unmap,
  mem_set_access,
  mem_alloc,
  mem_free,
  stream_create,
  stream_destroy,
  stream_synchronize,
  stream_wait_event,
  stream_is_capturing,
  stream_capture_point,
  graph_node_dependencies,
  device_synchronize,
  event_create,
  event_destroy,
  event_record,
  event_query,
  event_synchronize,
  memset_d32,
  copy_to_device,
  copy_to_host,
};

inline constexpr std::size_t kDriverCalls = static_cast<std::size_t>(DriverCall::copy_to_host) + 1;

template <class T>
using PerDriverCall = std::array<T, kDriverCalls>;

/// "mem_create": the name used in tables, JSON and cost profiles.
std::string_view name_of(DriverCall call);
/// "cuMemCreate": what the CUDA driver calls it.
std::string_view cuda_name_of(DriverCall call);
/// The call with that name_of(); nothing where there is none.
std::optional<DriverCall> driver_call_named(std::string_view name);
/// Whether the host waits for the device in it (cuMemFree and cuMemcpy included).
bool is_host_sync(DriverCall call);

}  // namespace gapless
