// Segments of a snapshot, made of what the core tells of its memory.
//
//   home     [ live | hole | lent | live | absent | live ]      windows   [ live ]
//   segments  '----0----'       '-1--'        '-2--'               '--3--'
//
// A segment is a range of addresses in one private pool (or none) where memory lies as blocks see
// it: what a block in a window uses is there, and not in the home. Segments so add up to what is
// reserved, less what is asleep. None is a stream's: what is free in it is everyone's.
#pragma once

#include <functional>
#include <vector>

#include "allocator/device/device_allocator.h"
#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

/// `context_of`: where the block at an address was allocated, if that is known.
std::vector<torch_cuda::SegmentInfo> segments_of(
    const HeapReport& report, const std::function<Context(const void*)>& context_of);

/// Splits entries of a device that say where memory was mapped, so that PyTorch's viewer can undo
/// them from those segments on (allocator/trace/going_back.h).
void split_for_viewer(std::vector<TraceEntry>& entries,
                      const std::vector<torch_cuda::SegmentInfo>& segments);

}  // namespace gapless::torch_plugin
