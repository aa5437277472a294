// Replays through PyTorch's own allocators, in a process of their own.
//
//   gapless replay --allocator torch-native run.gtrace
//     starts  torch_host: libc10_cuda.so of an installed torch, over simgpu's libraries in front
//     <- its result, as JSON
//
// Nothing here is linked with torch; bench/torch_host is, where a torch is there to build it with.
#pragma once

#include <string>
#include <vector>

#include "bench/replay/replay.h"

namespace gapless::bench {

/// "torch-native", "torch-expandable".
std::vector<std::string> torch_allocator_names();

/// Whether torch_host is there.
[[nodiscard]] bool has_torch_host();

/// Whether that allocator ("torch-...") is one of torch's own.
[[nodiscard]] bool is_in_torch(const std::string& allocator);

/// Throws InputError where the host is not built, or fails.
ReplayResult replay_in_torch(const Trace& trace, const std::string& allocator,
                             std::uint64_t capacity_bytes, const ReplayOptions& options);

/// A result as it travels between the two.
std::string to_text(const ReplayResult& result);
ReplayResult from_text(const std::string& text);

}  // namespace gapless::bench
