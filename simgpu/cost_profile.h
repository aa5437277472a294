// What driver calls cost: the host time of each call, as measured on real cards.
//
//   cost of a call = fixed_ns + per_page_ns * pages it covers (2 MiB each)
//
// Profiles built in: "a100" and "desktop" (a 24-32 GB card), and "free" (every call costs nothing).
// Another one is read from a JSON file, in the form the GPU tests write:
//
//   {"name": "my card", "calls": {"mem_create": {"fixed_ns": 7600, "per_page_ns": 0}, ...}}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/driver/call.h"

namespace gapless::simgpu {

struct CallCost {
  double fixed_ns = 0;
  double per_page_ns = 0;
};

struct CostProfile {
  std::string name = "free";
  PerDriverCall<CallCost> calls{};

  /// The host time of one call over `bytes` bytes (0 where the call has no size), in ns.
  [[nodiscard]] std::uint64_t cost_ns(DriverCall call, std::uint64_t bytes) const;
};

/// The names of the built-in profiles.
std::vector<std::string> built_in_profiles();

/// A built-in profile by name, or one read from the JSON file of that path. Throws
/// std::runtime_error that names the file, the place and the cause.
CostProfile load_cost_profile(const std::string& name_or_path);

}  // namespace gapless::simgpu
