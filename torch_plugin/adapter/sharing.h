// Sharing: blocks shared with other processes, and theirs that this one has opened.
//
// PyTorch keeps a shared tensor alive until its receivers are done with it, and frees it then: so a
// block is shared once, however often it is sent, and no longer when it is freed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

class Sharing {
 public:
  explicit Sharing(Driver& driver) : driver_(driver) {}

  /// A handle by which another process opens the block; throws c10::Error where it cannot be had.
  std::string share(DeviceCore& device, DeviceAddress block);
  /// Before a block is freed.
  void before_free(DeviceAddress block) {
    if (shared_blocks_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      unshare(block);
  }
  /// Whether gapless made that handle.
  [[nodiscard]] static bool is_ours(const std::string& handle);
  /// The block behind a handle, mapped for the device as long as anyone holds it; throws
  /// c10::Error.
  std::shared_ptr<void> open(DeviceIndex device, const std::string& handle);

 private:
  struct Shared {
    DeviceCore* device = nullptr;
    std::string handle;
  };
  void unshare(DeviceAddress block);

  Driver& driver_;
  std::mutex mutex_;
  std::unordered_map<DeviceAddress, Shared> shared_;
  std::atomic<std::size_t> shared_blocks_{0};
  std::unordered_map<std::string, std::weak_ptr<void>> opened_;
};

}  // namespace gapless::torch_plugin
