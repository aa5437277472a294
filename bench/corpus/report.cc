#include "bench/corpus/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"

namespace gapless::bench {
namespace {

std::string count_text(std::uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string text_of(const std::vector<Table>& tables, const std::vector<std::string>& allocators,
                    const nlohmann::json& kept) {
  std::string text;
  for (const Table& table : tables) {
    text +=
        fmt::format("{}{}, {}: {}\n", text.empty() ? "" : "\n",
                    kGroupNames[static_cast<std::size_t>(table.group)],
                    table.large_only ? "above 1 GB" : "all", count_text(table.programs, "program"));
    text += fmt::format("  {:<33} {:<11} {:>19} {:>19} {:>19} {:>19}\n", "", "", "mean", "p90",
                        "p99", "worst");
    for (std::size_t i = 0; i < kFigures; ++i) {
      const auto figure = static_cast<Figure>(i);
      const FigureFacts& facts = facts_of(figure);
      std::string title(facts.title);
      for (const std::string& allocator : allocators) {
        const auto found = table.by_allocator.find(allocator);
        if (found == table.by_allocator.end() || !found->second[i]) continue;
        const Spread& now = *found->second[i];
        const auto before = kept_spread(kept, table, allocator, figure);
        const auto cell = [&](double Spread::*part, int more_digits) {
          return with_difference(now.*part, before ? std::optional((*before).*part) : std::nullopt,
                                 facts.digits + more_digits);
        };
        // Of whole numbers the mean is none.
        text += fmt::format(
            "  {:<33} {:<11} {:>19} {:>19} {:>19} {:>19}{}\n", title, allocator,
            cell(&Spread::mean, facts.digits == 0 ? 1 : 0), cell(&Spread::p90, 0),
            cell(&Spread::p99, 0), cell(&Spread::worst, 0),
            now.programs == table.programs ? "" : "  of " + count_text(now.programs, "program"));
        title.clear();
      }
    }
    if (table.compared != 0) {
      text += fmt::format(
          "  least capacity never more than the better of native and expandable: {} of {}\n",
          table.never_more, table.compared);
    }
  }
  return text;
}

std::string rows_text(const std::vector<ProgramFigures>& programs,
                      const std::vector<std::string>& allocators) {
  std::string text;
  for (const ProgramFigures& program : programs) {
    if (program.group == Group::unseen) continue;
    std::string name = terminal_text(program.name);
    for (const std::string& allocator : allocators) {
      const auto found = program.by_allocator.find(allocator);
      if (found == program.by_allocator.end()) continue;
      text += fmt::format("  {:<26} {:>10} {:>3} {:<11}", name,
                          name.empty() ? "" : format_bytes(program.peak_allocated_bytes),
                          name.empty() ? "" : fmt::format("{}", program.streams), allocator);
      for (std::size_t i = 0; i < kFigures; ++i) {
        const auto figure = static_cast<Figure>(i);
        const auto& value = found->second[figure];
        text += value ? fmt::format(" {:>9.{}f}", *value, facts_of(figure).digits)
                      : fmt::format(" {:>9}", "-");
      }
      text += '\n';
      name.clear();
    }
  }
  if (text.empty()) return text;
  std::string head = fmt::format("  {:<26} {:>10} {:>3} {:<11}", "program", "allocated", "str", "");
  for (const char* title : {"over %", "calls 5", "stalls 5", "calls 10", "stalls 10", "a100 ms",
                            "desktop", "tight !%", "t.stalls", "least %"}) {
    head += fmt::format(" {:>9}", title);
  }
  return head + '\n' + text;
}

}  // namespace gapless::bench
