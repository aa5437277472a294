// What the recorded allocator had from its driver, from the first moment of a trace to its last.
//
//   the end   [ 0x100 .. 0x400 ]      [ 0x800 .. 0x900 ]      as the recording tells
//   event 7   segment_free 0x500 .. 0x600  undone: it was reserved before
//   event 3   segment_alloc 0x800 .. 0x900 undone: it was not reserved before
//
// The ranges that were ever reserved, joined where they touch, are the axis that the address space
// is drawn on: the rest of the 47 bits are gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::tools {

struct AddressRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  bool operator==(const AddressRange&) const = default;
};

/// What was reserved before the first event. Nothing where the trace does not tell, or where its
/// segments and its events contradict each other.
std::optional<std::uint64_t> reserved_at_start(const Trace& trace);

/// All that was ever reserved or allocated, by address, disjoint. Empty where no address is known.
std::vector<AddressRange> ranges_of(const Trace& trace);

}  // namespace gapless::tools
