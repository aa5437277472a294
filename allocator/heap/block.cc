#include "allocator/heap/block.h"

#include <new>

#include <sys/mman.h>

namespace gapless {
namespace {

constexpr BlockId kMostBlocks = 1U << 26;   // 2 GiB of addresses, 64 Mi blocks
constexpr BlockId kLeastBlocks = 1U << 16;  // where address space is limited

}  // namespace

BlockTable::BlockTable() {
  for (BlockId count = kMostBlocks; count >= kLeastBlocks; count /= 2) {
    void* range = mmap(nullptr, count * sizeof(Block), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    blocks_ = static_cast<Block*>(range);
    end_ = count;
    return;
  }
  throw std::bad_alloc();
}

BlockTable::~BlockTable() { munmap(blocks_, end_ * sizeof(Block)); }

BlockId BlockTable::make_fresh() {
  if (fresh_ == end_) throw std::bad_alloc();
  new (&blocks_[fresh_]) Block{};
  return fresh_++;
}

}  // namespace gapless
