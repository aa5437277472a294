// Any bytes as a program of operations: the simulated GPU and the model judge it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/support/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gapless::testing;
  MachineOptions options;
  options.capacity_bytes = 8 << 20;
  options.streams = 3;
  options.allocator.page_size = 64 << 10;
  const ProgramStyle style{.streams = 3,
                           .capacity_bytes = options.capacity_bytes,
                           .largest_bytes = 3 << 20,
                           .live_blocks = 20};
  Machine machine(options);
  std::string wrong = machine.run(ops_of_bytes(data, size, style));
  if (wrong.empty()) wrong = machine.finish();
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
