// TorchAllocator: gapless as PyTorch's CUDA allocator: every virtual of CUDAAllocator.
//
//   torch.empty -> allocate -> device, stream, rounding -> DeviceAllocator::alloc (the core)
//                              history, trackers, profiler, GPU trace: only where somebody watches
//
// In a child that is forked once CUDA is in use nothing is owned: what is freed there is left
// alone, for it is the parent's, and whoever asks for memory is told.
//
// Memory that the allocator before gapless handed out goes back to that one: each tensor carries
// its own deleter, and addresses that gapless does not know are passed on. So do its pools.
//
// Methods that came after 2.11 have no `override` here: where the version's base class has them
// they override it, and else they are methods that nobody calls. A test counts them per version
// (-Wsuggest-override).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "allocator/base/fork.h"
#include "allocator/device/allocator.h"
#include "allocator/gapless.h"
#include "torch_plugin/adapter/earlier.h"
#include "torch_plugin/adapter/history.h"
#include "torch_plugin/adapter/sharing.h"
#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

class TorchAllocator final : public CUDAAllocator {
 public:
  /// `previous`: the allocator whose place this takes; it must live as long.
  TorchAllocator(const Options& options, CUDAAllocator* previous);

  // --- memory (torch_allocator.cc) --------------------------------------------------------------

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, std::size_t count) const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  /// Memory that was freed, at its address; throws c10::Error where it is not free. (2.13)
  c10::DataPtr allocateWithAddress(size_t bytes, void* address);
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;

  void init(int device_count) override;
  bool initialized() override;
  void enable(bool value) override { caching_ = value; }
  bool isEnabled() const override { return caching_; }
  std::string name() override { return "gapless"; }
  void emptyCache(MempoolId_t pool = {0, 0}) override;

  // --- figures (figures.cc) ---------------------------------------------------------------------

  torch_cuda::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* pointer, size_t* size) override;
  std::vector<torch_cuda::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override;

  // --- history and snapshots (recording.cc) -----------------------------------------------------

  torch_cuda::SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool include_traces = true) override;
  bool isHistoryEnabled() override {
    return history_ != nullptr && history_->enabled() && !forked_;
  }
  void recordHistory(bool enabled, torch_cuda::CreateContextFn gather, size_t most_entries,
                     torch_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(const Annotations& annotations) override;
  void pushCompileContext(std::string& context) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override { return thread_notes().user_metadata; }
  bool supportsUserMetadata() { return true; }                                      // 2.14
  void annotateMemory(const void* pointer, const std::string& metadata);            // 2.14
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer);  // 2.12
  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override;
  /// 2.12. Never called: gapless does not fail requests that the driver would serve.
  void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)> observer);
  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override;

  // --- private pools and graphs (pools.cc) ------------------------------------------------------

  void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, MempoolId_t pool) override;
  void markCaptureBegin(c10::DeviceIndex device);  // 2.13
  void markCaptureEnd(c10::DeviceIndex device);    // 2.13
  void releasePool(c10::DeviceIndex device, MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> source = nullptr) override;
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t pool, bool use_on_oom) override;
  void setNoSplit(c10::DeviceIndex device, MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                 MempoolId_t pool) override;
  torch_cuda::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) override;

  // --- other devices and processes (sharing.cc) -------------------------------------------------

  torch_cuda::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* target, int target_device, const void* source, int source_device,
                          size_t count, cudaStream_t stream, bool p2p_enabled) override;

  // --- gapless's own ----------------------------------------------------------------------------

  /// Where CUDA is in use already: which pools are, now, so that they can be ended. Throws
  /// c10::Error where a graph is being captured.
  void find_begun_pools() { earlier_.find_begun(); }
  /// For the functions of gapless.h; nullptr before init().
  [[nodiscard]] gapless_allocator* handle() { return handle_; }
  /// Throws c10::Error where there is no such device.
  DeviceCore& core_of(DeviceIndex device) {
    const auto index = static_cast<std::size_t>(device);
    if (index >= devices_.size()) [[unlikely]]
      no_device(device);
    return *devices_[index];
  }
  /// The device and the block behind a pointer; nullptr where it is not gapless's.
  DeviceCore* find(const void* pointer, DeviceIndex& device, BlockFacts& facts);

 private:
  [[noreturn]] void no_device(DeviceIndex device) const;
  /// Throws c10::Error in a forked child, where locks may be taken for ever.
  void refuse_in_child() const;
  /// In a child that was forked when CUDA was in use: nothing is owned from now on.
  void leave();
  [[gnu::always_inline]] void* alloc(DeviceIndex device, std::uint64_t bytes, cudaStream_t stream);
  /// `at`: at that address or not at all, else anywhere.
  void* alloc_watched(DeviceIndex device, std::uint64_t bytes, cudaStream_t stream, Usage& usage,
                      DeviceAddress at = 0);
  bool free_watched(void* pointer);
  /// Before the free, as PyTorch's own does it: until then nobody else can be given the address.
  void trace_deallocation_of_block(const void* pointer);
  /// Straight from the driver, where caching is turned off, and back.
  void* alloc_uncached(std::uint64_t bytes);
  bool free_uncached(void* pointer);
  /// What is no block of gapless's.
  void free_elsewhere(void* pointer);
  /// The profiler hears of every allocation and free.
  static void tell_profiler(DeviceIndex device, void* pointer, std::int64_t bytes,
                            const Usage& usage);
  /// Throws what PyTorch throws: c10::OutOfMemoryError, or an error of the driver.
  [[noreturn]] void fail(DeviceIndex device, std::uint64_t bytes, std::uint64_t rounded_bytes,
                         cudaStream_t stream, Status status, Context context);
  /// Whether the allocator before gapless made the pool (earlier.h), or may have: gapless did not.
  [[nodiscard]] bool is_earlier(c10::DeviceIndex device, MempoolId_t pool);
  /// Whether a request is for a pool of that allocator's.
  [[nodiscard]] bool goes_earlier(c10::DeviceIndex device, cudaStream_t stream) {
    return earlier_.any_begun() && earlier_.takes(device, stream);
  }
  void apply_limit(DeviceIndex device);
  void prepare(DeviceIndex device);
  /// Now, or when there is a history.
  void with_history(std::function<void(History&)> action);
  void record(DeviceIndex device, TraceEntry::Action action, const void* pointer,
              std::uint64_t bytes, StreamHandle stream, MempoolId_t pool, Context context);

  bool forked_ = false;  // this process is a child of the one that used CUDA
  Options options_;
  CUDAAllocator* previous_;
  Earlier earlier_;
  gapless_allocator* handle_ = nullptr;
  Core* core_ = nullptr;              // of the handle; nullptr before init()
  std::vector<DeviceCore*> devices_;  // of the core; empty before init()
  std::unique_ptr<History> history_;
  std::unique_ptr<Sharing> sharing_;
  std::vector<double> fractions_;  // of each device's memory that may be reserved
  bool caching_;                   // torch.cuda.caching_allocator_enable
  std::mutex mutex_;               // of what follows
  std::vector<std::function<void(History&)>> at_init_;
  std::vector<torch_cuda::OutOfMemoryObserver> out_of_memory_observers_;
  std::unordered_set<void*> uncached_;
  std::set<std::pair<int, int>> peers_;  // which device may touch which other's memory
  std::unique_ptr<AfterFork> after_fork_;
};

/// The one that is installed; nullptr before. Never destroyed: tensors outlive everything.
TorchAllocator*& installed();

/// Frees what installed() allocated: the deleter of its tensors.
void delete_block(void* pointer);

}  // namespace gapless::torch_plugin
