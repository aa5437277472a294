// The addresses that a trace speaks of, as the axis that the address space is drawn on.
//
//   reserved or allocated at any time   [ 0x100 .. 0x400 ][ 0x400 .. 0x500 ]     [ 0x800 .. 0x900 ]
//   the axis                            [ 0x100 ........................ 0x500 ] [ 0x800 .. 0x900 ]
//
// Joined where they touch: the rest of the 47 bits are gaps.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::tools {

struct AddressRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  bool operator==(const AddressRange&) const = default;
};

/// All that was ever reserved or allocated, by address, disjoint. Empty where no address is known.
std::vector<AddressRange> ranges_of(const Trace& trace);

}  // namespace gapless::tools
