// gapless's statistics as PyTorch's DeviceStats, field by field.
#pragma once

#include "allocator/device/statistics.h"
#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {

torch_cuda::DeviceStats to_torch(const DeviceStatistics& statistics);

/// Adds what another allocator still holds, from before gapless took its place.
void add(torch_cuda::DeviceStats& stats, const torch_cuda::DeviceStats& others);

}  // namespace gapless::torch_plugin
