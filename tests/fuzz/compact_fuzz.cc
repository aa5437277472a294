// Any bytes as a compact trace: an error or a trace, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)gapless::read_compact({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const gapless::InputError&) {
  }
  return 0;
}
