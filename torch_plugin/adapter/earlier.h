// Earlier: what the allocator before gapless made, where gapless came late: its pools and graphs.
//
//   pool = MemPool(); graph.capture_begin()...      the allocator before
//   gapless.install()
//   with use_mem_pool(pool): tensor                 the allocator before: the pool is its own
//   graph.reset(); del pool                         the allocator before
//   other = MemPool()                               gapless
//
// A pool belongs to whoever made it, for all its life: its memory may come from the user's own
// allocator, and graphs replay in it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

class Earlier {
 public:
  /// `previous`: the allocator before.
  explicit Earlier(CUDAAllocator* previous) : previous_(previous) {}

  /// What is begun there now for the calling thread; before gapless is installed. Throws c10::Error
  /// where a graph is being captured, which gapless would not know of.
  void find_begun();

  /// Whether the allocator before made that pool, and it still has users.
  [[nodiscard]] bool has(c10::DeviceIndex device, MempoolId_t pool) const;
  /// How many.
  [[nodiscard]] int users(c10::DeviceIndex device, MempoolId_t pool) const;

  using Filter = std::function<bool(cudaStream_t)>;
  /// Requests that pass go to a pool from now on: one of the allocator's before, or of gapless.
  void begin(c10::DeviceIndex device, MempoolId_t pool, const Filter& filter, bool earlier);
  /// Whether begin() or find_begun() told of it. Else another thread began it before gapless was
  /// installed, or it was begun on a device that was not in use yet.
  [[nodiscard]] bool is_begun(c10::DeviceIndex device, MempoolId_t pool);
  /// They do no more; the allocator before knows already.
  void end(c10::DeviceIndex device, MempoolId_t pool);
  /// Whether that is asked for the first time, of a pool that is not begun.
  bool is_first_end(c10::DeviceIndex device, MempoolId_t pool);

  /// Whether requests may have to be asked about at all.
  [[nodiscard]] bool any_begun() const {
    return earlier_begun_.load(std::memory_order_relaxed) != 0;
  }
  /// Whether a request goes to a pool of the allocator's before: the last one begun that it passes
  /// is.
  [[nodiscard]] bool takes(c10::DeviceIndex device, cudaStream_t stream);

  /// In a forked child: nothing is begun.
  void leave() { earlier_begun_ = 0; }

  /// Has the allocator before give back what it has cached, unless a pool is begun or a graph
  /// captured; whether it had any.
  bool give_back();

 private:
  struct Begun {
    c10::DeviceIndex device = 0;
    MempoolId_t pool{};
    Filter filter;
    bool earlier = false;
    bool found = false;  // by find_begun()
  };
  /// The pool that a request of this thread goes to there, begun before gapless was installed.
  [[nodiscard]] MempoolId_t ask(c10::DeviceIndex device) const;
  void find_begun_on(c10::DeviceIndex device);
  /// The last one of that pool; begun_.end() where it is not begun. With the lock.
  std::vector<Begun>::iterator last_begun(c10::DeviceIndex device, MempoolId_t pool);

  CUDAAllocator* previous_;
  std::atomic<int> earlier_begun_{0};
  std::mutex mutex_;  // of what follows
  std::vector<Begun> begun_;
  std::set<std::pair<c10::DeviceIndex, MempoolId_t>> ended_;  // without having been begun
};

}  // namespace gapless::torch_plugin
