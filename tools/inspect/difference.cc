#include "tools/inspect/difference.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

std::string signed_bytes(std::int64_t bytes) {
  if (bytes == 0) return "0 bytes";
  const auto size = static_cast<std::uint64_t>(bytes < 0 ? -bytes : bytes);
  return (bytes < 0 ? "-" : "+") + format_bytes(size);
}

Cell change_cell(std::int64_t bytes) {
  return {signed_bytes(bytes), bytes > 0 ? Colour::bad : bytes < 0 ? Colour::good : Colour::none};
}

struct Sum {
  const char* name;
  std::uint64_t MemorySums::*bytes;
};
constexpr Sum kSums[] = {{"requested", &MemorySums::requested_bytes},
                         {"allocated", &MemorySums::allocated_bytes},
                         {"active", &MemorySums::active_bytes},
                         {"reserved", &MemorySums::reserved_bytes}};

std::string moment_text(const MomentReport& report) {
  std::string text = report.state.name;
  if (report.has_events) {
    text += fmt::format(", gpu {}, at {} (event {})", report.device,
                        report.at == "event" ? "the event asked for" : "the " + report.at,
                        with_commas(report.event));
  }
  return text;
}

json moment_json(const MomentReport& report) {
  json entry = {{"name", report.state.name},
                {"source", report.state.source},
                {"has_events", report.has_events},
                {"at", report.at}};
  if (report.has_events) {
    entry["event"] = report.event;
    entry["device"] = report.device;
  }
  for (const Sum& sum : kSums) entry[std::string(sum.name) + "_bytes"] = report.sums.*sum.bytes;
  return entry;
}

}  // namespace

std::vector<GroupChange> changes_between(const std::vector<BlockGroup>& before,
                                         const std::vector<BlockGroup>& after) {
  std::map<std::string, GroupChange> changes;
  for (const BlockGroup& group : before) {
    GroupChange& change = changes[group.name];
    change.before_bytes = group.bytes;
    change.before_blocks = group.blocks;
  }
  for (const BlockGroup& group : after) {
    GroupChange& change = changes[group.name];
    change.after_bytes = group.bytes;
    change.after_blocks = group.blocks;
  }
  std::vector<GroupChange> list;
  for (auto& [name, change] : changes) {
    change.name = name;
    list.push_back(std::move(change));
  }
  std::stable_sort(list.begin(), list.end(), [](const GroupChange& a, const GroupChange& b) {
    return a.grew_by() > b.grew_by();
  });
  return list;
}

std::string difference_text(const MomentReport& before, const MomentReport& after, GroupBy by,
                            std::size_t rows, bool colour, std::size_t columns) {
  std::string text = paragraph("before: " + moment_text(before));
  text += paragraph("after:  " + moment_text(after)) + "\n";
  Table sums({{"", Table::Align::left}, {"before"}, {"after"}, {"grew by"}});
  for (const Sum& sum : kSums) {
    const std::uint64_t was = before.sums.*sum.bytes;
    const std::uint64_t is = after.sums.*sum.bytes;
    sums.add({{sum.name},
              {format_bytes(was)},
              {format_bytes(is)},
              change_cell(static_cast<std::int64_t>(is) - static_cast<std::int64_t>(was))});
  }
  text += sums.text(colour, columns) + "\n";
  std::vector<GroupChange> changes = changes_between(before.groups, after.groups);
  const std::size_t all = changes.size();
  std::erase_if(changes, [](const GroupChange& change) { return change.grew_by() == 0; });
  const std::size_t same = all - changes.size();
  Table table({{group_names()[static_cast<std::size_t>(by)], Table::Align::left, true},
               {"before"},
               {"after"},
               {"grew by"},
               {"blocks"}});
  const auto add = [&](const GroupChange& change) {
    const auto blocks = static_cast<std::int64_t>(change.after_blocks) -
                        static_cast<std::int64_t>(change.before_blocks);
    table.add({{change.name.empty() ? "(not recorded)" : change.name},
               {format_bytes(change.before_bytes)},
               {format_bytes(change.after_bytes)},
               change_cell(change.grew_by()),
               {fmt::format("{:+d}", blocks)}});
  };
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const bool shown = (changes[i].grew_by() > 0 && i < rows) ||
                       (changes[i].grew_by() < 0 && changes.size() - i <= rows);
    if (shown) {
      add(changes[i]);
    } else {
      ++left_out;
    }
  }
  if (!changes.empty()) text += table.text(colour, columns) + "\n";
  text += paragraph(fmt::format("{}{} as large as before.",
                                left_out == 0 ? "" : fmt::format("{} more changed. ", left_out),
                                with_commas(same) + (same == 1 ? " is" : " are")));
  return text;
}

json difference_json(const MomentReport& before, const MomentReport& after, GroupBy by) {
  json groups = json::array();
  for (const GroupChange& change : changes_between(before.groups, after.groups)) {
    groups.push_back({{"name", change.name},
                      {"before_bytes", change.before_bytes},
                      {"after_bytes", change.after_bytes},
                      {"grew_by_bytes", change.grew_by()},
                      {"before_blocks", change.before_blocks},
                      {"after_blocks", change.after_blocks}});
  }
  return {{"before", moment_json(before)},
          {"after", moment_json(after)},
          {"by", group_names()[static_cast<std::size_t>(by)]},
          {"groups", std::move(groups)}};
}

}  // namespace gapless::tools
