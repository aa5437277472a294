// A picture of memory over time: what held it, stacked, under the card's capacity.
//
//   GiB |------------------------------- capacity
//       |            ,-.   ,-.   x 2.24 GiB asked
//       |    ,-.   _/###\_/###\__|     activations
//       |___/***\_/**************|     gradients, parameters
//       +------------------------+     allocations and frees, in order
//
// One file that needs no other. Texts in it may come from anywhere, and are escaped (svg.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/memory_holders.h"

namespace gapless::tools {

/// One GPU of one process with one allocator.
struct MemoryPanel {
  std::string title;
  const simgpu::MemoryCourse* course = nullptr;
  std::uint64_t capacity_bytes = 0;
  /// Of the GPU, but not PyTorch's: the context.
  std::uint64_t outside_bytes = 0;
  /// The request it ended with, where it did.
  bool died = false;
  std::string verdict;
};

/// One below the other.
std::string svg_of(const std::vector<MemoryPanel>& panels);
/// The same as a page; `report` is what is said to people.
std::string html_of(const std::vector<MemoryPanel>& panels, const std::string& report);

}  // namespace gapless::tools
