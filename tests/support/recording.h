// Traces made by hand, for tests of what is done with recorded runs.
//
//   Recording run("dies");
//   const auto a = run.alloc(1 * GiB);
//   run.oom(2 * GiB).free(a);
#pragma once

#include <string>
#include <utility>

#include "allocator/trace/trace.h"

namespace gapless::testing {

class Recording {
 public:
  explicit Recording(std::string name) {
    trace_.name = std::move(name);
    trace_.source = "a test";
  }
  std::uint32_t alloc(std::uint64_t bytes) {
    trace_.events.push_back({.kind = EventKind::alloc, .block = trace_.blocks, .bytes = bytes});
    return trace_.blocks++;
  }
  Recording& free(std::uint32_t block) {
    trace_.events.push_back({.kind = EventKind::free_requested, .block = block});
    trace_.events.push_back({.kind = EventKind::free, .block = block});
    return *this;
  }
  Recording& oom(std::uint64_t bytes) {
    trace_.events.push_back({.kind = EventKind::oom, .bytes = bytes});
    return *this;
  }
  [[nodiscard]] const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
};

}  // namespace gapless::testing
