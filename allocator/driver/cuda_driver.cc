#include "allocator/driver/cuda_driver.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "allocator/driver/cuda_abi.h"

namespace gapless {

namespace abi = cuda_abi;

// The functions, named as CUDA names them less the "cu".
struct CudaDriver::Api {
  void* library = nullptr;

  abi::Result (*init)(unsigned flags) = nullptr;
  abi::Result (*device_get)(abi::Device*, int) = nullptr;
  abi::Result (*device_get_count)(int*) = nullptr;
  abi::Result (*device_get_name)(char*, int, abi::Device) = nullptr;
  abi::Result (*device_total_mem)(std::size_t*, abi::Device) = nullptr;
  abi::Result (*device_get_attribute)(int*, int, abi::Device) = nullptr;
  abi::Result (*primary_ctx_retain)(abi::Context*, abi::Device) = nullptr;
  abi::Result (*primary_ctx_release)(abi::Device) = nullptr;
  abi::Result (*ctx_push_current)(abi::Context) = nullptr;
  abi::Result (*ctx_pop_current)(abi::Context*) = nullptr;
  abi::Result (*ctx_synchronize)() = nullptr;
  abi::Result (*mem_get_info)(std::size_t*, std::size_t*) = nullptr;
  abi::Result (*mem_get_allocation_granularity)(std::size_t*, const abi::MemAllocationProp*,
                                                int) = nullptr;
  abi::Result (*mem_create)(abi::AllocationHandle*, std::size_t, const abi::MemAllocationProp*,
                            unsigned long long) = nullptr;
  abi::Result (*mem_release)(abi::AllocationHandle) = nullptr;
  abi::Result (*mem_export)(void*, abi::AllocationHandle, int, unsigned long long) = nullptr;
  abi::Result (*mem_import)(abi::AllocationHandle*, void*, int) = nullptr;
  abi::Result (*mem_address_reserve)(abi::DevicePtr*, std::size_t, std::size_t, abi::DevicePtr,
                                     unsigned long long) = nullptr;
  abi::Result (*mem_address_free)(abi::DevicePtr, std::size_t) = nullptr;
  abi::Result (*mem_map)(abi::DevicePtr, std::size_t, std::size_t, abi::AllocationHandle,
                         unsigned long long) = nullptr;
  abi::Result (*mem_unmap)(abi::DevicePtr, std::size_t) = nullptr;
  abi::Result (*mem_set_access)(abi::DevicePtr, std::size_t, const abi::MemAccessDesc*,
                                std::size_t) = nullptr;
  abi::Result (*mem_alloc)(abi::DevicePtr*, std::size_t) = nullptr;
  abi::Result (*mem_free)(abi::DevicePtr) = nullptr;
  abi::Result (*stream_create)(abi::Stream*, unsigned) = nullptr;
  abi::Result (*stream_destroy)(abi::Stream) = nullptr;
  abi::Result (*stream_synchronize)(abi::Stream) = nullptr;
  abi::Result (*stream_wait_event)(abi::Stream, abi::Event, unsigned) = nullptr;
  abi::Result (*stream_is_capturing)(abi::Stream, int*) = nullptr;
  abi::Result (*stream_get_capture_info)(abi::Stream, int*, std::uint64_t*, abi::Graph*,
                                         const abi::GraphNode**, std::size_t*) = nullptr;
  abi::Result (*graph_node_get_dependencies)(abi::GraphNode, abi::GraphNode*,
                                             std::size_t*) = nullptr;
  abi::Result (*exchange_capture_mode)(int*) = nullptr;
  abi::Result (*event_create)(abi::Event*, unsigned) = nullptr;
  abi::Result (*event_destroy)(abi::Event) = nullptr;
  abi::Result (*event_record)(abi::Event, abi::Stream) = nullptr;
  abi::Result (*event_query)(abi::Event) = nullptr;
  abi::Result (*event_synchronize)(abi::Event) = nullptr;
  abi::Result (*memset_d32_async)(abi::DevicePtr, unsigned, std::size_t, abi::Stream) = nullptr;
  abi::Result (*memcpy_htod_async)(abi::DevicePtr, const void*, std::size_t, abi::Stream) = nullptr;
  abi::Result (*memcpy_dtoh_async)(void*, abi::DevicePtr, std::size_t, abi::Stream) = nullptr;
  // Of the simulated GPU only (simgpu/process/process.cc).
  int (*simgpu_knows)(abi::DevicePtr, std::size_t) = nullptr;

  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  ~Api() {
    if (library != nullptr) dlclose(library);
  }

  bool load(std::string& error);
};

// While any stream of the process captures a graph in the usual mode, other threads may not make
// calls that could wait for it. What gapless calls then waits for nothing, and says so.
class CudaDriver::Relaxed {
 public:
  explicit Relaxed(const Api& api) : api_(api) { api_.exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  ~Relaxed() { api_.exchange_capture_mode(&mode_); }

 private:
  const Api& api_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; then the thread's own
};

// The primary context of each device, retained when first needed.
struct CudaDriver::Contexts {
  std::mutex mutex;
  std::vector<abi::Context> of_device;
};

namespace {

DriverStatus status_of(abi::Result result) { return static_cast<DriverStatus>(result); }

abi::Stream stream_of(StreamHandle handle) {
  return reinterpret_cast<abi::Stream>(handle);  // NOLINT(performance-no-int-to-ptr)
}
abi::Event event_of(EventHandle handle) {
  return reinterpret_cast<abi::Event>(handle);  // NOLINT(performance-no-int-to-ptr)
}

abi::MemAllocationProp pinned_on(DeviceIndex device) {
  abi::MemAllocationProp prop{};
  prop.type = abi::kAllocationTypePinned;
  prop.location = {abi::kLocationTypeDevice, device};
  return prop;
}

int handle_type_of(ShareType type) {
  switch (type) {
    case ShareType::fd:
      return abi::kHandleTypeFd;
    case ShareType::fabric:
      return abi::kHandleTypeFabric;
    case ShareType::none:
      break;
  }
  return abi::kHandleTypeNone;
}

}  // namespace

bool CudaDriver::Api::load(std::string& error) {
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    error = std::string("no CUDA driver: ") + (reason != nullptr ? reason : "libcuda.so.1");
    return false;
  }
  // Version 2 of cuGetProcAddress also says why a symbol is missing; either gives the function in
  // the form it had in the CUDA version named.
  using GetProcV2 = abi::Result (*)(const char*, void**, int, std::uint64_t, int*);
  using GetProcV1 = abi::Result (*)(const char*, void**, int, std::uint64_t);
  const auto get_v2 = reinterpret_cast<GetProcV2>(dlsym(library, "cuGetProcAddress_v2"));
  const auto get_v1 = reinterpret_cast<GetProcV1>(dlsym(library, "cuGetProcAddress"));
  if (get_v2 == nullptr && get_v1 == nullptr) {
    error = "libcuda.so.1 has no cuGetProcAddress: the driver is older than CUDA 11.3";
    return false;
  }
  constexpr int kVersion = 11030;
  const auto find = [&](auto& function, const char* name) {
    void* address = nullptr;
    int found = 0;
    const abi::Result result = get_v2 != nullptr ? get_v2(name, &address, kVersion, 0, &found)
                                                 : get_v1(name, &address, kVersion, 0);
    if (result != 0 || address == nullptr) {
      if (error.empty()) error = std::string("libcuda.so.1 has no ") + name;
      return;
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(init, "cuInit");
  find(device_get, "cuDeviceGet");
  find(device_get_count, "cuDeviceGetCount");
  find(device_get_name, "cuDeviceGetName");
  find(device_total_mem, "cuDeviceTotalMem");
  find(device_get_attribute, "cuDeviceGetAttribute");
  find(primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  find(primary_ctx_release, "cuDevicePrimaryCtxRelease");
  find(ctx_push_current, "cuCtxPushCurrent");
  find(ctx_pop_current, "cuCtxPopCurrent");
  find(ctx_synchronize, "cuCtxSynchronize");
  find(mem_get_info, "cuMemGetInfo");
  find(mem_get_allocation_granularity, "cuMemGetAllocationGranularity");
  find(mem_create, "cuMemCreate");
  find(mem_release, "cuMemRelease");
  find(mem_export, "cuMemExportToShareableHandle");
  find(mem_import, "cuMemImportFromShareableHandle");
  find(mem_address_reserve, "cuMemAddressReserve");
  find(mem_address_free, "cuMemAddressFree");
  find(mem_map, "cuMemMap");
  find(mem_unmap, "cuMemUnmap");
  find(mem_set_access, "cuMemSetAccess");
  find(mem_alloc, "cuMemAlloc");
  find(mem_free, "cuMemFree");
  find(stream_create, "cuStreamCreate");
  find(stream_destroy, "cuStreamDestroy");
  find(stream_synchronize, "cuStreamSynchronize");
  find(stream_wait_event, "cuStreamWaitEvent");
  find(stream_is_capturing, "cuStreamIsCapturing");
  find(stream_get_capture_info, "cuStreamGetCaptureInfo");
  find(graph_node_get_dependencies, "cuGraphNodeGetDependencies");
  find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(event_create, "cuEventCreate");
  find(event_destroy, "cuEventDestroy");
  find(event_record, "cuEventRecord");
  find(event_query, "cuEventQuery");
  find(event_synchronize, "cuEventSynchronize");
  find(memset_d32_async, "cuMemsetD32Async");
  find(memcpy_htod_async, "cuMemcpyHtoDAsync");
  find(memcpy_dtoh_async, "cuMemcpyDtoHAsync");
  simgpu_knows = reinterpret_cast<decltype(simgpu_knows)>(dlsym(library, "simgpu_knows"));
  return error.empty();
}

CudaDriver::CudaDriver(std::unique_ptr<Api> api, std::unique_ptr<Contexts> contexts)
    : api_(std::move(api)), contexts_(std::move(contexts)) {}

CudaDriver::~CudaDriver() {
  for (std::size_t i = 0; i < contexts_->of_device.size(); ++i) {
    if (contexts_->of_device[i] != nullptr) api_->primary_ctx_release(static_cast<int>(i));
  }
}

std::unique_ptr<CudaDriver> CudaDriver::open(std::string& error) {
  error.clear();
  auto api = std::make_unique<Api>();
  if (!api->load(error)) return nullptr;
  if (const abi::Result result = api->init(0); result != 0) {
    error = std::string("cuInit failed: ") + to_string(status_of(result));
    return nullptr;
  }
  int count = 0;
  if (const abi::Result result = api->device_get_count(&count); result != 0 || count == 0) {
    error = "the CUDA driver finds no device";
    return nullptr;
  }
  auto contexts = std::make_unique<Contexts>();
  contexts->of_device.resize(static_cast<std::size_t>(count), nullptr);
  return std::unique_ptr<CudaDriver>(new CudaDriver(std::move(api), std::move(contexts)));
}

template <class F>
DriverStatus CudaDriver::on_device(DeviceIndex device, F&& call) {
  abi::Context context = nullptr;
  {
    const std::scoped_lock lock(contexts_->mutex);
    if (device < 0 || static_cast<std::size_t>(device) >= contexts_->of_device.size()) {
      return DriverStatus::invalid_device;
    }
    abi::Context& kept = contexts_->of_device[static_cast<std::size_t>(device)];
    if (kept == nullptr) {
      const abi::Result result = api_->primary_ctx_retain(&kept, device);
      if (result != 0) {
        kept = nullptr;
        return status_of(result);
      }
    }
    context = kept;
  }
  const Relaxed relaxed(*api_);
  if (const abi::Result result = api_->ctx_push_current(context); result != 0) {
    return status_of(result);
  }
  const abi::Result result = std::forward<F>(call)();
  abi::Context popped = nullptr;
  api_->ctx_pop_current(&popped);
  return status_of(result);
}

DriverStatus CudaDriver::device_count(std::int32_t& count) {
  return status_of(api_->device_get_count(&count));
}

DriverStatus CudaDriver::device_properties(DeviceIndex device, DeviceProperties& properties) {
  abi::Device id = 0;
  if (const abi::Result result = api_->device_get(&id, device); result != 0) {
    return status_of(result);
  }
  DeviceProperties found;
  std::array<char, 256> name{};
  std::size_t total = 0;
  int vmm = 0;
  abi::Result result = api_->device_get_name(name.data(), static_cast<int>(name.size()), id);
  if (result == 0) result = api_->device_total_mem(&total, id);
  if (result == 0) {
    result = api_->device_get_attribute(&vmm, abi::kAttributeVirtualMemoryManagementSupported, id);
  }
  if (result == 0) {
    result =
        api_->device_get_attribute(&found.compute_major, abi::kAttributeComputeCapabilityMajor, id);
  }
  if (result == 0) {
    result =
        api_->device_get_attribute(&found.compute_minor, abi::kAttributeComputeCapabilityMinor, id);
  }
  if (result != 0) return status_of(result);
  const auto has = [&](int attribute) {  // older drivers do not know all of these
    int value = 0;
    return api_->device_get_attribute(&value, attribute, id) == 0 && value > 0;
  };
  found.can_share_fd = has(abi::kAttributeFdSupported);
  found.can_share_fabric = has(abi::kAttributeFabricSupported);
  found.can_map_host = has(abi::kAttributeHostNumaVmmSupported);
  found.name = name.data();
  found.total_bytes = total;
  found.has_vmm = vmm != 0;
  if (found.has_vmm) {
    const abi::MemAllocationProp prop = pinned_on(device);
    std::size_t granularity = 0;
    result = api_->mem_get_allocation_granularity(&granularity, &prop, abi::kGranularityMinimum);
    if (result != 0) return status_of(result);
    found.granularity_bytes = granularity;
  }
  properties = found;
  return DriverStatus::ok;
}

DriverStatus CudaDriver::mem_info(DeviceIndex device, MemInfo& info) {
  std::size_t free = 0;
  std::size_t total = 0;
  const DriverStatus status = on_device(device, [&] { return api_->mem_get_info(&free, &total); });
  if (status == DriverStatus::ok) info = {free, total};
  return status;
}

DriverStatus CudaDriver::mem_create(DeviceIndex device, std::uint64_t bytes, const MemKind& kind,
                                    MemHandle& handle) {
  const Relaxed relaxed(*api_);
  abi::MemAllocationProp prop = pinned_on(device);
  prop.requested_handle_types = handle_type_of(kind.share);
  if (kind.on_host) {
    int node = 0;
    const abi::Result result = api_->device_get_attribute(&node, abi::kAttributeHostNumaId, device);
    if (result != 0) return status_of(result);
    prop.location = {abi::kLocationTypeHostNuma, std::max(node, 0)};
  } else {
    int rdma = 0;  // network cards may reach what is made with this
    (void)api_->device_get_attribute(&rdma, abi::kAttributeRdmaWithVmmSupported, device);
    prop.alloc_flags.gpu_direct_rdma_capable = rdma != 0 ? 1 : 0;
  }
  abi::AllocationHandle made = 0;
  const abi::Result result = api_->mem_create(&made, bytes, &prop, 0);
  if (result == 0) handle = made;
  return status_of(result);
}

DriverStatus CudaDriver::mem_release(MemHandle handle) {
  const Relaxed relaxed(*api_);
  return status_of(api_->mem_release(handle));
}

DriverStatus CudaDriver::mem_export(MemHandle handle, ShareType type, SharedHandle& shared) {
  const Relaxed relaxed(*api_);
  SharedHandle made{.type = type};
  void* const target =
      type == ShareType::fd ? static_cast<void*>(&made.fd) : static_cast<void*>(made.fabric.data());
  const abi::Result result = api_->mem_export(target, handle, handle_type_of(type), 0);
  if (result == 0) shared = made;
  return status_of(result);
}

DriverStatus CudaDriver::mem_import(DeviceIndex device, const SharedHandle& shared,
                                    MemHandle& handle) {
  SharedHandle from = shared;
  // A descriptor is passed in the pointer itself.
  void* const source = shared.type == ShareType::fd
                           ? reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
                                 static_cast<std::intptr_t>(shared.fd))
                           : static_cast<void*>(from.fabric.data());
  abi::AllocationHandle made = 0;
  const DriverStatus status = on_device(
      device, [&] { return api_->mem_import(&made, source, handle_type_of(shared.type)); });
  if (status == DriverStatus::ok) handle = made;
  return status;
}

DriverStatus CudaDriver::address_reserve(std::uint64_t bytes, std::uint64_t alignment,
                                         DeviceAddress& address) {
  const Relaxed relaxed(*api_);
  abi::DevicePtr reserved = 0;
  const abi::Result result = api_->mem_address_reserve(&reserved, bytes, alignment, 0, 0);
  if (result == 0) address = reserved;
  return status_of(result);
}

DriverStatus CudaDriver::address_free(DeviceAddress address, std::uint64_t bytes) {
  const Relaxed relaxed(*api_);
  return status_of(api_->mem_address_free(address, bytes));
}

DriverStatus CudaDriver::mem_map(DeviceAddress address, std::uint64_t bytes, MemHandle handle) {
  const Relaxed relaxed(*api_);
  return status_of(api_->mem_map(address, bytes, 0, handle, 0));
}

DriverStatus CudaDriver::mem_unmap(DeviceAddress address, std::uint64_t bytes) {
  const Relaxed relaxed(*api_);
  return status_of(api_->mem_unmap(address, bytes));
}

DriverStatus CudaDriver::mem_set_access(DeviceAddress address, std::uint64_t bytes,
                                        DeviceIndex device) {
  const Relaxed relaxed(*api_);
  const abi::MemAccessDesc access{{abi::kLocationTypeDevice, device}, abi::kAccessReadWrite};
  return status_of(api_->mem_set_access(address, bytes, &access, 1));
}

DriverStatus CudaDriver::mem_alloc(DeviceIndex device, std::uint64_t bytes,
                                   DeviceAddress& address) {
  abi::DevicePtr pointer = 0;
  const DriverStatus status = on_device(device, [&] { return api_->mem_alloc(&pointer, bytes); });
  if (status == DriverStatus::ok) address = pointer;
  return status;
}

DriverStatus CudaDriver::mem_free(DeviceIndex device, DeviceAddress address) {
  return on_device(device, [&] { return api_->mem_free(address); });
}

DriverStatus CudaDriver::stream_create(DeviceIndex device, StreamHandle& stream) {
  abi::Stream made = nullptr;
  const DriverStatus status =
      on_device(device, [&] { return api_->stream_create(&made, abi::kStreamNonBlocking); });
  if (status == DriverStatus::ok) stream = reinterpret_cast<StreamHandle>(made);
  return status;
}

DriverStatus CudaDriver::stream_destroy(DeviceIndex device, StreamHandle stream) {
  return on_device(device, [&] { return api_->stream_destroy(stream_of(stream)); });
}

DriverStatus CudaDriver::stream_synchronize(DeviceIndex device, StreamHandle stream) {
  return on_device(device, [&] { return api_->stream_synchronize(stream_of(stream)); });
}

DriverStatus CudaDriver::stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                             bool& capturing) {
  int status = 0;  // CUstreamCaptureStatus: none, active, invalidated
  const DriverStatus result =
      on_device(device, [&] { return api_->stream_is_capturing(stream_of(stream), &status); });
  if (result == DriverStatus::ok) capturing = status != 0;
  return result;
}

DriverStatus CudaDriver::stream_capture_point(DeviceIndex device, StreamHandle stream,
                                              CapturePoint& point) {
  int status = 0;
  std::uint64_t capture = 0;
  abi::Graph graph = nullptr;
  const abi::GraphNode* ends = nullptr;
  std::size_t count = 0;
  const DriverStatus result = on_device(device, [&] {
    return api_->stream_get_capture_info(stream_of(stream), &status, &capture, &graph, &ends,
                                         &count);
  });
  if (result != DriverStatus::ok) return result;
  point = {};
  if (status != 1) return result;  // CU_STREAM_CAPTURE_STATUS_ACTIVE
  point.capture = capture;
  for (std::size_t i = 0; i < count; ++i) {
    point.ends.push_back(reinterpret_cast<std::uint64_t>(ends[i]));
  }
  return result;
}

DriverStatus CudaDriver::graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                                 std::vector<std::uint64_t>& nodes) {
  auto* const of = reinterpret_cast<abi::GraphNode>(node);  // NOLINT(performance-no-int-to-ptr)
  return on_device(device, [&] {
    std::size_t count = 0;
    abi::Result result = api_->graph_node_get_dependencies(of, nullptr, &count);
    if (result != 0) return result;
    std::vector<abi::GraphNode> found(count, nullptr);
    result = count == 0 ? 0 : api_->graph_node_get_dependencies(of, found.data(), &count);
    if (result != 0) return result;
    nodes.clear();
    for (const abi::GraphNode one : found) nodes.push_back(reinterpret_cast<std::uint64_t>(one));
    return result;
  });
}

DriverStatus CudaDriver::stream_wait_event(DeviceIndex device, StreamHandle stream,
                                           EventHandle event) {
  return on_device(device,
                   [&] { return api_->stream_wait_event(stream_of(stream), event_of(event), 0); });
}

DriverStatus CudaDriver::device_synchronize(DeviceIndex device) {
  return on_device(device, [&] { return api_->ctx_synchronize(); });
}

DriverStatus CudaDriver::event_create(DeviceIndex device, EventHandle& event) {
  abi::Event made = nullptr;
  const DriverStatus status =
      on_device(device, [&] { return api_->event_create(&made, abi::kEventDisableTiming); });
  if (status == DriverStatus::ok) event = reinterpret_cast<EventHandle>(made);
  return status;
}

DriverStatus CudaDriver::event_destroy(DeviceIndex device, EventHandle event) {
  return on_device(device, [&] { return api_->event_destroy(event_of(event)); });
}

DriverStatus CudaDriver::event_record(DeviceIndex device, EventHandle event, StreamHandle stream) {
  return on_device(device, [&] { return api_->event_record(event_of(event), stream_of(stream)); });
}

DriverStatus CudaDriver::event_query(DeviceIndex device, EventHandle event) {
  return on_device(device, [&] { return api_->event_query(event_of(event)); });
}

DriverStatus CudaDriver::event_synchronize(DeviceIndex device, EventHandle event) {
  return on_device(device, [&] { return api_->event_synchronize(event_of(event)); });
}

DriverStatus CudaDriver::memset_d32(DeviceIndex device, DeviceAddress address, std::uint32_t value,
                                    std::uint64_t count, StreamHandle stream) {
  return on_device(
      device, [&] { return api_->memset_d32_async(address, value, count, stream_of(stream)); });
}

DriverStatus CudaDriver::copy_to_device(DeviceIndex device, DeviceAddress target,
                                        const void* source, std::uint64_t bytes,
                                        StreamHandle stream) {
  return on_device(device, [&] {
    const abi::Result result = api_->memcpy_htod_async(target, source, bytes, stream_of(stream));
    return result != 0 ? result : api_->stream_synchronize(stream_of(stream));
  });
}

DriverStatus CudaDriver::copy_to_host(DeviceIndex device, void* target, DeviceAddress source,
                                      std::uint64_t bytes, StreamHandle stream) {
  return on_device(device, [&] {
    const abi::Result result = api_->memcpy_dtoh_async(target, source, bytes, stream_of(stream));
    return result != 0 ? result : api_->stream_synchronize(stream_of(stream));
  });
}

bool CudaDriver::knows_contents(DeviceIndex /*device*/, DeviceAddress address,
                                std::uint64_t bytes) {
  return api_->simgpu_knows == nullptr || api_->simgpu_knows(address, bytes) != 0;
}

}  // namespace gapless
