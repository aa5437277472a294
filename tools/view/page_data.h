// A trace as the tables that a page of `gapless view` is drawn from.
//
//   u32 bytes | JSON: names, sites, frames, ranges, peaks    what is told in words
//   u32 count | u32 bytes, column | u32 bytes, column ...    what is told in millions
//
//   kinds      a a a f a f s ...       one byte an event
//   times      +12 +3 +5 ...           differences, in a varint each
//   sizes      4096 512 512 ...        of each allocation; likewise address, site, stream, pool
//   freed      1 1 ...                 of each free: how many blocks before the newest one
//
// Nothing is left out and nothing is rounded: the page counts what is requested, allocated and
// reserved from the same events as the command does, and comes to the same numbers. Columns of
// differences deflate well: 205,000 events are 1 MB. Integers are little endian; a varint holds 7
// bits a byte, the lowest first; signed ones are zigzag.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"
#include "tools/view/reserved_ranges.h"

namespace gapless::tools {

/// What the columns are, in their order.
enum class PageColumn : std::uint8_t {
  kinds,            // one byte an event
  times_us,         // of each event, signed difference; empty where none is known
  sizes,            // of each allocation
  addresses,        // of each allocation, signed difference, in units of `address_unit`
  sites,            // of each allocation; empty where there is one site
  streams,          // likewise
  pools,            // likewise
  freed,            // of each free_requested and free
  range_sizes,      // of each segment event
  range_addresses,  // of each segment event, signed difference, in bytes
  range_streams,    // of each segment event
  ooms,             // three numbers each: bytes, free on the device, site
  node_parents,     // of each stack node but the first: how many nodes before it
  node_frames,      // of each stack node but the first
  site_nodes,       // of each site
  count
};

/// The numbers of a trace from the first recorded event on.
struct PageNumbers {
  std::uint64_t events = 0;
  std::uint64_t initial_events = 0;
  std::uint64_t blocks = 0;
  std::uint64_t ooms = 0;
  std::uint64_t peak_requested_bytes = 0;
  std::uint64_t peak_allocated_bytes = 0;  // each block rounded up to 512 B
  /// The first event at which that is live: 1 is the first recorded one, 0 what was live before.
  std::uint64_t peak_allocated_event = 0;
  std::optional<std::uint64_t> peak_reserved_bytes;
};
PageNumbers page_numbers(const Trace& trace);

/// The tables of a trace. `numbers` stands in them as well.
std::string page_table(const Trace& trace, const PageNumbers& numbers);

}  // namespace gapless::tools
