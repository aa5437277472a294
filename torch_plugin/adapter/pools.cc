// TorchAllocator: private pools, graphs, and checkpoints of pools.
#include <algorithm>

#include "torch_plugin/adapter/newer.h"
#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {
namespace {

struct PoolCheckpoint final : torch_cuda::AllocatorState {
  explicit PoolCheckpoint(PoolState blocks) : state(std::move(blocks)) {}
  PoolState state;
};

std::string name_of(MempoolId_t pool) {
  return "pool (" + std::to_string(pool.first) + ", " + std::to_string(pool.second) + ")";
}

void check(Status status, MempoolId_t pool, const char* what) {
  TORCH_CHECK(status == Status::ok, "gapless: ", what, " of ", name_of(pool), ": ",
              to_string(status));
}

// Segments of the pool come from the user's allocator, which PyTorch has behind this interface.
PoolSource source_of(std::shared_ptr<CUDAAllocator> allocator, c10::DeviceIndex device) {
  PoolSource source;
  source.alloc = [allocator, device](std::uint64_t bytes) -> DeviceAddress {
    const c10::cuda::CUDAGuard guard(device);
    try {
      return address_of(allocator->raw_alloc(bytes));
    } catch (const c10::OutOfMemoryError&) {
      return 0;
    }
  };
  source.free = [allocator, device](DeviceAddress address, std::uint64_t /*bytes*/) {
    const c10::cuda::CUDAGuard guard(device);
    allocator->raw_delete(pointer_of(address));
  };
  return source;
}

}  // namespace

bool TorchAllocator::is_earlier(c10::DeviceIndex device, MempoolId_t pool) {
  return previous_->initialized() && core_of(device).pool_users(pool) == 0;
}

void TorchAllocator::beginAllocateToPool(c10::DeviceIndex device, MempoolId_t pool,
                                         std::function<bool(cudaStream_t)> filter) {
  const bool earlier = is_earlier(device, pool) && earlier_.has(device, pool);
  if (previous_->initialized()) earlier_.begin(device, pool, filter, earlier);
  if (earlier) return previous_->beginAllocateToPool(device, pool, std::move(filter));
  const Status status =
      core_of(device).begin_pool(pool, [filter = std::move(filter)](StreamHandle stream) {
        return filter(static_cast<cudaStream_t>(pointer_of(stream)));
      });
  check(status, pool, "begin");
}

// Destructors call what ends, gives up or asks about a pool: in a forked child, too.
void TorchAllocator::endAllocateToPool(c10::DeviceIndex device, MempoolId_t pool) {
  if (forked_) return;
  if (!is_earlier(device, pool)) {
    if (previous_->initialized()) earlier_.end(device, pool);
    return check(core_of(device).end_pool(pool), pool, "end");
  }
  const bool known = earlier_.is_begun(device, pool);
  // A capture that failed here is ended again when its graph is reset (2.15).
  if (!known && !earlier_.is_first_end(device, pool)) return;
  previous_->endAllocateToPool(device, pool);
  if (known) return earlier_.end(device, pool);
  // What this thread has asked for since then is gapless's. A graph's own pool has a first number.
  TORCH_CHECK(pool.first == 0,
              "gapless was installed while this graph was being captured by another thread: memory "
              "that it uses lies outside of its pool, so it cannot be replayed. Capture it again");
  TORCH_WARN("gapless was installed while ", name_of(pool),
             " was in use here, by another thread or before anything was allocated: what was "
             "allocated since then lies outside of it");
}

void TorchAllocator::markCaptureBegin(c10::DeviceIndex device) {
  core_of(device).note_capture(true);
  if (previous_->initialized()) mark_capture_begin(*previous_, device);
}

void TorchAllocator::markCaptureEnd(c10::DeviceIndex device) {
  core_of(device).note_capture(false);
  if (previous_->initialized()) mark_capture_end(*previous_, device);
}

void TorchAllocator::releasePool(c10::DeviceIndex device, MempoolId_t pool) {
  if (forked_) return;
  if (is_earlier(device, pool)) return previous_->releasePool(device, pool);
  check(core_of(device).release_pool(pool), pool, "release");
}

int TorchAllocator::getPoolUseCount(c10::DeviceIndex device, MempoolId_t pool) {
  if (forked_) return 1;  // whoever asks: a pool asserts that in the end
  return is_earlier(device, pool) ? earlier_.users(device, pool) : core_of(device).pool_users(pool);
}

void TorchAllocator::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t pool,
                                        std::shared_ptr<CUDAAllocator> source) {
  if (is_earlier(device, pool) && earlier_.has(device, pool)) {
    return previous_->createOrIncrefPool(device, pool, std::move(source));
  }
  DeviceCore& core = core_of(device);
  const bool is_new = core.pool_users(pool) == 0;
  check(core.retain_pool(pool), pool, "creation");
  if (source == nullptr || !is_new) return;
  check(core.set_pool_source(pool, source_of(std::move(source), device)), pool, "the allocator");
}

void TorchAllocator::setUseOnOOM(c10::DeviceIndex device, MempoolId_t pool, bool use_on_oom) {
  if (forked_) return;
  if (is_earlier(device, pool)) return previous_->setUseOnOOM(device, pool, use_on_oom);
  check(core_of(device).set_pool_use_on_oom(pool, use_on_oom), pool, "use_on_oom");
}

void TorchAllocator::setNoSplit(c10::DeviceIndex device, MempoolId_t pool) {
  if (is_earlier(device, pool)) return previous_->setNoSplit(device, pool);
  check(core_of(device).set_pool_no_split(pool, true), pool, "no_split");
}

bool TorchAllocator::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t pool,
                                              const std::unordered_set<void*>& expected) {
  if (is_earlier(device, pool)) {
    return previous_->checkPoolLiveAllocations(device, pool, expected);
  }
  DeviceCore& core = core_of(device);
  TORCH_CHECK(core.pool_users(pool) != 0, "Could not find ", name_of(pool));
  const std::vector<DeviceAddress> live = core.pool_blocks(pool);
  return live.size() == expected.size() &&
         std::all_of(live.begin(), live.end(),
                     [&](DeviceAddress address) { return expected.contains(pointer_of(address)); });
}

std::shared_ptr<torch_cuda::AllocatorState> TorchAllocator::getCheckpointState(
    c10::DeviceIndex device, MempoolId_t pool) {
  if (is_earlier(device, pool)) return previous_->getCheckpointState(device, pool);
  DeviceCore& core = core_of(device);
  TORCH_CHECK(core.pool_users(pool) != 0, "Could not find ", name_of(pool));
  return std::make_shared<PoolCheckpoint>(core.checkpoint_pool(pool));
}

torch_cuda::CheckpointDelta TorchAllocator::setCheckpointPoolState(
    c10::DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) {
  const auto* checkpoint = dynamic_cast<const PoolCheckpoint*>(state.get());
  if (checkpoint == nullptr && previous_->initialized()) {
    return previous_->setCheckpointPoolState(device, std::move(state));
  }
  TORCH_CHECK(checkpoint != nullptr, "gapless: the state is another allocator's");
  PoolDelta delta;
  check(core_of(device).restore_pool(checkpoint->state, delta), checkpoint->state.id,
        "restoring the state");
  torch_cuda::CheckpointDelta made;
  for (const DeviceAddress address : delta.freed) {
    made.ptrs_freed.push_back(pointer_of(address));
    if (history_->watching()) {
      const auto watch = history_->watch(device);
      (void)history_->take_context(device, pointer_of(address));
    }
  }
  for (const DeviceAddress address : delta.allocated) {
    void* const pointer = pointer_of(address);
    made.dataptrs_allocd.emplace_back(pointer, pointer, &delete_block,
                                      c10::Device(c10::kCUDA, device));
  }
  return made;
}

}  // namespace gapless::torch_plugin
