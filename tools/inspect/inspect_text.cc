#include "tools/inspect/inspect_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "bench/replay/replay.h"
#include "tools/inspect/course_chart.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

// The folder that all of a program's own files lie in: it is left out, since lines are short. Empty
// where they have no more in common than the root, which says nothing, and stands in each path.
std::string common_folder(const MomentReport& report) {
  std::string common;
  bool first = true;
  for (const StateSegment& segment : report.state.segments) {
    for (const StateBlock& block : segment.blocks) {
      if (frame_kind(block.site) != FrameKind::own) continue;
      const std::string folder = block.site.substr(0, block.site.find_last_of("/\\") + 1);
      if (first) common = folder;
      first = false;
      while (!folder.starts_with(common)) {  // up by one folder
        common.pop_back();
        common.resize(common.find_last_of("/\\") + 1);
      }
    }
  }
  const bool has_name = std::any_of(common.begin(), common.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  const bool is_drive = common.size() == 3 && common[1] == ':';
  return has_name && !is_drive ? common : "";
}

// Whether a path begins at that place of a text, rather than going on there.
bool begins_path(const std::string& text, std::size_t at) {
  if (at == 0) return true;
  const auto before = static_cast<unsigned char>(text[at - 1]);
  return std::isalnum(before) == 0 && std::strchr("/\\._-", before) == nullptr;
}

class Writer {
 public:
  Writer(const MomentReport& report, const InspectText& options)
      : report_(report), options_(options), folder_(common_folder(report)) {}

  std::string text() {
    title();
    findings();
    if (report_.has_events) {
      say(course_chart(report_.course, options_.columns, options_.colour, report_.event,
                       report_.run->trace.events.size()));
      moments();
    }
    if (!report_.cures.empty()) cures();
    not_tried();
    kinds();
    groups();
    if (!report_.segments_known) {
      biggest();
      return std::move(text_);
    }
    lost();
    pools();
    segments();
    holes();
    biggest();
    last();
    return std::move(text_);
  }

 private:
  void say(const std::string& part) {
    if (part.empty()) return;
    text_ += part;
    if (part.back() != '\n') text_ += '\n';
    text_ += '\n';
  }
  void say(const Table& table) { say(table.text(options_.colour, options_.columns)); }
  void sentence(const std::string& text) { text_ += paragraph(short_of(text)); }

  void sentence_in_full(const std::string& text) { text_ += paragraph(text) + "\n"; }

  // Without the folder of the program.
  [[nodiscard]] std::string short_of(std::string text) const {
    for (std::size_t at = 0; !folder_.empty() && (at = text.find(folder_, at)) != text.npos;) {
      if (begins_path(text, at)) {
        text.erase(at, folder_.size());
      } else {
        ++at;
      }
    }
    return text;
  }

  void title() {
    std::string of = report_.state.name;
    if (report_.several_devices) of += fmt::format(" gpu{}", report_.device);
    if (!report_.has_events) {
      say(paragraph(fmt::format("{} ({}, as it was when it was written; without events)", of,
                                report_.state.source)));
      return;
    }
    const char* const at = report_.at == "peak"  ? "at the peak of what is allocated"
                           : report_.at == "end" ? "at the end"
                           : report_.at == "oom" ? "at the request that failed"
                                                 : "at the event asked for";
    say(paragraph(fmt::format("{} ({}, {} events; shown {}, event {})", of, report_.state.source,
                              with_commas(report_.run->trace.events.size()), at,
                              with_commas(report_.event))));
  }

  void findings() {
    for (const Finding& finding : report_.findings) sentence(finding.text);
    for (const std::string& warning : report_.warnings) sentence("Warning: " + warning + ".");
    text_ += '\n';
  }

  void moments() {
    Table table({{"moment", Table::Align::left},
                 {"event"},
                 {"requested"},
                 {"allocated"},
                 {"active"},
                 {"reserved"},
                 {"not in use"}});
    const auto add = [&](const char* name, std::size_t event, const MemorySums& sums) {
      const bool known = report_.reserved_known;
      const std::uint64_t idle =
          sums.reserved_bytes - std::min(sums.reserved_bytes, sums.active_bytes);
      table.add({{name},
                 {with_commas(event)},
                 {format_bytes(sums.requested_bytes)},
                 {format_bytes(sums.allocated_bytes)},
                 {format_bytes(sums.active_bytes)},
                 {known ? format_bytes(sums.reserved_bytes) : "-"},
                 {known ? percent_of(idle, sums.reserved_bytes) : "-"}});
    };
    const Moments& moments = report_.moments;
    if (report_.at == "oom" || report_.at == "event") {
      add(report_.at == "oom" ? "the request that failed" : "shown", report_.event, report_.sums);
    }
    add("most allocated", moments.peak, moments.at_peak);
    if (report_.reserved_known) {
      add("most reserved", moments.reserved_peak, moments.at_reserved_peak);
    }
    add("end", report_.run->trace.events.size() - 1, moments.at_end);
    say(table);
  }

  void cures() {
    Table table({{"replayed with", Table::Align::left, true},
                 {"reserved"},
                 {"saves"},
                 {"least capacity"},
                 {"saves"}});
    const Cure& base = report_.cures.front();
    const auto saved = [&](std::uint64_t before, std::uint64_t after) -> Cell {
      if (before == 0) return {"-"};
      const double part = 100 * (static_cast<double>(before) - static_cast<double>(after)) /
                          static_cast<double>(before);
      return {fmt::format("{:.1f} %", std::abs(part) < 0.05 ? 0.0 : part), part >= 5 ? Colour::good
                                                                           : part <= -5
                                                                               ? Colour::bad
                                                                               : Colour::none};
    };
    bool gap = false;
    for (const Cure& cure : report_.cures) {
      const bool first = &cure == &base;
      if (!cure.without.empty() && !gap) {
        table.gap();
        gap = true;
      }
      const bool least = cure.least_bytes && base.least_bytes;
      table.add({{short_of(cure.name)},
                 {format_bytes(cure.reserved_bytes)},
                 first ? Cell{""} : saved(base.reserved_bytes, cure.reserved_bytes),
                 {cure.least_bytes ? format_bytes(*cure.least_bytes) : "-"},
                 first || !least ? Cell{""} : saved(*base.least_bytes, *cure.least_bytes)});
    }
    say(table);
  }

  void not_tried() {
    if (!report_.too_long) return;
    sentence(
        report_.cures.empty()
            ? "What would help is found by replaying, which takes long for so many events, and "
              "was not tried: --try all does."
            : "Least capacities take many replays, and were not tried of so long a recording: "
              "--try all does.");
    text_ += '\n';
  }

  void kinds() {
    if (report_.kinds.empty() || options_.by == GroupBy::kind) return;
    Table table({{"what it is", Table::Align::left},
                 {"bytes"},
                 {"share"},
                 {"blocks"},
                 {"", Table::Align::left}});
    std::uint64_t all = 0;
    for (const BlockGroup& group : report_.kinds) all += group.bytes;
    for (const BlockGroup& group : report_.kinds) {
      constexpr double kBar = 30;
      const double share = static_cast<double>(group.bytes) / static_cast<double>(all);
      table.add({{group.name},
                 {format_bytes(group.bytes)},
                 {percent_of(group.bytes, all)},
                 {with_commas(group.blocks)},
                 {std::string(static_cast<std::size_t>(std::lround(share * kBar)), '#')}});
    }
    say(table);
  }

  void groups() {
    const auto& list = report_.groups;
    if (list.empty()) return;
    const bool sites = options_.by == GroupBy::site || options_.by == GroupBy::line;
    if (sites && list.size() == 1 && list.front().name.empty()) {
      sentence(
          "No call sites were recorded: torch.cuda.memory._record_memory_history(stacks="
          "\"python\") does.");
      text_ += '\n';
      return;
    }
    if (options_.by == GroupBy::lifetime && !report_.has_events) {
      sentence("How long blocks lived is not known: the file has no events.");
      text_ += '\n';
      return;
    }
    const std::size_t shown = std::min(options_.rows, list.size());
    const std::string head =
        fmt::format("{} ({} of {})",
                    sites ? "allocated at" : group_names()[static_cast<std::size_t>(options_.by)],
                    shown, list.size());
    std::vector<Table::Column> columns = {{head, Table::Align::left, true}};
    if (sites) columns.push_back({"calls", Table::Align::left, true});
    if (report_.has_events) columns.push_back({"mostly", Table::Align::left});
    columns.insert(columns.end(), {{"bytes"}, {"share"}, {"blocks"}});
    Table table(columns);
    std::uint64_t all = 0;
    for (const BlockGroup& group : list) all += group.bytes;
    for (std::size_t i = 0; i < shown; ++i) {
      const BlockGroup& group = list[i];
      std::vector<Cell> row = {{group.name.empty() ? "(not recorded)" : short_of(group.name)}};
      if (sites) row.push_back({group.called});
      if (report_.has_events) row.push_back({group.kind});
      row.push_back({format_bytes(group.bytes)});
      row.push_back({percent_of(group.bytes, all)});
      row.push_back({with_commas(group.blocks)});
      table.add(std::move(row));
    }
    say(table);
    if (sites && !folder_.empty()) sentence_in_full("Files are in " + folder_ + ".");
    if (report_.step_ends) steps();
  }

  void steps() {
    const std::vector<std::size_t>& ends = *report_.step_ends;
    if (ends.empty()) {
      sentence_in_full(
          "No steps can be told apart in it: they are told by memory that falls and rises, five "
          "at least.");
      return;
    }
    const auto step = static_cast<std::size_t>(
        std::lower_bound(ends.begin(), ends.end(), report_.event) - ends.begin());
    sentence_in_full(fmt::format(
        "{} steps are told by memory that falls and rises; the moment is {}.",
        with_commas(ends.size()),
        step == ends.size() ? "after the last of them" : "in step " + with_commas(step + 1)));
  }

  void lost() {
    if (report_.lost.free_bytes == 0) return;
    static constexpr const char* kWhy[kLosses] = {
        "only the pool may use it",         "only the stream that freed it may",
        "for requests up to 1 MiB",         "nothing is live in them",
        "no rest up to 1 MiB is split off", "at most a quarter of the segment is live",
        "between blocks that are live"};
    Table table({{"free memory", Table::Align::left},
                 {"bytes"},
                 {"of reserved"},
                 {"pieces"},
                 {"why it is there", Table::Align::left, true}});
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < kLosses; ++i) {
      if (report_.lost.parts[i].bytes != 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return report_.lost.parts[a].bytes > report_.lost.parts[b].bytes;
    });
    for (const std::size_t i : order) {
      const LostMemory::Part& part = report_.lost.parts[i];
      table.add({{to_string(static_cast<Loss>(i))},
                 {format_bytes(part.bytes)},
                 {percent_of(part.bytes, report_.fragmentation.total.reserved_bytes)},
                 {with_commas(part.pieces)},
                 {kWhy[i]}});
    }
    say(table);
  }

  static Table sums_table(const std::string& head) {
    return Table({{head, Table::Align::left, true},
                  {"segments"},
                  {"reserved"},
                  {"active"},
                  {"allocated"},
                  {"requested"},
                  {"free"},
                  {"internal"},
                  {"external"},
                  {"holes"},
                  {"largest hole"}});
  }
  static void add_row(Table& table, const MemorySum& sum) {
    table.add({{sum.name},
               {with_commas(sum.segments)},
               {format_bytes(sum.reserved_bytes)},
               {format_bytes(sum.active_bytes)},
               {format_bytes(sum.allocated_bytes)},
               {format_bytes(sum.requested_bytes)},
               {format_bytes(sum.free_bytes)},
               {format_bytes(sum.internal_bytes())},
               {fmt::format("{:.0f} %", sum.external() * 100)},
               {with_commas(sum.holes)},
               {format_bytes(sum.largest_hole_bytes)}});
  }

  void pools() {
    Table pools = sums_table("pool");
    for (const MemorySum& sum : report_.fragmentation.pools) add_row(pools, sum);
    pools.gap();
    add_row(pools, report_.fragmentation.total);
    say(pools);
    if (report_.fragmentation.streams.size() <= 1) return;
    Table streams = sums_table("stream");
    for (const MemorySum& sum : report_.fragmentation.streams) add_row(streams, sum);
    say(streams);
  }

  void segments() {
    const auto& list = report_.fragmentation.segments;
    const std::size_t shown = std::min(options_.segments, list.size());
    if (shown == 0) return;
    Table table =
        sums_table(fmt::format("segments with most free memory ({} of {})", shown, list.size()));
    for (std::size_t i = 0; i < shown; ++i) add_row(table, list[i]);
    say(table);
  }

  void holes() {
    if (report_.fragmentation.holes.empty()) return;
    Table holes({{"holes from"}, {"count"}, {"bytes"}, {"share", Table::Align::left}});
    for (const HoleClass& size : report_.fragmentation.holes) {
      const double share = static_cast<double>(size.bytes) /
                           static_cast<double>(report_.fragmentation.total.free_bytes);
      holes.add({{format_bytes(size.from_bytes)},
                 {with_commas(size.holes)},
                 {format_bytes(size.bytes)},
                 {std::string(static_cast<std::size_t>(std::lround(share * 40)), '#')}});
    }
    say(holes);
  }

  void biggest() {
    if (report_.fragmentation.biggest.empty()) return;
    Table blocks({{"biggest live blocks", Table::Align::left},
                  {"bytes"},
                  {"requested"},
                  {"pool", Table::Align::left},
                  {"allocated at", Table::Align::left, true}});
    for (const LiveBlock& block : report_.fragmentation.biggest) {
      blocks.add({{fmt::format("{:#x}", block.address)},
                  {format_bytes(block.bytes)},
                  {format_bytes(block.requested_bytes)},
                  {block.pool},
                  {block.site.empty() ? "-" : short_of(block.site)}});
    }
    say(blocks);
  }

  void last() {
    const MemorySum& total = report_.fragmentation.total;
    sentence(fmt::format(
        "Of {} reserved, {} is free; the largest request that would succeed without new memory is "
        "{}.",
        format_bytes(total.reserved_bytes), format_bytes(total.free_bytes),
        format_bytes(report_.fragmentation.largest_request_bytes)));
  }

  const MomentReport& report_;
  const InspectText& options_;
  std::string folder_;
  std::string text_;
};

}  // namespace

std::string inspect_text(const MomentReport& report, const InspectText& options) {
  return Writer(report, options).text();
}

}  // namespace gapless::tools
