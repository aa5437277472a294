#include "allocator/trace/speedscope.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "allocator/base/bytes.h"
#include "allocator/base/json_writer.h"
#include "allocator/trace/event_clock.h"

namespace gapless {
namespace {

// Numbers the frames of all stacks, each text once.
class Frames {
 public:
  std::uint32_t number(std::string_view frame) {
    const auto [known, added] =
        numbers_.try_emplace(std::string(frame), static_cast<std::uint32_t>(names_.size()));
    if (added) names_.emplace_back(known->first);
    return known->second;
  }
  [[nodiscard]] const std::vector<std::string_view>& names() const { return names_; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string_view> names_;
};

// Of each site, in bytes or bytes x time.
using Weights = std::vector<std::uint64_t>;

Weights live_at_peak(const Trace& trace) {
  struct Block {
    std::uint64_t bytes = 0;
    std::uint32_t site = 0;
  };
  std::vector<Block> blocks(trace.blocks);
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  std::size_t end = 0;  // one behind the event of the peak
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      blocks[event.block].bytes = align_up(event.bytes, kBlockGrain);
      live += blocks[event.block].bytes;
      if (live > peak) {
        peak = live;
        end = i + 1;
      }
    } else if (event.kind == EventKind::free) {
      live -= blocks[event.block].bytes;
    }
  }
  Weights weights(trace.sites.size());
  for (std::size_t i = 0; i < end; ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == EventKind::alloc) {
      blocks[event.block].site = event.site;
      weights[event.site] += blocks[event.block].bytes;
    } else if (event.kind == EventKind::free) {
      weights[blocks[event.block].site] -= blocks[event.block].bytes;
    }
  }
  return weights;
}

// In MiB x ms where there are times, else in MiB x events. What lives on is counted to the end.
Weights bytes_over_time(const Trace& trace) {
  EventClock clock(trace);
  struct Block {
    std::uint64_t bytes = 0;
    std::uint64_t since = 0;
    std::uint32_t site = 0;
    bool live = false;
  };
  std::vector<Block> blocks(trace.blocks);
  std::vector<double> sums(trace.sites.size());
  std::uint64_t now = 0;
  const auto count = [&](Block& block) {
    const auto life = static_cast<double>(now - std::min(now, block.since));
    sums[block.site] += static_cast<double>(block.bytes) * life;
    block.live = false;
  };
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    now = clock.at(i, event);
    if (event.kind == EventKind::alloc) {
      blocks[event.block] = {event.bytes, now, event.site, true};
    } else if (event.kind == EventKind::free) {
      count(blocks[event.block]);
    }
  }
  for (Block& block : blocks) {
    if (block.live) count(block);
  }
  constexpr double kTimed = static_cast<double>(MiB) * 1000;
  constexpr double kMost = 9e15;  // numbers of JavaScript's are whole up to here
  Weights weights(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    weights[i] = static_cast<std::uint64_t>(
        std::min(kMost, sums[i] / (clock.known() ? kTimed : static_cast<double>(MiB))));
  }
  return weights;
}

class SpeedscopeWriter {
 public:
  SpeedscopeWriter(const std::vector<Trace>& traces, const WriteBytes& write)
      : traces_(traces), out_(write) {
    for (const Trace& trace : traces) number_frames(trace);
  }

  void write() {
    out_.begin('{').key("$schema").word("https://www.speedscope.app/file-format-schema.json");
    out_.key("exporter").word("gapless convert");
    if (!traces_.empty()) out_.key("name").text(traces_.front().name);
    out_.key("activeProfileIndex").value(0).key("shared").begin('{').key("frames").begin('[');
    for (const std::string_view name : frames_.names()) {
      out_.line().begin('{').key("name").text(name).end('}');
    }
    out_.end(']').end('}').key("profiles").begin('[');
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      const Trace& trace = traces_[i];
      const std::string gpu = "gpu " + std::to_string(trace.device);
      profile(stacks_[i], gpu + ": live at the peak", "bytes", live_at_peak(trace));
      profile(stacks_[i],
              gpu + (EventClock(trace).known() ? ": bytes x time (MiB ms)"
                                               : ": bytes x events (MiB; the trace has no times)"),
              "none", bytes_over_time(trace));
    }
    out_.end(']').end('}');
  }

 private:
  using Stack = std::vector<std::uint32_t>;  // the outermost frame first

  void number_frames(const Trace& trace) {
    std::vector<Stack>& stacks = stacks_.emplace_back();
    for (std::uint32_t site = 0; site < trace.sites.size(); ++site) {
      Stack& stack = stacks.emplace_back();
      for (const std::string_view frame : trace.frames_of(site)) {
        stack.push_back(frames_.number(frame));
      }
      std::reverse(stack.begin(), stack.end());
      if (!stack.empty()) continue;
      const std::string& label = trace.sites[site];
      stack.push_back(frames_.number(label.empty() ? "(not recorded)" : label));
    }
  }

  void profile(const std::vector<Stack>& stacks, const std::string& name, const char* unit,
               const Weights& weights) {
    std::vector<std::uint32_t> sites;  // the largest first
    std::uint64_t total = 0;
    for (std::uint32_t site = 0; site < weights.size(); ++site) {
      if (weights[site] != 0) sites.push_back(site);
      total += weights[site];
    }
    std::stable_sort(sites.begin(), sites.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return weights[a] > weights[b]; });
    out_.line().begin('{').key("type").word("sampled").key("name").text(name);
    out_.key("unit").text(unit).key("startValue").value(0).key("endValue").value(total);
    out_.key("samples").begin('[');
    for (const std::uint32_t site : sites) {
      out_.begin('[');
      for (const std::uint32_t frame : stacks[site]) out_.value(frame);
      out_.end(']');
    }
    out_.end(']').key("weights").begin('[');
    for (const std::uint32_t site : sites) out_.value(weights[site]);
    out_.end(']').end('}');
  }

  const std::vector<Trace>& traces_;
  JsonWriter out_;
  Frames frames_;
  std::vector<std::vector<Stack>> stacks_;  // by trace and site
};

}  // namespace

void write_speedscope(const std::vector<Trace>& traces, const WriteBytes& write) {
  SpeedscopeWriter(traces, write).write();
}

}  // namespace gapless
