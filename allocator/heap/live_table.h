// LiveTable: from the address of an allocation to its block record.
//
//   slot  = hash(address / 512) mod capacity, then the next free one (linear probing)
//   entry = { upper hash bits, block }         8 bytes: eight to a cache line
//
// A library's map was tried first (tsl::robin_map: 24-byte slots, docs/design.md has the figures).
// Here the key need not be stored: the block record knows its address, and a tag of 32 hash bits
// decides in all but one of four billion cases without looking there; the caller's `is` decides the
// rest. Removal shifts entries back, so there are no tombstones to clean up. At most a quarter of
// the slots is used: most searches end at their first slot, and a branch that can be predicted is
// worth more than the memory.
//
// The last address waits outside of the table until the next one comes: many a temporary is freed
// before, and was never entered.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/heap/block.h"

namespace gapless {

class LiveTable {
 public:
  LiveTable() : entries_(kFirstCapacity), mask_(kFirstCapacity - 1) {}

  void insert(std::uint64_t address, BlockId block) {
    if (late_.block != 0) place_late();
    late_address_ = address;
    late_ = {tag_of(address), block};
  }

  /// Removes and returns the block at that address, for which is(block) holds; 0 where none is.
  template <class Is>
  BlockId take(std::uint64_t address, Is&& is) {
    if (address == late_address_ && late_.block != 0) return std::exchange(late_.block, 0);
    const std::uint32_t tag = tag_of(address);
    for (std::size_t at = tag & mask_; entries_[at].block != 0; at = (at + 1) & mask_) {
      if (entries_[at].tag == tag && is(entries_[at].block)) {
        const BlockId block = entries_[at].block;
        remove(at);
        --size_;
        return block;
      }
    }
    return 0;
  }

  /// The block at that address, for which is(block) holds; 0 where none is.
  template <class Is>
  [[nodiscard]] BlockId find(std::uint64_t address, Is&& is) const {
    if (address == late_address_ && late_.block != 0) return late_.block;
    const std::uint32_t tag = tag_of(address);
    for (std::size_t at = tag & mask_; entries_[at].block != 0; at = (at + 1) & mask_) {
      if (entries_[at].tag == tag && is(entries_[at].block)) return entries_[at].block;
    }
    return 0;
  }

  /// Calls f(block) for every block, in no order.
  template <class F>
  void for_each(F&& f) const {
    if (late_.block != 0) f(late_.block);
    for (const Entry& entry : entries_) {
      if (entry.block != 0) f(entry.block);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_ + (late_.block != 0 ? 1 : 0); }

 private:
  struct Entry {
    std::uint32_t tag = 0;
    BlockId block = 0;
  };
  static constexpr std::size_t kFirstCapacity = 4096;

  static std::uint32_t tag_of(std::uint64_t address) {
    // Fibonacci hashing: the golden ratio's bits spread neighbouring units over the table.
    return static_cast<std::uint32_t>((address / kUnitBytes * 0x9E3779B97F4A7C15) >> 32);
  }

  void place_late() {
    if (size_ == most_) [[unlikely]]
      grow();
    place(late_);
    ++size_;
  }
  void place(Entry entry) {
    std::size_t at = entry.tag & mask_;
    while (entries_[at].block != 0) at = (at + 1) & mask_;
    entries_[at] = entry;
  }

  void remove(std::size_t hole) {
    for (std::size_t at = (hole + 1) & mask_; entries_[at].block != 0; at = (at + 1) & mask_) {
      // An entry may move back unless its own place lies behind the hole.
      const std::size_t home = entries_[at].tag & mask_;
      if (((at - home) & mask_) >= ((at - hole) & mask_)) {
        entries_[hole] = entries_[at];
        hole = at;
      }
    }
    entries_[hole] = {};
  }

  [[gnu::noinline]] void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    most_ = entries_.size() / 4;
    for (const Entry& entry : old) {
      if (entry.block != 0) place(entry);
    }
  }

  Entry late_;  // the last one inserted; block 0 where it was taken again
  std::uint64_t late_address_ = 0;
  std::vector<Entry> entries_;
  std::size_t mask_;
  std::size_t size_ = 0;
  std::size_t most_ = kFirstCapacity / 4;
};

}  // namespace gapless
