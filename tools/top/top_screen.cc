#include "tools/top/top_screen.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

constexpr std::size_t kMostHistory = 240;
constexpr std::size_t kMostNames = 3;

// What a bar's signs mean without colour: allocated, reserved beside it, free.
std::string bar(const DeviceState& device, std::size_t columns, bool colour) {
  const std::uint64_t whole = std::max<std::uint64_t>(1, device.capacity_bytes());
  const auto part = [&](std::uint64_t bytes) {
    const double share = static_cast<double>(bytes) / static_cast<double>(whole);
    return std::min(columns,
                    static_cast<std::size_t>(std::lround(share * static_cast<double>(columns))));
  };
  const std::size_t used = part(device.allocated_bytes);
  const std::size_t kept = std::max(used, part(device.reserved_bytes));
  const bool full = device.reserved_bytes > whole / 10 * 9;
  const std::string paint = full ? "\x1b[33m" : "\x1b[32m";
  std::string text = "[";
  if (colour) text += paint;
  text += std::string(used, '#');
  if (colour) text += "\x1b[0m";
  return text + std::string(kept - used, ':') + std::string(columns - kept, ' ') + "]";
}

// Eight heights; a blank for nothing.
std::string history_of(const std::deque<std::uint64_t>& values, std::uint64_t whole,
                       std::size_t columns) {
  static constexpr std::array<const char*, 9> kHeights = {" ", "▁", "▂", "▃", "▄",
                                                          "▅", "▆", "▇", "█"};
  std::string text;
  const std::size_t count = std::min(columns, values.size());
  for (std::size_t i = values.size() - count; i < values.size(); ++i) {
    const double share =
        static_cast<double>(values[i]) / static_cast<double>(std::max<std::uint64_t>(1, whole));
    const auto height = static_cast<std::size_t>(std::lround(std::clamp(share * 8, 0.0, 8.0)));
    text += kHeights[values[i] != 0 ? std::max<std::size_t>(1, height) : 0];
  }
  return text;
}

std::string names_text(const std::vector<NamedBytes>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size() && i < kMostNames; ++i) {
    text += (i == 0 ? "" : ", ") + terminal_text(rows[i].name) + " " + format_bytes(rows[i].bytes);
  }
  if (rows.size() > kMostNames) text += fmt::format(", and {} more", rows.size() - kMostNames);
  return text;
}

// The lines of a text, behind a margin.
void add_lines(std::string& whole, const std::string& text, std::size_t margin,
               std::size_t columns) {
  const std::size_t room = columns == 0 ? 100 : std::max<std::size_t>(20, columns - margin);
  for (const std::string& line : lines_of(text, room)) {
    whole += std::string(margin, ' ') + line + "\n";
  }
}

}  // namespace

void TopScreen::note(const ProcessState& process, const DeviceState& device) {
  const auto [at, fresh] = seen_.try_emplace({process.pid, device.device});
  Seen& seen = at->second;
  if (!fresh && process.when > seen.when && device.allocations >= seen.allocations) {
    const std::chrono::duration<double> passed = process.when - seen.when;
    seen.per_second = static_cast<double>(device.allocations - seen.allocations) / passed.count();
  }
  seen.when = process.when;
  seen.allocations = device.allocations;
  seen.allocated.push_back(device.allocated_bytes);
  if (seen.allocated.size() > kMostHistory) seen.allocated.pop_front();
}

std::optional<double> TopScreen::rate_of(int pid, int device) const {
  const auto found = seen_.find({pid, device});
  return found == seen_.end() ? std::nullopt : found->second.per_second;
}

std::string TopScreen::device_text(const ProcessState& process, const DeviceState& device,
                                   std::size_t columns, bool colour) const {
  const Seen& seen = seen_.at({process.pid, device.device});
  constexpr std::size_t kMargin = 7;
  const std::string name = padded(fmt::format("GPU {}", device.device), kMargin, false);
  const std::string figures =
      fmt::format("{} allocated, {} reserved of {}", format_bytes(device.allocated_bytes),
                  format_bytes(device.reserved_bytes), format_bytes(device.capacity_bytes()));
  const std::size_t whole = columns == 0 ? 100 : columns;
  const std::size_t beside = kMargin + 3 + columns_of(figures);
  constexpr std::size_t kLeastBar = 10;
  constexpr std::size_t kMostBar = 40;
  std::string text = name;
  if (whole >= beside + kLeastBar) {
    text += bar(device, std::min(kMostBar, whole - beside), colour) + " " + figures + "\n";
  } else {
    text +=
        bar(device, std::clamp(whole - std::min(whole, kMargin + 2), kLeastBar, kMostBar), colour) +
        "\n";
    add_lines(text, figures, kMargin, columns);
  }
  std::string line =
      fmt::format("peak {} allocated, {} reserved", format_bytes(device.peak_allocated_bytes),
                  format_bytes(device.peak_reserved_bytes));
  if (seen.per_second)
    line += fmt::format("; {} allocations/s",
                        with_commas(static_cast<std::uint64_t>(std::llround(*seen.per_second))));
  const std::uint64_t stalls = device.waits + device.syncs;
  line += fmt::format("; {} {}", with_commas(stalls), stalls == 1 ? "stall" : "stalls");
  if (device.ooms != 0) line += fmt::format("; {} out of memory", with_commas(device.ooms));
  if (device.host_bytes != 0) line += "; " + format_bytes(device.host_bytes) + " in host memory";
  add_lines(text, line, kMargin, columns);
  if (seen.allocated.size() > 1) {
    const std::size_t room = std::min<std::size_t>(60, whole - std::min(whole, kMargin));
    text += std::string(kMargin, ' ') + history_of(seen.allocated, device.capacity_bytes(), room) +
            "\n";
  }
  if (device.streams.size() > 1) {
    add_lines(text, "streams: " + names_text(device.streams), kMargin, columns);
  }
  if (device.pools.size() > 1) {
    add_lines(text, "pools: " + names_text(device.pools), kMargin, columns);
  }
  return text;
}

std::string TopScreen::text(const std::vector<ProcessState>& processes, std::size_t columns,
                            bool colour) {
  std::string text;
  for (const ProcessState& process : processes) {
    if (!text.empty()) text += "\n";
    std::string head = fmt::format("PID {}  {}", process.pid, terminal_text(process.command));
    const std::size_t room = columns == 0 ? 100 : std::max<std::size_t>(20, columns);
    if (columns_of(head) > room) head = lines_of(head, room - 3).front() + "...";
    text += colour ? "\x1b[1m" + head + "\x1b[0m\n" : head + "\n";
    if (!process.problem.empty()) {
      add_lines(text, terminal_text(process.problem), 7, columns);
      continue;
    }
    bool any = false;
    for (const DeviceState& device : process.devices) {
      note(process, device);
      if (device.reserved_bytes == 0 && device.allocations == 0) continue;
      any = true;
      text += device_text(process, device, columns, colour);
    }
    if (!any) add_lines(text, "no memory of a GPU yet", 7, columns);
    if (process.recorded_to.empty()) continue;
    std::string line = fmt::format("recorded to {}: {} events", terminal_text(process.recorded_to),
                                   with_commas(process.recorded_events));
    if (process.lost_events != 0)
      line += fmt::format(", {} lost", with_commas(process.lost_events));
    if (!process.recording_failed.empty()) {
      line = "the recording failed: " + terminal_text(process.recording_failed);
    }
    add_lines(text, line, 7, columns);
    if (!process.sites.empty()) {
      add_lines(text, "most is live of: " + names_text(process.sites), 7, columns);
    }
  }
  return text;
}

}  // namespace gapless::tools
