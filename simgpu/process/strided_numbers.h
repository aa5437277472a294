// Numbers of small tensors that do not lie side by side: slices, expanded and transposed ones.
//
//   PyTorch's OffsetCalculator   | dimensions | 25 x {size, 2 more} | 25 x {stride in bytes} of
//   each
//                                                                           tensor |
//   index 5 of 2 x 4, strides {8, 32}:  5 = 1 + 4 * 1  ->  8 * 1 + 32 * 1 = 40
//
// The layout is that of torch 2.11 to 2.15. What does not look like it is left alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "simgpu/process/device_memory.h"

namespace gapless::simgpu {

/// Distances in bytes from a tensor's first number.
using Offsets = std::vector<std::uint32_t>;

class OffsetCalculator {
 public:
  static constexpr std::size_t kDimensions = 25;
  /// How long one for so many tensors is, in bytes.
  static constexpr std::size_t bytes(std::size_t tensors) {
    return 4 * (1 + 3 * kDimensions + kDimensions * tensors);
  }

  OffsetCalculator(const void* calculator, std::size_t tensors)
      : words_(bytes(tensors) / 4), tensors_(tensors) {
    std::memcpy(words_.data(), calculator, bytes(tensors));
  }

  /// Whether that can be one, for `count` numbers.
  [[nodiscard]] bool holds(std::size_t count) const {
    if (words_[0] > kDimensions) return false;
    std::uint64_t numbers = 1;
    for (std::size_t i = 0; i < words_[0]; ++i) {
      if (size(i) == 0 || size(i) > count) return false;
      numbers *= size(i);
      if (numbers > count) return false;
    }
    return numbers == count;
  }

  [[nodiscard]] std::uint32_t offset(std::size_t index, std::size_t tensor) const {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < words_[0]; ++i) {
      sum += static_cast<std::uint32_t>(index % size(i)) * stride(i, tensor);
      index /= size(i);
    }
    return sum;
  }
  [[nodiscard]] Offsets offsets(std::size_t count, std::size_t tensor) const {
    Offsets found(count);
    for (std::size_t i = 0; i < count; ++i) found[i] = offset(i, tensor);
    return found;
  }

 private:
  [[nodiscard]] std::uint32_t size(std::size_t dimension) const {
    return words_[1 + 3 * dimension];
  }
  [[nodiscard]] std::uint32_t stride(std::size_t dimension, std::size_t tensor) const {
    return words_[1 + 3 * kDimensions + dimension * tensors_ + tensor];
  }

  std::vector<std::uint32_t> words_;
  std::size_t tensors_;
};

/// The memory in which numbers of `element` bytes at those offsets lie; nothing where that is more
/// than a quarter of a MiB, or where there is none.
inline std::optional<std::vector<unsigned char>> read_around(const DeviceMemory& memory,
                                                             DeviceAddress address,
                                                             const Offsets& offsets,
                                                             std::size_t element) {
  constexpr std::size_t kMost = std::size_t{256} << 10;
  const std::size_t span = *std::max_element(offsets.begin(), offsets.end()) + element;
  if (span > kMost) return {};
  std::vector<unsigned char> found(span);
  if (!memory.read(found.data(), address, span)) return {};
  return found;
}

/// Those numbers, side by side.
inline std::optional<std::vector<unsigned char>> gather(const DeviceMemory& memory,
                                                        DeviceAddress address,
                                                        const Offsets& offsets,
                                                        std::size_t element) {
  const auto around = read_around(memory, address, offsets, element);
  if (!around) return {};
  std::vector<unsigned char> numbers(offsets.size() * element);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    std::memcpy(&numbers[i * element], &(*around)[offsets[i]], element);
  }
  return numbers;
}

}  // namespace gapless::simgpu
