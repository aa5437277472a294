#include "allocator/device/recall.h"

namespace gapless {
namespace {

// A program is settled when it has done the same so many times.
constexpr std::uint64_t kRepeats = 1;

}  // namespace

std::uint64_t Recall::context(std::uint64_t key) {
  std::uint64_t hash = key;
  for (std::size_t i = 1; i < kContext && i < count_; ++i) {
    hash = (hash ^ at(count_ - i).key) * 0x9E3779B97F4A7C15;  // the golden ratio
    hash ^= hash >> 29;
  }
  return hash;
}

const Place* Recall::follow(Owner owner, Unit size) {
  if (history_.empty()) history_.resize(kHistory);
  key_ = std::uint64_t{owner} << 32 | size;
  context_ = context(key_);
  const std::uint64_t next = followed_ + 1;
  if (followed_ != 0 && is_kept(next) && at(next).key == key_) {
    followed_ = next;
    ++agreed_;
  } else {
    agreed_ = 0;
    const auto found = by_context_.find(context_);
    followed_ = found != by_context_.end() && is_kept(found->second) ? found->second : 0;
  }
  const bool settled = agreed_ >= kRepeats * (count_ - followed_);
  return followed_ != 0 && settled ? &at(followed_).place : nullptr;
}

void Recall::note(const Place& place) {
  if (by_context_.size() > 2 * kHistory) by_context_.clear();
  by_context_[context_] = count_;
  at(count_++) = {key_, place};
}

}  // namespace gapless
