// Dumps: what an allocator holds, as JSON text for `gapless inspect` and other programs.
#pragma once

#include <string>
#include <vector>

#include "allocator/device/device_allocator.h"
#include "allocator/device/options.h"

namespace gapless {

/// The dump of one or more devices: everything a HeapReport holds.
std::string write_dump(const std::vector<HeapReport>& reports);

/// Every option by name: its value, its default, what it does.
std::string write_options(const Options& options);

}  // namespace gapless
