#include "allocator/base/bitmap.h"

#include <algorithm>

namespace gapless {
namespace {

// The bits [begin, end) of one word; 0 <= begin < end <= 64.
std::uint64_t mask(std::uint32_t begin, std::uint32_t end) {
  const std::uint64_t upper = end == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << end) - 1;
  return upper & ~((std::uint64_t{1} << begin) - 1);
}

}  // namespace

void Bitmap::resize(std::uint32_t size) {
  if (size < size_) clear_range(size, size_);
  size_ = size;
  words_.resize((std::size_t{size} + 63) / 64, 0);
}

void Bitmap::set_range(std::uint32_t begin, std::uint32_t end) {
  while (begin < end) {
    const std::uint32_t base = begin & ~63U;
    const std::uint32_t stop = std::min(end, base + 64);
    std::uint64_t& word = words_[begin >> 6];
    const std::uint64_t added = mask(begin - base, stop - base) & ~word;
    word |= added;
    count_ += static_cast<std::uint32_t>(std::popcount(added));
    begin = stop;
  }
}

void Bitmap::clear_range(std::uint32_t begin, std::uint32_t end) {
  while (begin < end) {
    const std::uint32_t base = begin & ~63U;
    const std::uint32_t stop = std::min(end, base + 64);
    std::uint64_t& word = words_[begin >> 6];
    const std::uint64_t removed = mask(begin - base, stop - base) & word;
    word &= ~removed;
    count_ -= static_cast<std::uint32_t>(std::popcount(removed));
    begin = stop;
  }
}

void Bitmap::add(const Bitmap& other) {
  count_ = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] |= other.words_[i];
    count_ += static_cast<std::uint32_t>(std::popcount(words_[i]));
  }
}

std::uint32_t Bitmap::count_in(std::uint32_t begin, std::uint32_t end) const {
  std::uint32_t count = 0;
  while (begin < end) {
    const std::uint32_t base = begin & ~63U;
    const std::uint32_t stop = std::min(end, base + 64);
    const std::uint64_t bits = words_[begin >> 6] & mask(begin - base, stop - base);
    count += static_cast<std::uint32_t>(std::popcount(bits));
    begin = stop;
  }
  return count;
}

std::uint32_t Bitmap::find_set(std::uint32_t from) const {
  if (from >= size_) return npos;
  std::uint32_t index = from >> 6;
  std::uint64_t word = words_[index] & ~((std::uint64_t{1} << (from & 63)) - 1);
  while (word == 0) {
    if (++index == words_.size()) return npos;
    word = words_[index];
  }
  return index * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
}

std::uint32_t Bitmap::find_clear(std::uint32_t from) const {
  if (from >= size_) return size_;
  std::uint32_t index = from >> 6;
  std::uint64_t word = ~words_[index] & ~((std::uint64_t{1} << (from & 63)) - 1);
  while (word == 0) {
    if (++index == words_.size()) return size_;
    word = ~words_[index];
  }
  return std::min(size_, index * 64 + static_cast<std::uint32_t>(std::countr_zero(word)));
}

std::uint32_t Bitmap::run_begin(std::uint32_t index) const {
  std::uint32_t at = index >> 6;
  // Clear bits at or below `index`; the highest of them ends the run.
  std::uint64_t word = ~words_[at] & mask(0, (index & 63) + 1);
  while (word == 0) {
    if (at == 0) return 0;
    word = ~words_[--at];
  }
  return at * 64 + 64 - static_cast<std::uint32_t>(std::countl_zero(word));
}

}  // namespace gapless
