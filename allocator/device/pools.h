// Pools: private pools of memory, as CUDA graphs and torch.cuda.MemPool use them.
//
//   begin {0, 7} for stream 2      requests of stream 2 go to pool {0, 7} from now on
//   begin {3, 0} for any stream    and all requests to {3, 0}: the last one that applies
//   end {3, 0}                     stream 2's to {0, 7} again
//
// A pool's memory comes from the home and goes back to it when the last user has released the pool
// and its last block is freed; until then what is free in it is only the pool's: a graph that was
// captured in it writes there each time it runs.
//
// Here is who uses which pool, and nothing of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "allocator/device/place.h"
#include "allocator/driver/driver.h"
#include "allocator/stream/stream_sets.h"

namespace gapless {

/// PyTorch's MempoolId_t: {0, n} made by the user, {n, 0} by a capture.
using PoolId = std::pair<std::uint64_t, std::uint64_t>;
/// Whether a stream's requests go to a pool.
using StreamFilter = std::function<bool(StreamHandle)>;

/// Where a pool's blocks lay at one moment (DeviceAllocator::checkpoint_pool).
struct PoolState {
  struct BlockState {
    DeviceAddress address = 0;
    Place place;  // its size is the block's
    Owner owner = kAnyone;
    std::uint32_t slack_bytes = 0;  // rounding: units * 512 - requested bytes
  };
  PoolId id;
  std::vector<BlockState> blocks;
};

/// What restoring a pool's state changed, by address.
struct PoolDelta {
  std::vector<DeviceAddress> freed;
  std::vector<DeviceAddress> allocated;
};

struct PrivatePool {
  PoolId id;
  PoolIndex index = 0;
  int users = 0;
  bool use_on_oom = false;    // what is free in it may serve others before a request fails
  bool no_split = false;      // its blocks share no page
  bool has_memory = false;    // it had a block, and so has memory until it is given up
  bool captured = false;      // a graph was captured in it: nobody knows when it runs
  bool checkpointed = false;  // its blocks may have to be again where they were
  std::int64_t live_blocks = 0;
  std::uint64_t live_bytes = 0;

  /// Whether what is free in it may serve others for a time.
  [[nodiscard]] bool lends() const { return !captured && !no_split && !checkpointed; }
};

class Pools {
 public:
  /// The pool of that name; nullptr where there is none.
  [[nodiscard]] PrivatePool* find(PoolId id);
  [[nodiscard]] PrivatePool& at(PoolIndex index) { return pools_.at(index); }
  /// One more user; the pool is made where it is not there yet.
  PrivatePool& retain(PoolId id);
  /// Forgets a pool without users and blocks.
  void forget(PoolIndex index);
  /// No memory is that pool's any more: another one may have its index.
  void reuse(PoolIndex index) { free_indices_.push_back(index); }

  [[nodiscard]] bool has(PoolIndex index) const { return pools_.contains(index); }
  /// Whether there are pools at all.
  [[nodiscard]] bool any() const { return !pools_.empty(); }

  /// Requests of streams that pass the filter go to the pool.
  void begin(PoolId id, StreamFilter filter);
  /// Ends the last begin() of that pool; false where there is none.
  bool end(PoolId id);
  [[nodiscard]] bool is_begun(PoolIndex index) const;
  /// Whether requests may go to a private pool at all now.
  [[nodiscard]] bool active() const { return !begun_.empty(); }
  /// Whether a pool was begun to which no request went yet and those of none of these streams go,
  /// as one for a capture is before its stream is seen.
  [[nodiscard]] bool begun_for_none_of(std::span<const StreamHandle> streams) const;
  /// The pool that a stream's requests go to; 0: none.
  [[nodiscard]] PoolIndex of(StreamHandle stream) const;
  /// The same, for a request that is served now: its stream is seen from then on.
  [[nodiscard]] PoolIndex serve(StreamHandle stream);

  /// Calls f(pool) for each.
  template <class F>
  void for_each(F&& f) {
    for (auto& [index, pool] : pools_) f(pool);
  }

 private:
  struct Begun {
    PoolIndex pool;
    StreamFilter filter;      // may depend on the thread that asks
    bool has_served = false;  // so a stream that its requests come from has been seen
  };

  std::map<PoolIndex, PrivatePool> pools_;
  std::map<PoolId, PoolIndex> by_id_;
  std::vector<Begun> begun_;
  std::vector<PoolIndex> free_indices_;
  PoolIndex last_index_ = 0;
};

}  // namespace gapless
