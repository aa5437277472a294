#include "allocator/driver/call.h"

namespace gapless {
namespace {

struct CallFacts {
  std::string_view name;
  std::string_view cuda_name;
  bool host_sync;
};

constexpr PerDriverCall<CallFacts> kFacts = {{
    {"device_count", "cuDeviceGetCount", false},
    {"device_properties", "cuDeviceGetAttribute", false},
    {"mem_info", "cuMemGetInfo", false},
    {"mem_create", "cuMemCreate", false},
    {"mem_release", "cuMemRelease", false},
    {"mem_export", "cuMemExportToShareableHandle", false},
    {"mem_import", "cuMemImportFromShareableHandle", false},
    {"address_reserve", "cuMemAddressReserve", false},
    {"address_free", "cuMemAddressFree", false},
    {"mem_map", "cuMemMap", false},
    {"mem_unmap", "cuMemUnmap", false},
    {"mem_set_access", "cuMemSetAccess", false},
    {"mem_alloc", "cuMemAlloc", false},
    {"mem_free", "cuMemFree", true},
    {"stream_create", "cuStreamCreate", false},
    {"stream_destroy", "cuStreamDestroy", false},
    {"stream_synchronize", "cuStreamSynchronize", true},
    {"stream_wait_event", "cuStreamWaitEvent", false},
    {"stream_is_capturing", "cuStreamIsCapturing", false},
    {"stream_capture_point", "cuStreamGetCaptureInfo", false},
    {"graph_node_dependencies", "cuGraphNodeGetDependencies", false},
    {"device_synchronize", "cuCtxSynchronize", true},
    {"event_create", "cuEventCreate", false},
    {"event_destroy", "cuEventDestroy", false},
    {"event_record", "cuEventRecord", false},
    {"event_query", "cuEventQuery", false},
    {"event_synchronize", "cuEventSynchronize", true},
    {"memset_d32", "cuMemsetD32Async", false},
    {"copy_to_device", "cuMemcpyHtoD", true},
    {"copy_to_host", "cuMemcpyDtoH", true},
}};

const CallFacts& facts(DriverCall call) { return kFacts[static_cast<std::size_t>(call)]; }

}  // namespace

std::string_view name_of(DriverCall call) { return facts(call).name; }
std::string_view cuda_name_of(DriverCall call) { return facts(call).cuda_name; }
bool is_host_sync(DriverCall call) { return facts(call).host_sync; }

std::optional<DriverCall> driver_call_named(std::string_view name) {
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    if (kFacts[i].name == name) return static_cast<DriverCall>(i);
  }
  return {};
}

}  // namespace gapless
