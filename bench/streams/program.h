// Programs with several streams: what a training step that offloads, gathers or serves does to an
// allocator, with how long its work takes.
//
//   compute   [ layer 1 ][ layer 2 ][ layer 3 ] ...            work() in order on each stream
//   gather    [ g1 ][ g2 ][ g3 ]                               record() and wait() between them
//   host      a a w r a w ...   runs ahead; every operation takes it a few microseconds
//
// Made by rules from a seed, like the traces of replay/synthetic.h; these have durations too, so
// that time lost by waiting can be measured beside memory (run.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gapless::bench {

struct StreamOp {
  enum class Kind : std::uint8_t {
    alloc,          // block, stream, amount: bytes
    free,           // block
    record_stream,  // block, stream
    work,           // stream, amount: ns; touches blocks [first, first + count) of `touched`
    record,         // event, stream
    wait,           // stream, event
    sync,           // the host waits for the event
    iteration,      // one step of the program begins
  };
  Kind kind = Kind::alloc;
  std::uint32_t stream = 0;
  std::uint32_t block = 0;  // or event
  std::uint64_t amount = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct StreamProgram {
  std::string name;
  std::uint32_t streams = 1;
  std::uint32_t blocks = 0;
  std::uint32_t events = 0;
  std::vector<StreamOp> ops;
  std::vector<std::uint32_t> touched;

  /// Most bytes live at once, in the host's order, blocks rounded up to 512 B.
  [[nodiscard]] std::uint64_t peak_live_bytes() const;
};

struct StreamProgramOptions {
  int iterations = 12;
  std::uint32_t layers = 24;  // of a model, where the program has one
  std::uint64_t seed = 1;
};

/// "offload-1-2": offloading with 1 side stream and prefetch depth 2; and so on. All that there
/// are.
std::vector<std::string> stream_program_names();

/// Throws std::invalid_argument for an unknown name.
StreamProgram stream_program(const std::string& name, const StreamProgramOptions& options);

}  // namespace gapless::bench
