// What a library in front of PyTorch's operators (simgpu/torch) asks and tells of device memory.
//
//   aten::nonzero(mask)      simgpu_knowledge(mask): known
//     computed on the CPU    simgpu_read_values -> 3 indices
//     the real kernel        reads "how many" back: SimgpuOperator::answer, 3
//     its result             simgpu_write_values(indices, known)
//
// Plain C: that library is another one for each version of torch, and may be built on the user's
// machine. All of it is for any thread.
#pragma once

#include <cstdint>

#include "simgpu/process/api.h"

extern "C" {

/// Where the calling thread is among the program's operators.
struct SimgpuOperator {
  /// How many operators it is inside of, one within the other. A kernel launched inside none is
  /// nobody's that is known.
  int operators = 0;
  /// The same without those that only hand numbers to the host: what these read, the program reads.
  int computing = 0;
  /// What is asked for by the operator, of numbers that its kernels did not compute: how many.
  bool has_answer = false;
  std::int64_t answer = 0;
  /// What a read by the program is, where that is known (Estimate); -1: it is not.
  int reads = -1;
  /// The graph that the last kernel was captured into; null where none was.
  void* graph = nullptr;
  /// How many texts of tensors are being made, print(loss): what is read for them steers nothing.
  int texts = 0;
};
SIMGPU_API SimgpuOperator* simgpu_operator();
/// The calling thread begins to make a text (1), or has made it (-1).
SIMGPU_API void simgpu_makes_text(int change);

/// Knowledge of these bytes, the least of any: 0 none, 1 likely, 2 known.
SIMGPU_API int simgpu_knowledge(const void* address, std::uint64_t bytes);
SIMGPU_API bool simgpu_knows_any(const void* address, std::uint64_t bytes);
/// Sets a flag for each of `count` numbers of `size` bytes: whether anything is known of it.
/// Returns the least that is known of those.
SIMGPU_API int simgpu_flag_known(const void* numbers, std::uint64_t size, std::uint64_t count,
                                 unsigned char* flags);
/// Whether so many bytes of contents would be kept now; of more, only the first few are.
SIMGPU_API bool simgpu_may_keep(std::uint64_t bytes);
/// False where the range is no memory of a device.
SIMGPU_API bool simgpu_read_values(void* target, const void* address, std::uint64_t bytes);
SIMGPU_API void simgpu_write_values(void* address, const void* source, std::uint64_t bytes,
                                    int knowledge);
SIMGPU_API void simgpu_forget_values(void* address, std::uint64_t bytes);

/// Whether any stream captures: what runs then is computed when the graph is launched.
SIMGPU_API bool simgpu_captures();
/// The graph's kernels write there: whenever it is launched, nothing is known of it any more.
SIMGPU_API void simgpu_graph_writes(void* graph, void* address, std::uint64_t bytes);

/// A size, a branch or a number followed from what nobody knows (process_record.h, Estimate).
SIMGPU_API void simgpu_estimated(int what);

/// An operator runs that is for this compute capability and newer: 80 for 8.0.
SIMGPU_API void simgpu_needs_capability(int capability);

/// A kernel's assertion does not hold, as `what` says: as on a GPU the process can do nothing more
/// with it.
SIMGPU_API void simgpu_asserts(const char* what);

/// What the program was started with (config.h).
struct SimgpuUnknown {
  bool noise = false;
  bool most = false;
  double skew = 0;
  std::uint64_t seed = 0;
};
SIMGPU_API SimgpuUnknown simgpu_unknown();
}
