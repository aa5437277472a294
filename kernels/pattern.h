// What memory holds that was filled with a pattern of integrity.h, and what a verdict is made of:
// the same on the device and on the host.
//
//   RegionPattern of(pattern, address)    one key for 16 GiB of addresses
//     of.word(1)                          mixed(1 ^ key): at 0x7f00'0000'0004, word 1 of its region
//     of.byte(0x7f00'0000'0006)           bits 16 to 23 of that
#pragma once

#include <cstdint>

#include "kernels/integrity.h"

#ifdef __CUDACC__
#define GAPLESS_HOST_DEVICE __host__ __device__
#else
#define GAPLESS_HOST_DEVICE
#endif

namespace gapless::kernels {

/// One to one, and each bit of x moves each of the result with a chance close to one half:
/// lowbias32 of Chris Wellons's hash-prospector (public domain). Eight operations, so that a GPU
/// waits for its memory and not for this.
GAPLESS_HOST_DEVICE constexpr std::uint32_t mixed(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

/// A pattern in the aligned 16 GiB that an address lies in, whose words 32 bits can count. As
/// mixing is one to one, no two of these words are equal, and none is under two seeds.
class RegionPattern {
 public:
  static constexpr std::uint64_t kRegionBytes = std::uint64_t{1} << 34;

  GAPLESS_HOST_DEVICE constexpr RegionPattern(const gapless_memory_pattern& pattern,
                                              std::uint64_t address)
      : is_by_address_(pattern.kind == GAPLESS_PATTERN_BY_ADDRESS),
        key_(is_by_address_
                 ? mixed(pattern.seed ^ mixed(static_cast<std::uint32_t>(address / kRegionBytes)))
                 : pattern.word) {}

  /// A word by its number_of.
  [[nodiscard]] GAPLESS_HOST_DEVICE constexpr std::uint32_t word(std::uint32_t number) const {
    return is_by_address_ ? mixed(number ^ key_) : key_;
  }
  [[nodiscard]] GAPLESS_HOST_DEVICE constexpr unsigned char byte(std::uint64_t address) const {
    return static_cast<unsigned char>(word(number_of(address)) >> (address % 4 * 8));
  }
  /// Which of its region's words a byte is in.
  static GAPLESS_HOST_DEVICE constexpr std::uint32_t number_of(std::uint64_t address) {
    return static_cast<std::uint32_t>(address / 4);
  }

 private:
  bool is_by_address_;
  std::uint32_t key_;
};

GAPLESS_HOST_DEVICE constexpr gapless_memory_verdict nothing_checked() {
  return {0, 0, UINT64_MAX, UINT64_MAX};
}

/// Of what both looked at. With 1 more, UINT64_MAX, which is no offset, is the least last of all.
GAPLESS_HOST_DEVICE constexpr gapless_memory_verdict merged(const gapless_memory_verdict& a,
                                                            const gapless_memory_verdict& b) {
  return {a.checked + b.checked, a.mismatches + b.mismatches, a.first < b.first ? a.first : b.first,
          a.last + 1 > b.last + 1 ? a.last : b.last};
}

/// Of a byte that is not what it has to be.
GAPLESS_HOST_DEVICE constexpr void add_mismatch(gapless_memory_verdict& verdict,
                                                std::uint64_t offset) {
  verdict = merged(verdict, {0, 1, offset, offset});
}

}  // namespace gapless::kernels
