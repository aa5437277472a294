// RuleBreaker: reaches what tests break to see that validate() tells.
//
//   RuleBreaker::free_units(home) += 1;      home.validate() throws "free units do not add up"
//
// Nothing of the product knows more of it than its name.
#pragma once

#include "allocator/device/device_allocator.h"

namespace gapless {

struct RuleBreaker {
  static auto& free_units(Home& home) { return home.free_units_; }
  static auto& tally(Home& home) { return home.tally_; }
  static auto& prefix_units(Home& home) { return home.prefix_units_; }
  static auto& suffix_units(Home& home) { return home.suffix_units_; }
  static auto& starts(Home& home) { return home.starts_; }
  static auto& suffix(Home& home) { return home.suffix_; }
  static auto& absent(Home& home) { return home.absent_; }
  static auto& present(Home& home) { return home.present_; }
  static auto& page_owner(Home& home) { return home.page_owner_; }
  static auto& bins(Home& home, Owner owner) { return home.holes_.at(owner)->bins; }
  static auto& pages(Home& home, Owner owner) { return home.holes_.at(owner)->pages; }
  static constexpr Owner kNobody = Home::kNobody;

  static auto& words(SizeBins& bins) { return bins.words_; }
  static auto& summary(SizeBins& bins) { return bins.summary_; }
  static auto& count(SizeBins& bins) { return bins.count_; }

  static auto& mapped_pages(Windows& windows) { return windows.mapped_pages_; }
  static auto& windows(DeviceHeap& heap) { return heap.mapper_.windows_; }
  static auto& small_blocks(DeviceHeap& heap) { return heap.placement_.small_pages_.ends_; }
  static auto& page_handle(DeviceHeap& heap) { return heap.home_mapper_.handle_; }
  static auto& device_pages(DeviceHeap& heap) { return heap.home_mapper_.device_pages_; }
  static auto& first_extent(Windows& windows) { return windows.extents_.front(); }

  static auto& arena(DeviceAllocator& allocator) { return allocator.main_; }
  static auto& statistics(DeviceAllocator& allocator) { return allocator.statistics_; }
  static auto& pinned(DeviceAllocator& allocator) { return allocator.pinned_.by_address_; }
};

}  // namespace gapless
