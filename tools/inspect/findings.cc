#include "tools/inspect/findings.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "bench/replay/replay.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

// Of the reserved memory; what is less is nobody's concern.
constexpr double kWorthTelling = 0.03;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
std::string percent(double fraction) {
  return fraction >= 0.1 || fraction == 0 ? fmt::format("{:.0f} %", fraction * 100)
                                          : fmt::format("{:.1f} %", fraction * 100);
}
std::string at_site(const std::string& site) { return site.empty() ? "" : " at " + site; }
std::string count_of(std::uint64_t count, const char* one, const char* several) {
  return with_commas(count) + " " + (count == 1 ? one : several);
}

class Causes {
 public:
  explicit Causes(const MomentReport& report)
      : report_(report),
        lost_(report.lost),
        reserved_(report.fragmentation.total.reserved_bytes),
        allocated_(report.fragmentation.total.allocated_bytes) {
    if (report.segments_known) return;
    lost_ = {};
    reserved_ = report.sums.reserved_bytes;
    lost_.free_bytes = reserved_ - std::min(reserved_, report.sums.active_bytes);
  }

  std::vector<Finding> all() {
    tell_what();
    tell_leaks();
    // The largest cause first.
    std::vector<std::pair<std::uint64_t, Finding>> causes;
    for (const auto cause :
         {&Causes::changing_sizes, &Causes::whole_segments, &Causes::pinned, &Causes::behind_blocks,
          &Causes::other_streams, &Causes::private_pools, &Causes::small_pool, &Causes::rounding}) {
      if (auto found = (this->*cause)(); found.first != 0) causes.push_back(std::move(found));
    }
    std::stable_sort(causes.begin(), causes.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& [bytes, finding] : causes) findings_.push_back(std::move(finding));
    tell_cures();
    return std::move(findings_);
  }

 private:
  using Cause = std::pair<std::uint64_t, Finding>;

  [[nodiscard]] std::uint64_t free_bytes() const { return lost_.free_bytes; }
  [[nodiscard]] bool matters(std::uint64_t bytes) const {
    return share(bytes, reserved_) >= kWorthTelling;
  }
  [[nodiscard]] bool mostly_expandable() const {
    std::uint64_t bytes = 0;
    for (const StateSegment& segment : report_.state.segments) {
      if (segment.expandable) bytes += segment.bytes;
    }
    return bytes * 2 > reserved_;
  }
  [[nodiscard]] std::string when() const {
    if (!report_.has_events) return "Now";
    if (report_.at == "peak") return "At the peak";
    if (report_.at == "end") return "At the end";
    return fmt::format("At event {}", with_commas(report_.event));
  }

  void tell_what() {
    if (report_.at == "oom") {
      tell_out_of_memory();
      return;
    }
    if (reserved_ == 0) {
      findings_.push_back({"nothing_reserved", when() + " no memory is reserved."});
      return;
    }
    if (report_.has_events && !report_.reserved_known) {
      findings_.push_back(
          {"allocated", fmt::format("{} {} is allocated; the recording does not tell what was "
                                    "reserved.",
                                    when(), format_bytes(allocated_))});
      return;
    }
    const double lost = share(free_bytes(), reserved_);
    findings_.push_back(
        lost < kWorthTelling
            ? Finding{"little_lost",
                      fmt::format("{} {} of {} reserved is in use: {} is lost between blocks.",
                                  when(), format_bytes(reserved_ - free_bytes()),
                                  format_bytes(reserved_), percent(lost))}
            : Finding{"fragmentation",
                      fmt::format("{} {} is reserved and {} of it in use: {} ({}) serves nobody.",
                                  when(), format_bytes(reserved_),
                                  format_bytes(reserved_ - free_bytes()), percent(lost),
                                  format_bytes(free_bytes()))});
  }

  void tell_out_of_memory() {
    const TraceEvent& event = recorded_oom();
    const std::string site = report_.run->trace.sites[event.site];
    std::string text =
        fmt::format("{} out of memory at event {}: {} was asked for{} while {} was in use",
                    report_.moments.ended_with_oom ? "The run ended" : "A request ran",
                    with_commas(report_.event), format_bytes(event.bytes), at_site(site),
                    format_bytes(report_.sums.active_bytes));
    if (!report_.segments_known && report_.reserved_known) {
      text += fmt::format(" of {} reserved", format_bytes(reserved_));
    } else if (reserved_ != 0 && report_.reserved_known && free_bytes() == 0) {
      text += fmt::format(", all of {} reserved", format_bytes(reserved_));
    } else if (reserved_ != 0 && report_.reserved_known) {
      text += fmt::format(
          " of {} reserved; the largest free piece was {} of {} free", format_bytes(reserved_),
          format_bytes(report_.fragmentation.total.largest_hole_bytes), format_bytes(free_bytes()));
    }
    text += ".";
    if (free_bytes() >= event.bytes && report_.reserved_known) {
      text += " Enough was free, but in pieces.";
    }
    findings_.push_back({"out_of_memory", text});
  }

  // The event of the recording; its replay may have it served.
  [[nodiscard]] const TraceEvent& recorded_oom() const {
    return report_.run->trace.events[report_.event];
  }

  void tell_leaks() {
    for (std::size_t i = 0; i < std::min<std::size_t>(report_.leaks.size(), 3); ++i) {
      const Leak& leak = report_.leaks[i];
      const std::string what = leak.site.empty()
                                   ? fmt::format("blocks of {}", format_bytes(leak.block_bytes))
                                   : leak.site;
      findings_.push_back(
          {"leak", fmt::format("Memory grows step by step: in {} of {} steps something allocated "
                               "by {} stays, {} a step, {} in all.",
                               with_commas(leak.steps), with_commas(leak.of_steps), what,
                               format_bytes(leak.bytes_per_step), format_bytes(leak.bytes))});
    }
  }

  [[nodiscard]] Cause changing_sizes() const {
    const Growths& growths = report_.growths;
    if (!report_.has_events || !growths.sizes_change() || !matters(free_bytes())) return {};
    if (mostly_expandable()) return {};  // pieces are joined there, page by page
    std::string text = fmt::format(
        "Sizes change from step to step: {} of the requests above 1 MiB in the second half were of "
        "sizes that the first half never asked for.",
        percent(share(growths.new_sizes, growths.large_requests)));
    if (growths.needless_times != 0) {
      text += fmt::format(
          " What was freed is in pieces of other sizes, which cannot be joined: {} of the {} times "
          "that memory was taken from the GPU, as much was reserved and free already.",
          with_commas(growths.needless_times), with_commas(growths.times));
    }
    return {free_bytes(), {"changing_sizes", text}};
  }

  [[nodiscard]] Cause whole_segments() const {
    const LostMemory::Part& part = lost_.part(Loss::whole_segments);
    if (!matters(part.bytes)) return {};
    return {part.bytes,
            {"whole_segments",
             fmt::format("{} lies in {} in which nothing is live: kept for requests of their own "
                         "sizes (torch.cuda.empty_cache() gives them back).",
                         format_bytes(part.bytes),
                         count_of(part.pieces, "whole segment", "whole segments"))}};
  }

  [[nodiscard]] Cause pinned() const {
    const LostMemory::Part& part = lost_.part(Loss::pinned);
    if (!matters(part.bytes) || lost_.pinned.empty()) return {};
    const PinnedSegment& worst = lost_.pinned.front();
    return {part.bytes,
            {"pinned_segments",
             fmt::format("{} is free in segments that little is live in, and that cannot be given "
                         "back for it: the largest, {} at {:#x}, is held by {}, such as {}{}.",
                         format_bytes(part.bytes), format_bytes(worst.bytes), worst.address,
                         count_of(worst.blocks, "block", "blocks"),
                         format_bytes(worst.largest.requested_bytes),
                         worst.largest.site.empty() ? "" : " allocated at " + worst.largest.site)}};
  }

  [[nodiscard]] Cause behind_blocks() const {
    const LostMemory::Part& part = lost_.part(Loss::behind_blocks);
    if (!matters(part.bytes)) return {};
    const bool cliff = lost_.behind_to_bytes <= 2 * MiB;
    return {part.bytes,
            {cliff ? "size_cliff" : "not_split_off",
             fmt::format("{} lies behind {}: PyTorch splits no rest of 1 MiB and less off a block "
                         "above 1 MiB. {}",
                         format_bytes(part.bytes), count_of(part.pieces, "block", "blocks"),
                         cliff ? fmt::format("Most are of requests just above that cliff, of {} to "
                                             "{}: up to 1 MiB they would share small segments.",
                                             format_bytes(lost_.behind_from_bytes),
                                             format_bytes(lost_.behind_to_bytes))
                               : fmt::format("Most are of requests of {} to {}.",
                                             format_bytes(lost_.behind_from_bytes),
                                             format_bytes(lost_.behind_to_bytes)))}};
  }

  [[nodiscard]] Cause other_streams() const {
    const LostMemory::Part& part = lost_.part(Loss::other_streams);
    if (!matters(part.bytes)) return {};
    return {part.bytes,
            {"other_streams",
             fmt::format("{} is free in memory of other streams than the one that uses most: in "
                         "PyTorch's allocator only the stream it was first used on gets it again.",
                         format_bytes(part.bytes))}};
  }

  [[nodiscard]] Cause private_pools() const {
    const LostMemory::Part& part = lost_.part(Loss::private_pools);
    if (!matters(part.bytes)) return {};
    return {part.bytes,
            {"private_pools",
             fmt::format("{} is free in private pools (CUDA graphs, torch.cuda.MemPool), which "
                         "nobody else is served from.",
                         format_bytes(part.bytes))}};
  }

  [[nodiscard]] Cause small_pool() const {
    const LostMemory::Part& part = lost_.part(Loss::small_pool);
    if (!matters(part.bytes)) return {};
    return {part.bytes,
            {"small_pool",
             fmt::format("{} is free in segments of 2 MiB for requests of 1 MiB and less: beyond "
                         "that cliff nothing is served from them.",
                         format_bytes(part.bytes))}};
  }

  [[nodiscard]] Cause rounding() const {
    const std::uint64_t inside = report_.fragmentation.total.internal_bytes();
    const std::uint64_t lost = inside - std::min(inside, lost_.part(Loss::behind_blocks).bytes);
    if (!matters(lost)) return {};
    return {lost,
            {"rounding", fmt::format("{} of what is allocated was not asked for: sizes are rounded "
                                     "up.",
                                     format_bytes(lost))}};
  }

  void tell_cures() {
    if (report_.cures.empty()) return;
    const Cure& base = report_.cures.front();
    std::vector<const Cure*> better;
    for (const Cure& cure : report_.cures) {
      const std::uint64_t saved =
          base.reserved_bytes - std::min(base.reserved_bytes, cure.reserved_bytes);
      if (&cure != &base && cure.without.empty() && share(saved, base.reserved_bytes) >= 0.01) {
        better.push_back(&cure);
      }
    }
    std::stable_sort(better.begin(), better.end(), [](const Cure* a, const Cure* b) {
      return a->reserved_bytes < b->reserved_bytes;
    });
    if (better.size() > 2) better.resize(2);
    if (better.empty()) {
      findings_.push_back(
          {"no_setting_helps",
           fmt::format("No setting that was tried reserves less than PyTorch's default, {}: what "
                       "the program itself holds has to become less.",
                       format_bytes(base.reserved_bytes))});
      return;
    }
    std::string text = fmt::format("Replayed {} times in a row, the run reserves ", bench::kPasses);
    for (std::size_t i = 0; i < better.size(); ++i) {
      text += fmt::format("{}{} with {}", i == 0 ? "" : ", ",
                          format_bytes(better[i]->reserved_bytes), better[i]->name);
    }
    text += fmt::format(", and {} with {}; {} is allocated.", format_bytes(base.reserved_bytes),
                        base.name, format_bytes(base.allocated_bytes));
    findings_.push_back({"cure", text});
  }

  const MomentReport& report_;
  LostMemory lost_;
  std::uint64_t reserved_;
  std::uint64_t allocated_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> find_causes(const MomentReport& report) { return Causes(report).all(); }

}  // namespace gapless::tools
