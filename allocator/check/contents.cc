#include "allocator/check/contents.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::uint64_t kWordBytes = 4;
// Copied at once. What the simulated GPU knows of a part says nothing of another.
constexpr std::uint64_t kPartBytes = 64 * KiB;

}  // namespace

DriverStatus Contents::fill(DeviceAddress begin, DeviceAddress end, std::uint32_t word,
                            StreamHandle stream) {
  const DeviceAddress first = align_down(begin, kWordBytes);
  const std::uint64_t words = div_up(end - first, kWordBytes);
  return words == 0 ? DriverStatus::ok : driver_.memset_d32(device_, first, word, words, stream);
}

DriverStatus Contents::compare(DeviceAddress begin, DeviceAddress end, std::uint32_t word,
                               StreamHandle stream, Difference& difference) {
  difference = {};
  if (end - begin >= kLarge && comparer_ && driver_.knows_contents(device_, begin, end - begin) &&
      comparer_(begin, end - begin, word, stream, difference)) {
    return DriverStatus::ok;
  }
  difference = {};
  while (begin < end) {
    const DeviceAddress stop = std::min(end, align_down(begin, kPartBytes) + kPartBytes);
    const std::uint64_t bytes = stop - begin;
    if (driver_.knows_contents(device_, begin, bytes)) {
      buffer_.resize(bytes);
      const DriverStatus status =
          driver_.copy_to_host(device_, buffer_.data(), begin, bytes, stream);
      if (status != DriverStatus::ok) return status;
      for (std::uint64_t i = 0; i < bytes; ++i) {
        const auto expected = static_cast<unsigned char>(word >> (8 * ((begin + i) % kWordBytes)));
        if (buffer_[i] == expected) continue;
        if (difference.bytes++ == 0) difference.first = begin + i;
      }
    }
    begin = stop;
  }
  return DriverStatus::ok;
}

}  // namespace gapless
