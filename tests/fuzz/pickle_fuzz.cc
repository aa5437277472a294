// Any bytes as a PyTorch snapshot: an error or a snapshot within the budget of memory, never a
// crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/report/fragmentation.h"
#include "allocator/trace/load.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"
#include "tests/support/look_at_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gapless;
  const testing::HeapPeak heap;
  try {
    std::string file(reinterpret_cast<const char*>(data), size);
    Snapshot snapshot = snapshot_of(std::move(file), "fuzz");
    for (const Trace& trace : snapshot.traces) {
      expect(testing::adds_up(trace), "a moment does not add up");
    }
    (void)analyze(state_of(std::move(snapshot)));
  } catch (const InputError&) {
  }
  expect(heap.bytes() <= 64 * size + 64 * MiB, "more memory than the budget");
  return 0;
}
