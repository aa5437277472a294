// Any bytes as an RMM log or a CSV of minimalloc's: an error, or a trace within the budget of
// memory that goes through our own format, and through a snapshot, unchanged.
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/rmm_log.h"
#include "allocator/trace/snapshot_writer.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"

namespace {

using namespace gapless;

void check(const Trace& trace) {
  const Trace again = read_compact(write_compact({trace}), "again").at(0);
  expect(again.events == trace.events && again.sites.size() == trace.sites.size(),
         "the trace changed");
  if (trace.events.empty()) return;
  const std::vector<Trace> back = snapshot_of(write_snapshot({trace}).bytes, "back").traces;
  // Where all events are those of blocks that live on, there is no history.
  if (back.empty()) return;
  expect(back.at(0).operations() == trace.operations(), "operations are lost in a snapshot");
  expect(peak_live_bytes(back.at(0)) == peak_live_bytes(trace), "the peak changed in a snapshot");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Trace trace;
  try {
    const testing::HeapPeak heap;
    if (looks_like_rmm_log(text)) {
      trace = read_rmm_log(text, "fuzz.dev1.csv");
    } else if (looks_like_minimalloc(text)) {
      trace = read_minimalloc(text, "fuzz.csv");
    }
    expect(heap.bytes() <= 64 * size + 64 * MiB, "more memory than the budget");
  } catch (const InputError&) {
    return 0;
  }
  check(trace);
  if (trace.source == "minimalloc CSV" && !trace.events.empty()) {
    const Trace again = read_minimalloc(write_minimalloc(trace), "again.csv");
    expect(again.operations() == trace.operations(), "buffers are lost");
  }
  return 0;
}
