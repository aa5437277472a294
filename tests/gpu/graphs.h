// Graphs: capturing them and running them, which the core's Driver only looks at. On the real
// driver by libcuda's own functions, on the simulated one by its methods.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator/driver/driver.h"
#include "simgpu/sim_driver.h"

namespace gapless::testing {

/// CUstreamCaptureMode.
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

class Graphs {
 public:
  /// For a driver of either kind. Where libcuda lacks a function, nothing, and `error` says which.
  static std::unique_ptr<Graphs> of(Driver& driver, std::string& error);
  virtual ~Graphs() = default;

  virtual DriverStatus begin(StreamHandle stream, CaptureMode mode) = 0;
  /// Ends the capture and keeps the graph, under that number. An error where it is not valid.
  virtual DriverStatus end(StreamHandle stream, std::size_t& graph) = 0;
  virtual DriverStatus launch(std::size_t graph, StreamHandle stream) = 0;
  virtual DriverStatus destroy(std::size_t graph) = 0;
  /// `later` comes after what `earlier` was given, and captures where that does.
  virtual DriverStatus order(StreamHandle earlier, StreamHandle later) = 0;
};

}  // namespace gapless::testing
