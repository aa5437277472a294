#include "tools/top/prometheus.h"

#include <fmt/format.h>

#include "allocator/base/utf8.h"

namespace gapless::tools {
namespace {

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::uint64_t (*value)(const DeviceState&);
};

constexpr Metric kMetrics[] = {
    {"allocated_bytes", "gauge", "Bytes in live blocks.",
     [](const DeviceState& device) { return device.allocated_bytes; }},
    {"reserved_bytes", "gauge", "Bytes that the process has of the device.",
     [](const DeviceState& device) { return device.reserved_bytes; }},
    {"peak_allocated_bytes", "gauge", "The most bytes in live blocks since the last reset.",
     [](const DeviceState& device) { return device.peak_allocated_bytes; }},
    {"peak_reserved_bytes", "gauge", "The most bytes had of the device since the last reset.",
     [](const DeviceState& device) { return device.peak_reserved_bytes; }},
    {"capacity_bytes", "gauge", "Bytes that the process may have: its limit, or the device.",
     [](const DeviceState& device) { return device.capacity_bytes(); }},
    {"host_bytes", "gauge", "Bytes of host memory that stand in for the device's.",
     [](const DeviceState& device) { return device.host_bytes; }},
    {"allocations_total", "counter", "Allocations since the last reset.",
     [](const DeviceState& device) { return device.allocations; }},
    {"out_of_memory_total", "counter", "Requests that failed.",
     [](const DeviceState& device) { return device.ooms; }},
    {"stalls_total", "counter", "Waits of a stream or the host for memory.",
     [](const DeviceState& device) { return device.waits + device.syncs; }},
};

std::string quoted(const std::string& text) {
  std::string out;
  for (const char letter : valid_utf8(text)) {
    if (letter == '\n') {
      out += "\\n";
      continue;
    }
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out;
}

}  // namespace

std::string prometheus_text(const std::vector<ProcessState>& processes) {
  std::string text = "# HELP gapless_up Whether the process answered.\n# TYPE gapless_up gauge\n";
  const auto labels = [](const ProcessState& process) {
    return fmt::format("pid=\"{}\",command=\"{}\"", process.pid, quoted(process.command));
  };
  for (const ProcessState& process : processes) {
    text += fmt::format("gapless_up{{{}}} {}\n", labels(process), process.problem.empty() ? 1 : 0);
  }
  for (const Metric& metric : kMetrics) {
    text += fmt::format("# HELP gapless_{0} {1}\n# TYPE gapless_{0} {2}\n", metric.name,
                        metric.help, metric.type);
    for (const ProcessState& process : processes) {
      for (const DeviceState& device : process.devices) {
        text += fmt::format("gapless_{}{{{},gpu=\"{}\"}} {}\n", metric.name, labels(process),
                            device.device, metric.value(device));
      }
    }
  }
  return text;
}

}  // namespace gapless::tools
