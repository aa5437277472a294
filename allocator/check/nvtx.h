// NVTX's memory API, as far as a sub-allocator needs it: what it has, and what it has handed out.
//
//   heap     [ a mapping of the driver's                    ]   nobody may touch it ...
//   regions     [ block ]      [ block      ]    [ block ]      ... but here
//
// A tool that knows this (compute-sanitizer) sees accesses to memory that no block has. NVTX finds
// the tool by NVTX_INJECTION64_PATH in the environment at the first call; without one all calls do
// nothing. CUDA must have been initialised before that, so it is to be where memory is mapped.
// Thread-safe.
#pragma once

#include <cstdint>

#include "allocator/driver/driver.h"

namespace gapless::nvtx {

/// Whether NVTX's header was found when this was built; without it nobody is ever told anything.
bool is_built();

/// The tool's name for a heap; nullptr where it has none, because it refused or there is no tool.
using Heap = void*;

/// What is mapped there is a heap: until a region is, no part of it may be touched.
Heap register_heap(DeviceAddress address, std::uint64_t bytes);
/// It is none any more; its regions must be gone.
void unregister_heap(Heap heap);

/// A part of the heap may be touched. `name`: up to kMostName printable characters of ASCII, or
/// nullptr.
void register_region(Heap heap, DeviceAddress address, std::uint64_t bytes, const char* name);
/// The region that begins there may be touched no more.
void unregister_region(DeviceAddress address);

/// What compute-sanitizer takes for a name.
constexpr unsigned kMostName = 49;

}  // namespace gapless::nvtx
