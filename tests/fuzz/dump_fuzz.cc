// Any bytes as a dump of gapless: an error or a state within the budget of memory, never a crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/report/fragmentation.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gapless;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const testing::HeapPeak heap;
  try {
    (void)analyze(read_dump(text, "fuzz"));
  } catch (const InputError&) {
  }
  expect(heap.bytes() <= 64 * size + 64 * MiB, "more memory than the budget");
  return 0;
}
