#include "tools/inspect/moment_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "allocator/report/recording.h"
#include "tools/inspect/findings.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

constexpr std::size_t kColumns = 480;     // of a picture
constexpr std::size_t kSitesLeftOut = 3;  // tried without
constexpr double kLargeSite = 0.02;       // of what is live at the moment

std::size_t event_of(const MomentChoice& choice, const Moments& moments, const Trace& trace,
                     std::string& at) {
  const std::size_t end = trace.events.size() - 1;
  switch (choice.kind) {
    case MomentChoice::Kind::best:
      if (moments.ended_with_oom) {
        at = "oom";
        return *moments.oom;
      }
      at = "peak";
      return moments.peak;
    case MomentChoice::Kind::peak:
      at = "peak";
      return moments.peak;
    case MomentChoice::Kind::end:
      at = "end";
      return end;
    case MomentChoice::Kind::oom:
      if (!moments.oom) {
        throw InputError("--at oom: " + trace.name + " tells of no request that failed");
      }
      at = "oom";
      return *moments.oom;
    case MomentChoice::Kind::event:
      if (choice.event > end) {
        throw InputError(fmt::format("--at {}: {} has {} events, from 0 on", choice.event,
                                     trace.name, with_commas(trace.events.size())));
      }
      at = "event";
      return choice.event;
  }
  return end;
}

MemorySums sums_at(const Trace& trace, std::size_t event) {
  MomentWalk walk(trace);
  while (walk.next() && walk.event() < event) {
  }
  return walk.sums();
}

void look_at_state(MomentReport& report, const MomentOptions& options, const Trace* trace,
                   const MemoryKinds* kinds) {
  std::optional<Lifetimes> lifetimes;
  if (trace != nullptr && options.by == GroupBy::lifetime) {
    lifetimes = lifetimes_of(*trace);
    report.step_ends = lifetimes->step_ends;
  }
  report.fragmentation = analyze(report.state, options.blocks);
  report.lost = lost_memory(report.state);
  report.groups =
      group_blocks(report.state, options.by, trace, kinds, lifetimes ? &*lifetimes : nullptr);
  if (kinds != nullptr) {
    report.kinds = group_blocks(report.state, GroupBy::kind, trace, kinds);
  }
}

// The state that a file holds knows the blocks' sizes, but not which events they are of.
void number_blocks(MemoryState& state, const Trace& trace) {
  std::map<std::uint64_t, std::uint32_t> live;
  std::vector<std::uint64_t> addresses(trace.blocks, 0);
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) {
      addresses[event.block] = event.address;
      live[event.address] = event.block;
    } else if (event.kind == EventKind::free) {
      live.erase(addresses[event.block]);
    }
  }
  for (StateSegment& segment : state.segments) {
    for (StateBlock& block : segment.blocks) {
      const auto found = live.find(block.address);
      if (block.kind != StateBlock::Kind::free && found != live.end()) block.number = found->second;
    }
  }
}

// The sites that hold most at the moment, which are tried without.
std::vector<std::string> large_sites(const MomentReport& report, const Trace& trace) {
  std::vector<std::string> sites;
  const std::uint64_t all = report.sums.allocated_bytes;
  for (const BlockGroup& group : group_blocks(report.state, GroupBy::line, &trace, nullptr)) {
    if (sites.size() == kSitesLeftOut) break;
    if (group.name.empty()) continue;
    if (static_cast<double>(group.bytes) < kLargeSite * static_cast<double>(all)) break;
    sites.push_back(group.name);
  }
  return sites;
}

}  // namespace

MomentReport report_state(MemoryState state, const MomentOptions& options) {
  MomentReport report;
  report.state = std::move(state);
  look_at_state(report, options, nullptr, nullptr);
  report.sums.requested_bytes = report.fragmentation.total.requested_bytes;
  report.sums.allocated_bytes = report.fragmentation.total.allocated_bytes;
  report.sums.active_bytes = report.fragmentation.total.active_bytes;
  report.sums.reserved_bytes = report.fragmentation.total.reserved_bytes;
  report.findings = find_causes(report);
  return report;
}

MomentReport report_moment(Trace trace, const std::optional<MemoryState>& now,
                           const MomentOptions& options) {
  MomentReport report;
  report.has_events = true;
  report.device = trace.device;
  report.warnings = trace.warnings;
  report.moments = find_moments(trace);
  report.event = event_of(options.at, report.moments, trace, report.at);
  report.sums = sums_at(trace, report.event);
  report.reserved_known = trace.recorded_peak_reserved_bytes != 0;
  report.segments_known = tells_of_segments(trace);
  const bool at_end = report.event + 1 == trace.events.size();
  if (at_end && now) {
    report.state = of_device(*now, trace.device);
    number_blocks(report.state, trace);
  } else {
    report.state = state_at(trace, report.event);
  }
  const MemoryKinds kinds = memory_kinds(trace, options.rules);
  look_at_state(report, options, &trace, &kinds);
  report.growths = find_growths(trace);
  report.leaks = find_leaks(trace);
  report.course = course_of(trace, kColumns);
  report.work = options.work.value_or(affordable(trace));
  report.too_long = !options.work && !report.work.least;
  const std::vector<std::string> sites = large_sites(report, trace);
  report.run.emplace(std::move(trace));
  if (report.work.reserved) {
    report.cures = try_cures(*report.run, sites, report.work, [&](double fraction) {
      if (options.progress) options.progress(report.state.name, fraction);
    });
  }
  report.findings = find_causes(report);
  return report;
}

}  // namespace gapless::tools
