#include "torch_plugin/adapter/sharing.h"

#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {
namespace {

// The native allocator's handles begin with other letters.
constexpr char kOurs = 'g';

}  // namespace

std::string Sharing::share(DeviceCore& device, DeviceAddress block) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = shared_.find(block); found != shared_.end()) return found->second.handle;
  SharedBlock shared;
  const Status status = device.share(block, shared);
  TORCH_CHECK(status == Status::ok, "gapless: this memory cannot be shared with another process: ",
              status == Status::invalid_argument
                  ? "GAPLESS_CONF says share:none, or the device cannot"
                  : "the driver refused");
  ++shared_blocks_;
  std::string handle = to_message(shared);
  handle.insert(handle.begin(), kOurs);
  shared_[block] = {&device, handle};
  return handle;
}

void Sharing::unshare(DeviceAddress block) {
  const std::scoped_lock lock(mutex_);
  const auto found = shared_.find(block);
  if (found == shared_.end()) return;
  (void)found->second.device->unshare(block);
  shared_.erase(found);
  --shared_blocks_;
}

bool Sharing::is_ours(const std::string& handle) { return handle.starts_with(kOurs); }

std::shared_ptr<void> Sharing::open(DeviceIndex device, const std::string& handle) {
  const std::scoped_lock lock(mutex_);
  const std::string key = std::to_string(device) + handle;
  if (auto opened = opened_[key].lock(); opened != nullptr) return opened;
  SharedBlock shared;
  std::string error;
  TORCH_CHECK(from_message(std::string_view(handle).substr(1), shared, error),
              "gapless: another process's memory cannot be opened: ", error);
  auto block = std::make_shared<ImportedBlock>(driver_, device);
  const DriverStatus status = block->open(shared);
  close_descriptors(shared);
  TORCH_CHECK(status == DriverStatus::ok,
              "gapless: another process's memory cannot be mapped: ", to_string(status));
  std::erase_if(opened_, [](const auto& entry) { return entry.second.expired(); });
  const std::shared_ptr<void> pointer(block, pointer_of(block->address()));
  opened_[key] = pointer;
  return pointer;
}

// --- TorchAllocator ------------------------------------------------------------------------------

torch_cuda::ShareableHandle TorchAllocator::shareIpcHandle(void* pointer) {
  refuse_in_child();
  DeviceIndex device = 0;
  BlockFacts facts;
  DeviceCore* const owner = find(pointer, device, facts);
  if (owner == nullptr) return previous_->shareIpcHandle(pointer);
  return {0, sharing_->share(*owner, address_of(pointer))};
}

std::shared_ptr<void> TorchAllocator::getIpcDevPtr(std::string handle) {
  refuse_in_child();
  if (!Sharing::is_ours(handle)) return previous_->getIpcDevPtr(std::move(handle));
  return sharing_->open(c10::cuda::current_device(), handle);
}

void TorchAllocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  refuse_in_child();
  const c10::cuda::CUDAGuard guard(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    C10_CUDA_CHECK(error);
  }
  const std::scoped_lock lock(mutex_);
  if (!peers_.emplace(device, peer).second) return;
  const Status status = core_of(peer).add_peer(device);
  if (status != Status::ok) peers_.erase({device, peer});
  TORCH_CHECK(status == Status::ok, "gapless: device ", static_cast<int>(device),
              " cannot be given access to the memory of device ", static_cast<int>(peer));
}

cudaError_t TorchAllocator::memcpyAsync(void* target, int target_device, const void* source,
                                        int source_device, size_t count, cudaStream_t stream,
                                        bool p2p_enabled) {
  // Memory that is mapped can be copied to another device without access to it only by name.
  if (p2p_enabled || target_device == source_device) {
    return cudaMemcpyAsync(target, source, count, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(target, target_device, source, source_device, count, stream);
}

}  // namespace gapless::torch_plugin
