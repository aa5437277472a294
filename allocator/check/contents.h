// Contents: device memory filled with a word, and looked through for what is not that word.
//
//   fill   ffff ffff ffff ffff ffff ffff      cuMemsetD32Async, in stream order
//   find   ffff ffff ffff 1234 ffff ffff      -> 2 wrong bytes, the first at 12
//
// Small ranges are copied to the host and compared there; large ones are read on the device, where
// somebody can (torch_plugin/adapter/memory_kernels.h). A simulated GPU does not know
// what kernels wrote that it did not run: of what it does not know nothing is said.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless {

/// What differs in a range.
struct Difference {
  std::uint64_t bytes = 0;  // how many
  DeviceAddress first = 0;  // of them
};

class Contents {
 public:
  /// compare() in another way; false where it could not.
  using Comparer = std::function<bool(DeviceAddress begin, std::uint64_t bytes, std::uint32_t word,
                                      StreamHandle stream, Difference& difference)>;

  Contents(Driver& driver, DeviceIndex device) : driver_(driver), device_(device) {}

  /// For ranges of kLarge and more.
  void set_comparer(Comparer comparer) { comparer_ = std::move(comparer); }

  /// The words that touch [begin, end) become `word`: up to three bytes more on either side.
  DriverStatus fill(DeviceAddress begin, DeviceAddress end, std::uint32_t word,
                    StreamHandle stream);
  /// Bytes of [begin, end) that are not as fill() left them, after the stream's earlier work; waits
  /// for it.
  DriverStatus compare(DeviceAddress begin, DeviceAddress end, std::uint32_t word,
                       StreamHandle stream, Difference& difference);

 private:
  static constexpr std::uint64_t kLarge = std::uint64_t{1} << 20;

  Driver& driver_;
  DeviceIndex device_;
  Comparer comparer_;
  std::vector<unsigned char> buffer_;
};

}  // namespace gapless
