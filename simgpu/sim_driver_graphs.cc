// SimDriver: capturing graphs and running them.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "simgpu/sim_driver.h"

namespace gapless::simgpu {

CapturedGraph* SimDriver::capture_of(StreamHandle stream) {
  for (CapturedGraph& graph : capturing_) {
    if (std::find(graph.branches.begin(), graph.branches.end(), stream) != graph.branches.end()) {
      return &graph;
    }
  }
  return nullptr;
}

std::size_t SimDriver::branch_of(const CapturedGraph& graph, StreamHandle stream) {
  return static_cast<std::size_t>(std::find(graph.branches.begin(), graph.branches.end(), stream) -
                                  graph.branches.begin());
}

bool SimDriver::may_wait(std::string_view call, std::optional<StreamHandle> stream) {
  if (capturing_.empty()) return true;
  violations_.push_back(fmt::format("{} while a graph is being captured", call));
  CapturedGraph* const graph = stream ? capture_of(*stream) : nullptr;
  if (graph != nullptr) graph->valid = false;
  return graph == nullptr;
}

DriverStatus SimDriver::stream_is_capturing(DeviceIndex device, StreamHandle stream,
                                            bool& capturing) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_is_capturing);
  if (!timeline_.find_stream(device, stream)) return DriverStatus::invalid_handle;
  capturing = capture_of(stream) != nullptr;
  return DriverStatus::ok;
}

// A node is the step's number in its graph, from 1, behind that of the capture.
DriverStatus SimDriver::stream_capture_point(DeviceIndex device, StreamHandle stream,
                                             CapturePoint& point) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::stream_capture_point);
  if (!timeline_.find_stream(device, stream)) return DriverStatus::invalid_handle;
  point = {};
  const CapturedGraph* const graph = capture_of(stream);
  if (graph == nullptr) return DriverStatus::ok;
  point.capture = graph->number;
  for (const std::size_t end : graph->ends(branch_of(*graph, stream), graph->steps.size())) {
    point.ends.push_back(graph->number << 32 | (end + 1));
  }
  return DriverStatus::ok;
}

DriverStatus SimDriver::graph_node_dependencies(DeviceIndex device, std::uint64_t node,
                                                std::vector<std::uint64_t>& nodes) {
  const std::scoped_lock lock(mutex_);
  pay(DriverCall::graph_node_dependencies);
  if (!known(device)) return DriverStatus::invalid_device;
  const std::uint64_t number = node >> 32;
  const auto graph = std::find_if(capturing_.begin(), capturing_.end(),
                                  [&](const CapturedGraph& one) { return one.number == number; });
  const std::size_t step = (node & UINT32_MAX) - 1;
  if (graph == capturing_.end() || step >= graph->steps.size()) {
    return judged(DriverStatus::invalid_value, fmt::format("there is no graph node {:#x}", node));
  }
  nodes.clear();
  for (const std::size_t end : graph->ends(graph->steps[step].branch, step)) {
    nodes.push_back(number << 32 | (end + 1));
  }
  return DriverStatus::ok;
}

void SimDriver::begin_capture(DeviceIndex device, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  capturing_.push_back({.device = device, .number = ++captures_, .branches = {stream}});
}

CapturedGraph SimDriver::end_capture(StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::find_if(capturing_.begin(), capturing_.end(),
                   [&](const CapturedGraph& graph) { return graph.branches.front() == stream; });
  CapturedGraph graph = std::move(*found);
  capturing_.erase(found);
  return graph;
}

void SimDriver::order(DeviceIndex device, StreamHandle earlier, StreamHandle later) {
  const std::scoped_lock lock(mutex_);
  if (CapturedGraph* graph = capture_of(earlier); graph != nullptr) {
    if (branch_of(*graph, later) == graph->branches.size()) graph->branches.push_back(later);
    graph->steps.push_back(
        {.branch = branch_of(*graph, later), .after = branch_of(*graph, earlier)});
    return;
  }
  const auto from = stream_index(device, earlier, "order");
  const auto to = stream_index(device, later, "order");
  if (from && to) order_streams(device, *from, *to);
}

void SimDriver::order(const DeviceStream& earlier, const DeviceStream& later) {
  const std::scoped_lock lock(mutex_);
  const auto from = stream_index(earlier.device, earlier.handle, "order");
  const auto to = stream_index(later.device, later.handle, "order");
  if (from && to) order_streams(earlier.device, *from, *to);
}

void SimDriver::order_streams(DeviceIndex device, std::uint32_t earlier, std::uint32_t later) {
  const EventHandle event = timeline_.create_event(device);
  timeline_.record(event, earlier);
  timeline_.wait_event(later, event);
  timeline_.destroy_event(event);
}

void SimDriver::replay(const CapturedGraph& graph, StreamHandle stream) {
  const std::scoped_lock lock(mutex_);
  const auto first = stream_index(graph.device, stream, "replay");
  if (!first) return;
  std::vector<std::uint32_t> branches = {*first};
  std::vector<StreamHandle> made;
  for (std::size_t i = 1; i < graph.branches.size(); ++i) {
    made.push_back(timeline_.create_stream(graph.device));
    branches.push_back(*timeline_.find_stream(graph.device, made.back()));
    order_streams(graph.device, *first, branches.back());
  }
  for (const CapturedGraph::Step& step : graph.steps) {
    if (step.after != step.branch) {
      order_streams(graph.device, branches[step.after], branches[step.branch]);
      continue;
    }
    const Stamp stamp = timeline_.submit(branches[step.branch], step.duration_ns);
    for (const Access& access : step.accesses) {
      if (access.bytes == 0) continue;
      const auto ranges = touch(graph.device, access, stamp);
      if (ranges && step.fills_with) write_words(*ranges, *step.fills_with);
    }
  }
  for (std::size_t i = 1; i < branches.size(); ++i) {
    order_streams(graph.device, branches[i], *first);
    timeline_.destroy_stream(made[i - 1]);
  }
}

}  // namespace gapless::simgpu
