// PinnedBlocks: blocks that others than the program's streams use, which must stay where they are.
//
//   address      pins   of these shares   freed
//   0x7f..000      2          1             -       live, known to a network card and a process
//   0x7f..800      1          0           block     given up by the program: held until unpinned
#pragma once

#include <map>
#include <optional>

#include "allocator/device/arena.h"
#include "allocator/memory/shared_block.h"

namespace gapless {

class PinnedBlocks {
 public:
  struct Pinned {
    Arena* arena = nullptr;
    int pins = 0;
    BlockId freed = 0;  // the block, once it is freed
    int shares = 0;
    SharedBlock shared;
  };
  /// A block that was held, and is nobody's any more.
  struct Released {
    Arena* arena = nullptr;
    BlockId block = 0;
  };

  [[nodiscard]] bool empty() const { return by_address_.empty(); }
  [[nodiscard]] std::size_t size() const { return by_address_.size(); }
  /// nullptr: it is not pinned.
  [[nodiscard]] Pinned* find(DeviceAddress address) {
    const auto found = by_address_.find(address);
    return found == by_address_.end() ? nullptr : &found->second;
  }
  /// One more pin of that block of the arena.
  Pinned& add(DeviceAddress address, Arena& arena) {
    Pinned& pinned = by_address_[address];
    pinned.arena = &arena;
    ++pinned.pins;
    return pinned;
  }
  /// One less of a pinned block; with the last one what was held for it.
  std::optional<Released> drop(DeviceAddress address) {
    const auto found = by_address_.find(address);
    if (--found->second.pins != 0) return {};
    const Released released{found->second.arena, found->second.freed};
    by_address_.erase(found);
    return released.block == 0 ? std::nullopt : std::optional(released);
  }
  /// The block is freed, and is held if it is pinned.
  bool hold(DeviceAddress address, BlockId block) {
    Pinned* const pinned = find(address);
    if (pinned == nullptr) return false;
    pinned->freed = block;
    return true;
  }

  /// Whether f(arena, block) for any.
  template <class F>
  [[nodiscard]] bool any(F&& f) const {
    for (const auto& [address, pinned] : by_address_) {
      const BlockId block = pinned.freed != 0 ? pinned.freed : pinned.arena->find(address);
      if (f(std::as_const(*pinned.arena), block)) return true;
    }
    return false;
  }
  /// Calls f(block) for those of the arena that are held.
  template <class F>
  void for_each_held(const Arena& arena, F&& f) const {
    for (const auto& [address, pinned] : by_address_) {
      if (pinned.freed != 0 && pinned.arena == &arena) f(pinned.freed);
    }
  }
  /// Closes what shared blocks keep open.
  void close() {
    for (auto& [address, pinned] : by_address_) close_descriptors(pinned.shared);
  }

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  std::map<DeviceAddress, Pinned> by_address_;
};

}  // namespace gapless
