#include "torch_plugin/adapter/torch_allocator.h"

#include <cstdlib>

#include <c10/core/impl/GPUTrace.h>

#include "allocator/c_api.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/live/live.h"
#include "torch_plugin/adapter/call_sites.h"
#include "torch_plugin/adapter/memory_kernels.h"
#include "torch_plugin/adapter/newer.h"
#include "torch_plugin/adapter/pickled_snapshot.h"
#include "torch_plugin/adapter/python_stack.h"
#include "torch_plugin/adapter/settings.h"

namespace gapless::torch_plugin {
namespace {

// PyTorch's one_exa_bytes: nobody means that.
constexpr std::uint64_t kMostBytes = std::uint64_t{1152921504606846976};

// Negative sizes are such, too.
void check_size(std::uint64_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kMostBytes,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
}

// C10_CUDA_CHECK calls a function in any case, which looks for failed kernels.
c10::DeviceIndex current_device() {
  c10::DeviceIndex device = 0;
  if (const cudaError_t error = c10::cuda::GetDevice(&device); error != cudaSuccess) [[unlikely]]
    C10_CUDA_CHECK(error);
  return device;
}

// A thread mostly frees memory of one device: that one is asked first whose block it is.
std::size_t& last_freed_on() {
  thread_local std::size_t device = 0;
  return device;
}

void trace_allocation(const void* pointer) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
}
void trace_deallocation(const void* pointer) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
    (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
  }
}

}  // namespace

TorchAllocator*& installed() {
  static TorchAllocator* allocator = nullptr;
  return allocator;
}

void delete_block(void* pointer) { installed()->raw_delete(pointer); }

TorchAllocator::TorchAllocator(const Options& options, CUDAAllocator* previous)
    : options_(options),
      previous_(previous),
      earlier_(previous),
      caching_(std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr) {}

void TorchAllocator::init(int device_count) {
  const std::scoped_lock lock(mutex_);
  if (core_ != nullptr) return;
  std::string error;
  std::unique_ptr<Driver> driver = CudaDriver::open(error);
  TORCH_CHECK(driver != nullptr, "gapless: ", error);
  gapless_allocator* handle = nullptr;
  TORCH_CHECK(create_over(std::move(driver), options_, &handle) == GAPLESS_OK,
              "gapless: ", gapless_last_error());
  Core& core = allocator_of(*handle);
  TORCH_CHECK(core.devices() >= device_count, "gapless: the driver has ", core.devices(),
              " devices, PyTorch ", device_count);
  history_ = std::make_unique<History>(core.devices());
  sharing_ = std::make_unique<Sharing>(driver_of(*handle));
  fractions_.assign(static_cast<std::size_t>(core.devices()), settings::memory_fraction());
  for (const auto& action : at_init_) action(*history_);
  at_init_.clear();
  for (DeviceIndex device = 0; device < core.devices(); ++device) {
    devices_.push_back(core.device(device));
  }
  handle_ = handle;
  core_ = &core;
  live_of(*handle).set_stack_source(python_stack);
  live_of(*handle).set_snapshot(pickled_snapshot);
  after_fork_ = std::make_unique<AfterFork>([this] { leave(); });
  for (DeviceIndex device = 0; device < core.devices(); ++device) prepare(device);
}

void TorchAllocator::prepare(DeviceIndex device) {
  apply_limit(device);
  if (tells_captures()) core_of(device).expect_capture_marks();
  core_of(device).add_free_memory_callback([] {
    bool freed = false;
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed = c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute() || freed;
    }
    return freed;
  });
  core_of(device).add_free_memory_callback([this] { return earlier_.give_back(); });
  if (core_of(device).checks()) {
    core_of(device).set_call_site_source(call_site);
    core_of(device).set_memory_comparer(memory_kernels(device));
    history_->watch_always();
  }
  core_of(device).set_mapping_observer([this, device](const MappingChange& change) {
    if (history_->watching()) history_->record_mapping(device, change);
  });
}

bool TorchAllocator::initialized() { return core_ != nullptr; }

void TorchAllocator::leave() {
  // Looked at by every request and every free as it is: neither gets slower by it.
  core_ = nullptr;
  devices_.clear();
  forked_ = true;
  earlier_.leave();
}

void TorchAllocator::refuse_in_child() const {
  TORCH_CHECK(!forked_, "gapless: ", ForkedChild().what());
}

void TorchAllocator::no_device(DeviceIndex device) const {
  refuse_in_child();
  TORCH_CHECK(false, "Allocator not initialized for device ", device, ": did you call init?");
}

DeviceCore* TorchAllocator::find(const void* pointer, DeviceIndex& device, BlockFacts& facts) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (const auto found = devices_[i]->find_block(address_of(pointer))) {
      device = static_cast<DeviceIndex>(i);
      facts = *found;
      return devices_[i];
    }
  }
  return nullptr;
}

// --- allocation ----------------------------------------------------------------------------------

inline void* TorchAllocator::alloc(DeviceIndex device, std::uint64_t bytes, cudaStream_t stream) {
  DeviceCore& core = core_of(device);
  Usage usage;
  void* pointer = nullptr;
  if (history_->watching()) [[unlikely]] {
    pointer = alloc_watched(device, bytes, stream, usage);
  } else {
    DeviceAddress address = 0;
    const std::uint64_t rounded = settings::rounded_bytes(bytes);
    const Status status = core.alloc(bytes, handle_of(stream), address, rounded, &usage);
    if (status != Status::ok) [[unlikely]]
      fail(device, bytes, rounded, stream, status, nullptr);
    pointer = pointer_of(address);
  }
  tell_profiler(device, pointer, static_cast<std::int64_t>(usage.block_bytes), usage);
  trace_allocation(pointer);
  return pointer;
}

void* TorchAllocator::alloc_watched(DeviceIndex device, std::uint64_t bytes, cudaStream_t stream,
                                    Usage& usage, DeviceAddress at) {
  Context context = history_->gather(torch_cuda::RecordContext::STATE);
  DeviceAddress address = at;
  const std::uint64_t rounded = settings::rounded_bytes(bytes);
  Status status = Status::ok;
  DeviceCore& core = core_of(device);
  core.note_caller();
  {
    const auto watch = history_->watch(device);
    history_->set_cause(device, context);
    status = at == 0 ? core.alloc(bytes, handle_of(stream), address, rounded, &usage)
                     : core.alloc_at(bytes, handle_of(stream), at, &usage);
    history_->set_cause(device, nullptr);
    if (status == Status::ok) {
      const auto facts = core_of(device).find_block(address);
      record(device, TraceEntry::ALLOC, pointer_of(address), bytes, handle_of(stream), facts->pool,
             context);
      history_->keep_context(device, pointer_of(address), std::move(context));
    }
  }
  if (status == Status::ok) return pointer_of(address);
  if (at != 0) return nullptr;
  fail(device, bytes, rounded, stream, status, std::move(context));
}

void TorchAllocator::tell_profiler(DeviceIndex device, void* pointer, std::int64_t bytes,
                                   const Usage& usage) {
  c10::reportMemoryUsageToProfiler(pointer, bytes, usage.allocated_bytes, usage.reserved_bytes,
                                   c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

c10::DataPtr TorchAllocator::allocate(size_t bytes) {
  check_size(bytes);
  const c10::DeviceIndex device = current_device();
  const c10::Device where(c10::kCUDA, device);
  if (!caching_) [[unlikely]] {
    void* const pointer = alloc_uncached(bytes);
    return {pointer, pointer, &delete_block, where};
  }
  void* pointer = nullptr;
  if (bytes != 0) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
    if (goes_earlier(device, stream)) [[unlikely]]
      return previous_->allocate(bytes);
    pointer = alloc(device, bytes, stream);
  }
  return {pointer, pointer, &delete_block, where};
}

c10::DataPtr TorchAllocator::allocateWithAddress(size_t bytes, void* address) {
  const c10::DeviceIndex device = current_device();
  const c10::Device where(c10::kCUDA, device);
  if (bytes == 0) return {nullptr, nullptr, &delete_block, where};
  const DeviceAddress at = address_of(address);
  TORCH_CHECK(at % kUnitBytes == 0, "gapless: allocateWithAddress: ", address,
              " is not aligned to ", kUnitBytes, " bytes");
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
  Usage usage;
  void* pointer = nullptr;
  if (caching_ && at != 0 && history_->watching()) {
    pointer = alloc_watched(device, bytes, stream, usage, at);
  } else if (caching_ && at != 0 &&
             core_of(device).alloc_at(bytes, handle_of(stream), at, &usage) == Status::ok) {
    pointer = address;
  }
  TORCH_CHECK(pointer != nullptr, "Could not allocate CUDA storage at exact address ", address,
              ": the ", bytes, " bytes there are not free memory of this stream");
  tell_profiler(device, pointer, static_cast<std::int64_t>(usage.block_bytes), usage);
  trace_allocation(pointer);
  return {pointer, pointer, &delete_block, where};
}

c10::DeleterFnPtr TorchAllocator::raw_deleter() const { return &delete_block; }

void TorchAllocator::copy_data(void* target, const void* source, std::size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(target, source, count, cudaMemcpyDeviceToDevice));
}

void* TorchAllocator::raw_alloc(size_t bytes) {
  return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(current_device()));
}

void* TorchAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  check_size(bytes);
  if (!caching_) [[unlikely]]
    return alloc_uncached(bytes);
  const c10::DeviceIndex device = current_device();
  if (goes_earlier(device, stream)) [[unlikely]]
    return previous_->raw_alloc_with_stream(bytes, stream);
  return alloc(device, bytes, stream);
}

// --- frees ---------------------------------------------------------------------------------------

inline void TorchAllocator::trace_deallocation_of_block(const void* pointer) {
  if (c10::impl::GPUTrace::get_trace() == nullptr) [[likely]]
    return;
  DeviceIndex device = 0;
  BlockFacts facts;
  if (find(pointer, device, facts) != nullptr) trace_deallocation(pointer);
}

void TorchAllocator::raw_delete(void* pointer) {
  if (pointer == nullptr) return;
  if (core_ == nullptr) return forked_ ? void() : free_elsewhere(pointer);
  trace_deallocation_of_block(pointer);
  if (history_->watching()) [[unlikely]] {
    if (!free_watched(pointer)) free_elsewhere(pointer);
    return;
  }
  const DeviceAddress address = address_of(pointer);
  sharing_->before_free(address);
  const std::size_t devices = devices_.size();
  std::size_t device = devices == 1 ? 0 : last_freed_on();
  Usage usage;
  for (std::size_t asked = 0; devices_[device]->free(address, &usage) != Status::ok;) {
    if (++asked == devices) return free_elsewhere(pointer);
    device = device + 1 == devices ? 0 : device + 1;
  }
  if (devices != 1) last_freed_on() = device;
  tell_profiler(static_cast<DeviceIndex>(device), pointer,
                -static_cast<std::int64_t>(usage.block_bytes), usage);
}

bool TorchAllocator::free_watched(void* pointer) {
  const Context context = history_->gather(torch_cuda::RecordContext::ALL);
  Context kept;  // goes after the lock
  const DeviceAddress address = address_of(pointer);
  for (DeviceIndex device = 0; device < core_->devices(); ++device) {
    DeviceCore& allocator = *core_->device(device);
    Usage usage;
    {
      const auto watch = history_->watch(device);
      const auto found = allocator.find_block(address);
      if (!found) continue;
      sharing_->before_free(address);
      kept = history_->take_context(device, pointer);
      const Context& place = context != nullptr ? context : kept;
      const auto note = [&](TraceEntry::Action action) {
        record(device, action, pointer, found->requested_bytes, found->stream, found->pool, place);
      };
      note(TraceEntry::FREE_REQUESTED);
      note(TraceEntry::FREE_COMPLETED);
      history_->set_cause(device, place);
      if (allocator.checks()) {
        // A simulated GPU forgets then what the block holds, but not with what poison it is filled.
        const DeviceStatistics before = allocator.statistics();
        const auto sum = [](const PoolStat& stat) {
          return static_cast<std::uint64_t>(stat.all.current);
        };
        usage = {found->requested_bytes, sum(before.allocated_bytes) - found->bytes,
                 sum(before.reserved_bytes)};
        tell_profiler(device, pointer, -static_cast<std::int64_t>(usage.block_bytes), usage);
        (void)allocator.free(address);
      } else {
        (void)allocator.free(address, &usage);
      }
      history_->set_cause(device, nullptr);
    }
    if (!allocator.checks()) {
      tell_profiler(device, pointer, -static_cast<std::int64_t>(usage.block_bytes), usage);
    }
    return true;
  }
  return false;
}

// --- without caching -----------------------------------------------------------------------------

void* TorchAllocator::alloc_uncached(std::uint64_t bytes) {
  refuse_in_child();
  if (bytes == 0) return nullptr;
  void* pointer = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&pointer, bytes));
  trace_allocation(pointer);
  const std::scoped_lock lock(mutex_);
  uncached_.insert(pointer);
  return pointer;
}

bool TorchAllocator::free_uncached(void* pointer) {
  {
    const std::scoped_lock lock(mutex_);
    if (uncached_.erase(pointer) == 0) return false;
  }
  trace_deallocation(pointer);
  C10_CUDA_CHECK(cudaFree(pointer));
  return true;
}

void TorchAllocator::free_elsewhere(void* pointer) {
  if (!free_uncached(pointer)) previous_->raw_delete(pointer);
}

void TorchAllocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  // Empty tensors have no memory, and what came through another allocator has its own rules.
  if (data.get() == nullptr) return;
  refuse_in_child();
  if (data.get_deleter() != &delete_block) {
    if (data.get_deleter() == previous_->raw_deleter()) previous_->recordStream(data, stream);
    return;
  }
  (void)core_->record_stream(address_of(data.get()),
                             DeviceStream{stream.device_index(), handle_of(stream.stream())});
}

void TorchAllocator::emptyCache(MempoolId_t pool) {
  if (forked_) return;
  if (previous_->initialized()) previous_->emptyCache(pool);
  if (core_ == nullptr) return;
  const bool all = pool == MempoolId_t{0, 0};
  const Context context = history_->gather(torch_cuda::RecordContext::ALL);
  for (DeviceIndex device = 0; device < core_->devices(); ++device) {
    std::unique_lock<std::recursive_mutex> watch;
    if (history_->watching()) {
      watch = history_->watch(device);
      history_->set_cause(device, context);
    }
    (void)(all ? core_of(device).trim() : core_of(device).trim_pool(pool));
    if (watch.owns_lock()) history_->set_cause(device, nullptr);
  }
}

}  // namespace gapless::torch_plugin
