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

Owner StreamSets::look_up(StreamHandle stream) {
  const auto found = std::find(handles_.begin(), handles_.end(), stream);
  if (found == handles_.end()) {
    const auto index = static_cast<StreamIndex>(handles_.size());
    alone_.push_back(add({0, {index}}));
    handles_.push_back(stream);
    last_ = alone_.back();
  } else {
    last_ = alone_[static_cast<std::size_t>(found - handles_.begin())];
  }
  last_handle_ = stream;
  return last_;
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

Owner StreamSets::with(Owner owner, StreamHandle stream) {
  const StreamIndex index = members(of_stream(stream)).front();
  Set set = sets_[owner - 1U];
  std::vector<StreamIndex>& streams = set.streams;
  if (std::find(streams.begin(), streams.end(), index) != streams.end()) return owner;
  // The users behind the first one in order, so that one set has one name.
  streams.insert(std::upper_bound(streams.begin() + 1, streams.end(), index), index);
  const bool known = std::find(sets_.begin(), sets_.end(), set) != sets_.end();
  if (!known && sets_.size() >= kMostSets + handles_.size()) {
    streams.resize(1);
    for (const Owner alone : alone_) {
      const StreamIndex other = members(alone).front();
      if (other != streams.front()) streams.push_back(other);
    }
  }
  return intern(set);
}

}  // namespace gapless
