// MemoryState: what lies where at one moment, whoever allocated it.
//
//   PyTorch snapshot --+
//   gapless dump ------+--> MemoryState --> analyze() --> Fragmentation (fragmentation.h)
//   end of a trace ----+
//
// The same picture for all: segments (ranges of addresses backed by memory) made of blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/device/device_allocator.h"
#include "allocator/trace/snapshot.h"

namespace gapless {

struct StateBlock {
  enum class Kind : std::uint8_t {
    live,     // handed out
    pending,  // freed, but not reusable yet
    free,
  };
  Kind kind = Kind::free;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;  // live and pending
  std::uint64_t stream = 0;
  std::string site;               // where it was allocated, if known
  std::uint64_t before = 0;       // bytes in front of what the program has: a check's band
  std::optional<double> freed_s;  // of a freed block: seconds before the recording's end, if known
  std::uint32_t number = kNoNumber;  // of a recording: the block's number in its trace

  static constexpr std::uint32_t kNoNumber = UINT32_MAX;

  /// Where the block begins as the program knows it.
  [[nodiscard]] std::uint64_t given_address() const { return address + before; }
};

struct StateSegment {
  DeviceIndex device = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
  bool expandable = false;  // PyTorch's expandable segments: any rest is split off
  // "small", "large", "home", "window", "fenced"; a private pool's id follows in brackets
  std::string pool;
  std::vector<StateBlock> blocks;  // by address; together as long as the segment
};

/// A block that was there before, as far as the recording goes back.
struct FreedBlock {
  StateBlock block;
  DeviceIndex device = 0;
  bool fenced = false;  // its addresses were not mapped again
};

struct MemoryState {
  std::string name;
  std::string source;  // "PyTorch snapshot", "gapless dump", or a trace's
  std::vector<StateSegment> segments;
  std::vector<FreedBlock> freed;  // the one freed last is the last
  /// gapless joins free pages to windows, so more than the largest hole can be had; 0 elsewhere.
  std::uint64_t joinable_free_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint32_t windows = 0;
};

/// `freed_at`: with what was freed and lay at that address.
MemoryState state_of(Snapshot snapshot, std::optional<std::uint64_t> freed_at = {});

/// What lay where at the end of a recording: in the segments that it tells of, else in what
/// lay_out() (trace/layout.h) makes of it, which `source` then says.
MemoryState state_of(const std::vector<Trace>& traces, std::optional<std::uint64_t> freed_at = {});

/// Reads what write_dump (dump.h) wrote. Throws InputError; `name` stands in errors.
MemoryState read_dump(const std::string& text, const std::string& name);

/// A PyTorch snapshot, a gapless dump or a recording of another format, told apart by their first
/// bytes. Throws InputError. `freed_at`: as for state_of(); a dump has what checks remember.
MemoryState load_state(const std::string& path, std::optional<std::uint64_t> freed_at = {});

}  // namespace gapless
