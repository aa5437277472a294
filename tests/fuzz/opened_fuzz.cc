// Any bytes as what lies behind a compact trace's checksums (support/opened_trace.h): an error or a
// trace within the budget of memory, which is written and read back as it was, which goes into
// a page and every other format, and which every allocator can replay.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "bench/replay/replay.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/write_everything.h"
#include "tests/support/heap_peak.h"
#include "tests/support/look_at_everything.h"
#include "tests/support/opened_trace.h"

namespace {

using namespace gapless;

std::vector<Trace> read_within_budget(const std::string& file) {
  const testing::HeapPeak heap;
  std::vector<Trace> traces;
  try {
    traces = read_compact(file, "fuzz");
  } catch (const InputError&) {
  }
  expect(heap.bytes() <= 64 * file.size() + 64 * MiB, "more memory than the budget");
  return traces;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<Trace> traces = read_within_budget(testing::OpenedTrace::of_text(text).close());
  if (traces.empty()) return 0;
  const std::vector<Trace> again = read_compact(write_compact(traces), "again");
  expect(again.size() == traces.size(), "traces are lost");
  for (std::size_t i = 0; i < traces.size(); ++i) {
    expect(again[i].events == traces[i].events, "events changed");
    expect(again[i].segments == traces[i].segments, "segments changed");
    expect(again[i].site_stacks == traces[i].site_stacks, "stacks changed");
    expect(testing::adds_up(traces[i]), "a moment does not add up");
  }
  testing::write_everything(traces, size);
  constexpr std::size_t kFew = 200;
  if (traces[0].events.size() > kFew) return 0;
  for (const char* allocator : {"gapless", "native", "expandable"}) {
    const bench::ReplayResult result =
        bench::replay(traces[0], allocator, {.capacity_bytes = 4 * GiB, .time_operations = false});
    expect(!result.fits || result.peak_reserved_bytes <= 4 * GiB, "more is reserved than there is");
  }
  return 0;
}
