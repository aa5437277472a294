// Any bytes as a compact trace: an error or a trace, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "tests/fuzz/expect.h"
#include "tests/support/look_at_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    for (const gapless::Trace& trace :
         gapless::read_compact({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      expect(gapless::testing::adds_up(trace), "a moment does not add up");
    }
  } catch (const gapless::InputError&) {
  }
  return 0;
}
