#include "allocator/stream/stream_sets.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gapless {
namespace {

// Each owner has bins and a bitmap of its own. A program that makes more sets than this shares the
// last ones: sets of all streams, for which others wait a little longer.
constexpr std::size_t kMostSets = 1024;
constexpr std::size_t kMostOwners = 60000;

}  // namespace

Owner StreamSets::add(Set set) {
  if (sets_.size() >= kMostOwners) throw std::length_error("more streams than can be told apart");
  sets_.push_back(std::move(set));
  return static_cast<Owner>(sets_.size());
}

Owner StreamSets::look_up(const DeviceStream& stream) {
  const auto found = std::find(streams_.begin(), streams_.end(), stream);
  if (found != streams_.end()) return alone_[static_cast<std::size_t>(found - streams_.begin())];
  alone_.push_back(add({0, {static_cast<StreamIndex>(streams_.size())}}));
  streams_.push_back(stream);
  return alone_.back();
}

Owner StreamSets::intern(const Set& set) {
  const auto found = std::find(sets_.begin(), sets_.end(), set);
  if (found != sets_.end()) return static_cast<Owner>(found - sets_.begin() + 1);
  return add(set);
}

Owner StreamSets::in_pool(Owner owner, PoolIndex pool) {
  Set set = sets_[owner - 1U];
  set.pool = pool;
  return intern(set);
}

Owner StreamSets::with(Owner owner, const DeviceStream& stream) {
  const StreamIndex index = members(look_up(stream)).front();
  Set set = sets_[owner - 1U];
  std::vector<StreamIndex>& streams = set.streams;
  if (std::find(streams.begin(), streams.end(), index) != streams.end()) return owner;
  // The users behind the first one in order, so that one set has one name.
  streams.insert(std::upper_bound(streams.begin() + 1, streams.end(), index), index);
  const bool known = std::find(sets_.begin(), sets_.end(), set) != sets_.end();
  if (!known && sets_.size() >= kMostSets + streams_.size()) {
    streams.resize(1);
    for (const Owner alone : alone_) {
      const StreamIndex other = members(alone).front();
      if (other != streams.front()) streams.push_back(other);
    }
  }
  return intern(set);
}

}  // namespace gapless
