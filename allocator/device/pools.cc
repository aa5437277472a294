#include "allocator/device/pools.h"

#include <algorithm>

namespace gapless {

PrivatePool* Pools::find(PoolId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  const auto pool = pools_.find(found->second);
  return pool == pools_.end() ? nullptr : &pool->second;
}

PrivatePool& Pools::retain(PoolId id) {
  PrivatePool* pool = find(id);
  if (pool == nullptr) {
    PoolIndex index = 0;
    if (free_indices_.empty()) {
      index = ++last_index_;
    } else {
      index = free_indices_.back();
      free_indices_.pop_back();
    }
    by_id_[id] = index;
    pool = &pools_[index];
    pool->id = id;
    pool->index = index;
  }
  ++pool->users;
  return *pool;
}

void Pools::forget(PoolIndex index) {
  by_id_.erase(pools_.at(index).id);
  pools_.erase(index);
}

void Pools::begin(PoolId id, StreamFilter filter) {
  begun_.push_back({find(id)->index, std::move(filter)});
}

bool Pools::is_begun(PoolIndex index) const {
  return std::any_of(begun_.begin(), begun_.end(),
                     [index](const Begun& begun) { return begun.pool == index; });
}

bool Pools::end(PoolId id) {
  const PrivatePool* pool = find(id);
  if (pool == nullptr) return false;
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(),
                                 [&](const Begun& begun) { return begun.pool == pool->index; });
  if (last == begun_.rend()) return false;
  begun_.erase(std::next(last).base());
  return true;
}

bool Pools::begun_for_none_of(std::span<const StreamHandle> streams) const {
  return std::any_of(begun_.begin(), begun_.end(), [&](const Begun& begun) {
    return !begun.has_served && std::none_of(streams.begin(), streams.end(), begun.filter);
  });
}

PoolIndex Pools::of(StreamHandle stream) const {
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(),
                                 [&](const Begun& begun) { return begun.filter(stream); });
  return last == begun_.rend() ? PoolIndex{0} : last->pool;
}

PoolIndex Pools::serve(StreamHandle stream) {
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(),
                                 [&](const Begun& begun) { return begun.filter(stream); });
  if (last == begun_.rend()) return 0;
  last->has_served = true;
  return last->pool;
}

}  // namespace gapless
