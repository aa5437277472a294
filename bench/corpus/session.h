// Session: what a program asks of its allocator, written down as a trace while it runs.
//
//   Tensor a = session.alloc(2 * MiB);          alloc 0
//   Tensor b = a;                               (the same memory)
//   a.reset(); b.reset();                       free 0, with the last who holds it
//
// Programs are written as PyTorch's are: memory lives as long as somebody refers to it. What was
// given to another stream (record_stream) is not free at once, but some events later, when work on
// that stream is done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/trace/trace.h"
#include "bench/corpus/draw.h"

namespace gapless::bench {

class Session;

struct TensorMemory {
  Session* session = nullptr;
  std::uint32_t block = 0;
  std::uint16_t stream = 0;
  bool used_elsewhere = false;  // on another stream too
  std::uint64_t bytes = 0;

  ~TensorMemory();
};
using Tensor = std::shared_ptr<TensorMemory>;

class Session {
 public:
  Session(const std::string& name, const std::string& source, std::uint64_t seed);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// On the current stream; at least a byte.
  Tensor alloc(std::uint64_t bytes);
  /// A temporary: allocated and freed at once.
  void scratch(std::uint64_t bytes) { (void)alloc(bytes); }
  /// Allocated on that stream and used on the one that is current as well.
  Tensor alloc_elsewhere(std::uint64_t bytes, std::uint16_t stream);
  /// Will be used on another stream as well before it is freed.
  void record_stream(const Tensor& tensor) const;

  void use_streams(std::uint16_t streams);
  [[nodiscard]] std::uint16_t streams() const {
    return static_cast<std::uint16_t>(trace_.streams.size());
  }
  /// A stream other than the first, each in turn; the first where there is no other.
  std::uint16_t side_stream();
  std::uint16_t set_stream(std::uint16_t stream) { return std::exchange(stream_, stream); }

  [[nodiscard]] std::uint64_t events() const { return trace_.events.size(); }
  /// For what differs from step to step.
  Draw& draw() { return draw_; }

  /// The program ends here: what is live stays live, and nothing is written any more.
  void end();
  Trace take() { return std::move(trace_); }

 private:
  friend struct TensorMemory;
  struct Waiting {
    std::uint64_t due = 0;  // at so many events
    std::uint32_t block = 0;
    std::uint16_t stream = 0;
  };

  void release(const TensorMemory& memory);
  void write(EventKind kind, std::uint32_t block, std::uint64_t bytes, std::uint16_t stream);
  void free_what_is_done();

  Trace trace_;
  Draw draw_;
  std::uint16_t stream_ = 0;
  std::uint16_t next_side_ = 0;
  bool ended_ = false;
  std::vector<Waiting> waiting_;
};

/// The current stream, for a scope.
class StreamScope {
 public:
  StreamScope(Session& session, std::uint16_t stream)
      : session_(session), before_(session.set_stream(stream)) {}
  ~StreamScope() { session_.set_stream(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Session& session_;
  std::uint16_t before_;
};

}  // namespace gapless::bench
