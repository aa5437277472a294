// Op: one operation of a program that uses the allocator. The same type drives the model-based
// test, the fuzzer and the regression tests, and prints as code that can be pasted into one:
//
//   Alloc{300000, 1}, Free{0}, Trim{0}, ...
//
// Operations name live blocks by a number that is taken modulo how many there are, so every list of
// operations is a valid program.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

namespace gapless::testing {

struct Alloc {  // and a kernel that writes all of the block
  std::uint64_t bytes = 0;
  std::uint32_t stream = 0;
};
struct Free {
  std::uint32_t block = 0;
};
struct Touch {  // a kernel that writes all of a live block, on the block's own stream
  std::uint32_t block = 0;
  std::uint32_t duration_us = 0;
};
struct UseOn {  // another stream uses a live block, after its own has: record_stream
  std::uint32_t block = 0;
  std::uint32_t stream = 0;
  std::uint32_t duration_us = 0;
};
struct UseElsewhere {  // a stream of another device does, after the block's last user
  std::uint32_t block = 0;
  std::uint32_t duration_us = 0;
};
struct Advance {  // the host is busy with something else
  std::uint32_t us = 0;
};
struct SyncStream {
  std::uint32_t stream = 0;
};
struct Trim {
  std::uint64_t keep_bytes = 0;
};
struct SetLimit {
  std::uint64_t bytes = 0;
};
struct FailNext {  // the nth driver call from now on fails, once
  std::uint32_t nth = 0;
  bool out_of_memory = false;
};
struct Report {  // statistics, report and their resets
  bool reset = false;
};

struct BeginPool {  // requests of one stream (or of all) go to a private pool
  std::uint32_t pool = 0;
  std::uint32_t stream = 0;
  bool all_streams = false;
};
struct EndPool {  // of the last one begun, if it was not begun for a capture
  bool release = false;
};
struct Capture {  // a stream begins to capture a graph, into a pool of its own or that of another
  std::uint32_t stream = 0;
  std::uint32_t pool = 0;
};
struct EndCapture {};
struct Replay {
  std::uint32_t graph = 0;
  std::uint32_t stream = 0;
};
struct DropGraph {
  std::uint32_t graph = 0;
};

struct Pin {  // a live block is known to a network card or another process
  std::uint32_t block = 0;
};
struct Unpin {
  std::uint32_t block = 0;
};
struct Checkpoint {  // where the blocks of a pool are now
  std::uint32_t pool = 0;
};
struct Restore {  // the pool's blocks as they were at one of the last checkpoints
  std::uint32_t checkpoint = 0;
};
struct SetPool {  // what is free in a pool may serve others before a request fails, or no more
  std::uint32_t pool = 0;
  bool use_on_oom = false;
};
struct Share {  // another process opens a live block, writes to it, and goes on using it
  std::uint32_t block = 0;
};
struct Unshare {  // it closes one again
  std::uint32_t block = 0;
};
struct Sleep {  // a pool's memory goes back to the device, its addresses stay
  std::uint32_t pool = 0;
  bool save = false;
};
struct Wake {
  std::uint32_t pool = 0;
};
struct Copy {  // a live block is replaced by a larger one, as concatenation does
  std::uint32_t block = 0;
  std::uint64_t more_bytes = 0;
};

using Op =
    std::variant<Alloc, Free, Touch, Advance, SyncStream, Trim, SetLimit, FailNext, Report, UseOn,
                 BeginPool, EndPool, Capture, EndCapture, Replay, DropGraph, Pin, Unpin, Checkpoint,
                 Restore, UseElsewhere, Copy, Sleep, Wake, SetPool, Share, Unshare>;

/// "Alloc{300000, 1}"
std::string to_string(const Op& op);
/// All of them, separated by commas, ready to be pasted.
std::string to_string(const std::vector<Op>& ops);

/// What a random program is like.
struct ProgramStyle {
  std::uint32_t streams = 1;
  std::uint64_t capacity_bytes = 0;
  /// Blocks up to about this many bytes.
  std::uint64_t largest_bytes = 0;
  /// Live blocks it tends to keep.
  std::uint32_t live_blocks = 0;
  bool faults = false;
  bool limits = false;
  bool pools = false;  // private pools and graphs
  bool pins = false;
  bool peers = false;  // another device
  bool copies = false;
  bool checkpoints = false;  // many of them
  bool shares = false;       // with other processes
  /// Operations that are done over and over, so many times; 0: none.
  std::uint32_t repeats = 0;
};

/// The next operation of a random program with `live` live blocks now.
Op random_op(std::mt19937_64& random, const ProgramStyle& style, std::size_t live);

/// The program that a fuzzer's bytes stand for.
std::vector<Op> ops_of_bytes(const std::uint8_t* data, std::size_t size, const ProgramStyle& style);

}  // namespace gapless::testing
