// Any bytes as a PyTorch snapshot: an error or a snapshot, never a crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/error.h"
#include "allocator/report/fragmentation.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gapless;
  try {
    const PickleDocument document(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    const Snapshot snapshot = read_snapshot(document);
    for (const Trace& trace : snapshot.traces) check_trace(trace);
    (void)analyze(state_of(snapshot));
  } catch (const InputError&) {
  }
  return 0;
}
