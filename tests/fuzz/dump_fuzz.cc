// Any bytes as a dump of gapless: an error or a state within the budget of memory, never a crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/report/address.h"
#include "allocator/report/fragmentation.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gapless;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const testing::HeapPeak heap;
  try {
    const MemoryState state = read_dump(text, "fuzz");
    (void)analyze(state);
    for (const FreedBlock& freed : state.freed) {
      (void)to_text(report_address(state, freed.block.address));
      if (&freed - state.freed.data() == 3) break;
    }
    if (!state.segments.empty()) {
      (void)to_text(report_address(state, state.segments.back().address + size));
    }
  } catch (const InputError&) {
  }
  expect(heap.bytes() <= 64 * size + 64 * MiB, "more memory than the budget");
  return 0;
}
