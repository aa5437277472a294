#include "torch_plugin/adapter/earlier.h"

#include <algorithm>

namespace gapless::torch_plugin {
namespace {

bool is_capturing(c10::DeviceIndex device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device).stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void Earlier::find_begun() {
  const c10::DeviceIndex devices = c10::cuda::device_count();
  for (c10::DeviceIndex device = 0; device < devices; ++device) {
    if (!c10::cuda::hasPrimaryContext(device)) continue;
    const c10::cuda::CUDAGuard guard(device);
    TORCH_CHECK(!is_capturing(device),
                "a CUDA graph is being captured: install gapless before its capture begins, or "
                "after it has ended");
  }
  for (c10::DeviceIndex device = 0; device < devices; ++device) {
    if (c10::cuda::hasPrimaryContext(device)) find_begun_on(device);
  }
}

MempoolId_t Earlier::ask(c10::DeviceIndex device) const {
  // Nothing tells but where a block lies that it is asked for.
  const c10::cuda::CUDAGuard guard(device);
  MempoolId_t pool{};
  void* block = nullptr;
  try {
    block = previous_->raw_alloc(1);
    for (const torch_cuda::SegmentInfo& segment : previous_->snapshot({0, 0}, false).segments) {
      const std::size_t at = address_of(block);
      if (segment.address <= at && at - segment.address < segment.total_size) {
        pool = segment.owner_private_pool_id;
      }
    }
  } catch (const c10::Error&) {
    // It has no memory left, or no pools to be asked for: it gets no more requests.
  }
  previous_->raw_delete(block);
  return pool;
}

void Earlier::find_begun_on(c10::DeviceIndex device) {
  const MempoolId_t pool = ask(device);
  if (pool == MempoolId_t{0, 0}) return;
  const auto thread = std::this_thread::get_id();
  const std::scoped_lock lock(mutex_);
  // Before those that were begun later. What its own filter says, the allocator before will ask.
  begun_.insert(begun_.begin(),
                {device, pool,
                 [thread](cudaStream_t /*stream*/) { return std::this_thread::get_id() == thread; },
                 true, true});
  ++earlier_begun_;
}

int Earlier::users(c10::DeviceIndex device, MempoolId_t pool) const {
  if (!previous_->initialized()) return 0;
  try {
    return previous_->getPoolUseCount(device, pool);
  } catch (const c10::Error&) {
    return 0;  // it counts none: cudaMallocAsync
  }
}

bool Earlier::has(c10::DeviceIndex device, MempoolId_t pool) const {
  return users(device, pool) > 0;
}

void Earlier::begin(c10::DeviceIndex device, MempoolId_t pool, const Filter& filter, bool earlier) {
  const std::scoped_lock lock(mutex_);
  begun_.push_back({device, pool, filter, earlier, false});
  if (earlier) ++earlier_begun_;
}

std::vector<Earlier::Begun>::iterator Earlier::last_begun(c10::DeviceIndex device,
                                                          MempoolId_t pool) {
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(), [&](const Begun& begun) {
    return begun.device == device && begun.pool == pool;
  });
  return last == begun_.rend() ? begun_.end() : std::next(last).base();
}

bool Earlier::is_begun(c10::DeviceIndex device, MempoolId_t pool) {
  const std::scoped_lock lock(mutex_);
  return last_begun(device, pool) != begun_.end();
}

void Earlier::end(c10::DeviceIndex device, MempoolId_t pool) {
  bool found = false;
  {
    const std::scoped_lock lock(mutex_);
    const auto last = last_begun(device, pool);
    if (last == begun_.end()) return;
    if (last->earlier) --earlier_begun_;
    found = last->found;
    begun_.erase(last);
  }
  // There may be another one around it.
  if (found && !is_capturing(device)) find_begun_on(device);
}

bool Earlier::is_first_end(c10::DeviceIndex device, MempoolId_t pool) {
  const std::scoped_lock lock(mutex_);
  return ended_.emplace(device, pool).second;
}

bool Earlier::takes(c10::DeviceIndex device, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(), [&](const Begun& begun) {
    return begun.device == device && begun.filter(stream);
  });
  return last != begun_.rend() && last->earlier;
}

bool Earlier::give_back() {
  {
    const std::scoped_lock lock(mutex_);
    if (!begun_.empty()) return false;
  }
  if (!previous_->initialized() || is_capturing(c10::cuda::current_device())) return false;
  const auto reserved = [this] {
    std::int64_t bytes = 0;
    for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
      bytes += previous_->getDeviceStats(device).reserved_bytes[0].current;
    }
    return bytes;
  };
  try {
    const std::int64_t before = reserved();
    if (before == 0) return false;
    previous_->emptyCache();
    return reserved() < before;
  } catch (const c10::Error&) {
    return false;  // it has no figures: CUDAPluggableAllocator
  }
}

}  // namespace gapless::torch_plugin
