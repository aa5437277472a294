#include "kernels/integrity.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "kernels/module.h"
#include "kernels/tiles.h"

namespace gapless::kernels {
namespace {

// Many times what a GPU runs at once, so that none waits long for the last, and few enough
// additions to one verdict.
constexpr std::uint64_t kMostBlocksOfTiles = 16384;

std::string wrong(const gapless_memory_pattern* pattern, std::uint64_t begin, std::size_t bytes) {
  if (pattern == nullptr) return "pattern: NULL";
  if (pattern->kind != GAPLESS_PATTERN_WORD && pattern->kind != GAPLESS_PATTERN_BY_ADDRESS) {
    return "kind: " + std::to_string(pattern->kind) + ": a word (0) or by address (1)";
  }
  if (begin > UINT64_MAX - bytes) return "memory: ends behind the last address";
  return {};
}

std::string wrong(const void* memory, std::size_t bytes) {
  return memory == nullptr && bytes != 0 ? "memory: NULL" : std::string();
}

std::string wrong(const gapless_memory_verdict* verdict) {
  if (verdict == nullptr) return "verdict: NULL";
  if (reinterpret_cast<std::uintptr_t>(verdict) % alignof(gapless_memory_verdict) != 0)
    return "verdict: not 8 byte aligned";
  return {};
}

// A kernel would change under its own eyes what it reads.
bool overlap(const gapless_memory_verdict* verdict, std::uint64_t begin, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(verdict);
  return at < begin + bytes && begin < at + sizeof *verdict;
}

std::string launch_over(const char* kernel, const PatternedMemory& memory, void* stream) {
  const auto blocks = static_cast<unsigned>(std::min(memory.tiles.count(), kMostBlocksOfTiles));
  if (blocks == 0) return {};
  return launch(gapless_integrity_fat_binary, kernel, {blocks, Tiles::kThreads}, stream, &memory);
}

template <class Work>
int answer_of(Work work) {
  try {
    return answer(work());
  } catch (const std::exception& error) {  // there is no memory for a sentence
    return 1;
  }
}

// Calls visit(offset, the pattern's bytes, how many) for the range's part of each word.
template <class Visit>
void each_word(const gapless_memory_pattern& pattern, std::uint64_t address, std::size_t bytes,
               Visit visit) {
  static_assert(std::endian::native == std::endian::little, "as the device's words are");
  RegionPattern region(pattern, address);
  for (std::size_t offset = 0; offset < bytes;) {
    const std::uint64_t at = address + offset;
    if (at % RegionPattern::kRegionBytes == 0) region = RegionPattern(pattern, at);
    const std::size_t skipped = at % 4;
    const std::size_t count = std::min(4 - skipped, bytes - offset);
    const std::uint32_t word = region.word(RegionPattern::number_of(at));
    visit(offset, reinterpret_cast<const unsigned char*>(&word) + skipped, count);
    offset += count;
  }
}

int fill(const gapless_memory_pattern* pattern, void* memory, std::size_t bytes, void* stream) {
  return answer_of([&] {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    std::string error = wrong(pattern, begin, bytes);
    if (error.empty()) error = wrong(memory, bytes);
    if (!error.empty()) return error;
    return launch_over("memory_fill", {*pattern, {begin, begin + bytes}, nullptr}, stream);
  });
}

int verify(const gapless_memory_pattern* pattern, const void* memory, std::size_t bytes,
           gapless_memory_verdict* verdict, void* stream) {
  return answer_of([&] {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    std::string error = wrong(pattern, begin, bytes);
    if (error.empty()) error = wrong(memory, bytes);
    if (error.empty()) error = wrong(verdict);
    if (error.empty() && overlap(verdict, begin, bytes)) error = "verdict: lies in the memory";
    if (!error.empty()) return error;
    const PatternedMemory of{*pattern, {begin, begin + bytes}, verdict};
    error = launch(gapless_integrity_fat_binary, "memory_verify_begin", {1, 1}, stream, &of);
    return error.empty() ? launch_over("memory_verify", of, stream) : error;
  });
}

int fill_host(const gapless_memory_pattern* pattern, void* copy, std::uint64_t address,
              std::size_t bytes) {
  return answer_of([&] {
    std::string error = wrong(pattern, address, bytes);
    if (error.empty()) error = wrong(copy, bytes);
    if (!error.empty()) return error;
    each_word(*pattern, address, bytes,
              [copy](std::size_t offset, const unsigned char* expected, std::size_t count) {
                std::memcpy(static_cast<unsigned char*>(copy) + offset, expected, count);
              });
    return error;
  });
}

int verify_host(const gapless_memory_pattern* pattern, const void* copy, std::uint64_t address,
                std::size_t bytes, gapless_memory_verdict* verdict) {
  return answer_of([&] {
    std::string error = wrong(pattern, address, bytes);
    if (error.empty()) error = wrong(copy, bytes);
    if (error.empty()) error = wrong(verdict);
    if (!error.empty()) return error;
    gapless_memory_verdict all = nothing_checked();
    each_word(*pattern, address, bytes,
              [&](std::size_t offset, const unsigned char* expected, std::size_t count) {
                const unsigned char* const found = static_cast<const unsigned char*>(copy) + offset;
                all.checked += count;
                if (std::memcmp(found, expected, count) == 0) return;
                for (std::size_t i = 0; i < count; ++i) {
                  if (found[i] != expected[i]) add_mismatch(all, offset + i);
                }
              });
    *verdict = all;
    return error;
  });
}

}  // namespace
}  // namespace gapless::kernels

KERNELS_API int gapless_memory_fill(const gapless_memory_pattern* pattern, void* memory,
                                    size_t bytes, void* stream) {
  return gapless::kernels::fill(pattern, memory, bytes, stream);
}
KERNELS_API int gapless_memory_verify(const gapless_memory_pattern* pattern, const void* memory,
                                      size_t bytes, gapless_memory_verdict* verdict, void* stream) {
  return gapless::kernels::verify(pattern, memory, bytes, verdict, stream);
}
KERNELS_API int gapless_memory_fill_host(const gapless_memory_pattern* pattern, void* copy,
                                         uint64_t address, size_t bytes) {
  return gapless::kernels::fill_host(pattern, copy, address, bytes);
}
KERNELS_API int gapless_memory_verify_host(const gapless_memory_pattern* pattern, const void* copy,
                                           uint64_t address, size_t bytes,
                                           gapless_memory_verdict* verdict) {
  return gapless::kernels::verify_host(pattern, copy, address, bytes, verdict);
}
