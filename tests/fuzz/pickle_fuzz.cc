// Any bytes as a PyTorch snapshot: an error or a snapshot within the budget of memory, never a
// crash; and the same whether its events are read one by one or as a whole.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/report/fragmentation.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"
#include "tests/support/look_at_everything.h"

namespace {

using namespace gapless;

// What the budgets allow differs between the two.
bool is_of_budget(const std::string& error) {
  return error.find("this is no recording") != std::string::npos;
}

void compare_with_whole(const std::string& bytes, const Snapshot* streamed,
                        const std::string& error) {
  try {
    const PickleDocument document(bytes, "fuzz");
    const Snapshot whole = read_snapshot(document);
    if (is_of_budget(error)) return;
    expect(streamed != nullptr, "only the whole could be read");
    expect(streamed->traces.size() == whole.traces.size(), "other devices");
    for (std::size_t i = 0; i < whole.traces.size(); ++i) {
      expect(streamed->traces[i].events == whole.traces[i].events, "other events");
      expect(streamed->traces[i].sites == whole.traces[i].sites, "other call sites");
    }
    expect(whole.traces.empty() || *streamed->traces[0].stacks == *whole.traces[0].stacks,
           "other stacks");
  } catch (const InputError& other) {
    if (streamed != nullptr || is_of_budget(error) || is_of_budget(other.what())) return;
    expect(error == other.what(), "another error");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  std::optional<Snapshot> snapshot;
  std::string error;
  {
    const testing::HeapPeak heap;
    try {
      snapshot = snapshot_of(file, "fuzz");
      for (const Trace& trace : snapshot->traces) {
        expect(testing::adds_up(trace), "a moment does not add up");
      }
      (void)analyze(state_of(*snapshot));
    } catch (const InputError& caught) {
      error = caught.what();
    }
    expect(heap.bytes() <= 64 * size + 64 * MiB, "more memory than the budget");
  }
  if (looks_like_pickle(file)) compare_with_whole(file, snapshot ? &*snapshot : nullptr, error);
  return 0;
}
