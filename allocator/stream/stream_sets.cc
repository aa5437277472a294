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

Owner StreamSets::add(std::vector<StreamIndex> set) {
  if (sets_.size() >= kMostOwners) throw std::length_error("more streams than can be told apart");
  sets_.push_back(std::move(set));
  return static_cast<Owner>(sets_.size());
}

Owner StreamSets::look_up(StreamHandle stream) {
  const auto found = std::find(handles_.begin(), handles_.end(), stream);
  if (found == handles_.end()) {
    const auto index = static_cast<StreamIndex>(handles_.size());
    alone_.push_back(add({index}));
    handles_.push_back(stream);
    last_ = alone_.back();
  } else {
    last_ = alone_[static_cast<std::size_t>(found - handles_.begin())];
  }
  last_handle_ = stream;
  return last_;
}

Owner StreamSets::with(Owner owner, StreamHandle stream) {
  const StreamIndex index = members(of_stream(stream)).front();
  std::vector<StreamIndex> set(members(owner).begin(), members(owner).end());
  if (std::find(set.begin(), set.end(), index) != set.end()) return owner;
  // The users behind the first one in order, so that one set has one name.
  set.insert(std::upper_bound(set.begin() + 1, set.end(), index), index);
  const auto find = [&] { return std::find(sets_.begin(), sets_.end(), set); };
  auto found = find();
  if (found == sets_.end() && sets_.size() - handles_.size() >= kMostSets) {
    const StreamIndex first = set.front();
    set = {first};
    for (StreamIndex i = 0; i < handles_.size(); ++i) {
      if (i != first) set.push_back(i);
    }
    found = find();
  }
  if (found != sets_.end()) return static_cast<Owner>(found - sets_.begin() + 1);
  return add(std::move(set));
}

}  // namespace gapless
