#include "tools/estimates_from.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "tools/json_values.h"
#include "tools/table.h"

namespace gapless::tools {

using nlohmann::json;

std::string times(std::uint64_t count) {
  return count == 1 ? "once" : count == 2 ? "twice" : fmt::format("{} times", with_commas(count));
}

std::string lines_text(const json& lines) {
  const json line = member(lines, "line");
  const json library = member(lines, "library_line");
  if (line.is_string() && library.is_string()) {
    return fmt::format(" ({}, in {})", line.get<std::string>(), library.get<std::string>());
  }
  if (line.is_string()) return fmt::format(" ({})", line.get<std::string>());
  return library.is_string() ? fmt::format(" (in {})", library.get<std::string>()) : "";
}

std::string estimate_note(const json& row) {
  const json from = member(row, "estimates_from");
  if (!from.is_object()) return {};
  const std::string kind = from["kind"];
  const bool computes = member(row, "computes_numbers") != false;
  if (kind == "number" && computes) return {};
  const std::string step =
      from["step"].is_number() ? fmt::format(" in step {}", from["step"].get<std::uint64_t>()) : "";
  // Of one that was ended by force nobody told where that was.
  const std::string at = step + lines_text(from);
  const std::string where = times(from["count"].get<std::uint64_t>()) +
                            (from["count"] == 1 || at.empty() ? "" : ", first") + at;
  const std::string zeros = member(row, "unknown") == "noise" ? "noise" : "zeros";
  if (!computes) {
    return fmt::format(
        "peaks may be estimates: numbers were read back {}; for this version of PyTorch none are "
        "computed, and unknown ones are {}",
        where, zeros);
  }
  if (kind == "bound") {
    return fmt::format(
        "the size of a tensor followed from numbers that nobody knows (by a mask, nonzero, unique, "
        "nms) {}; each is as large as it can be (--unknown most)",
        where);
  }
  if (kind == "size") {
    return fmt::format(
        "peaks are estimates from here: the size of a tensor followed from numbers that nobody "
        "knows (by a mask, nonzero, unique, repeat_interleave) {}; those are {}, what is chosen "
        "by them {}",
        where, zeros, zeros == "zeros" ? "goes in turn" : "is random");
  }
  if (kind == "integer") {
    return fmt::format(
        "an integer that nobody knows was read {}: if memory goes by it, peaks are estimates from "
        "here",
        where);
  }
  return fmt::format(
      "a flag that nobody knows was read {}: if the program branches by it, peaks are estimates "
      "from here{}",
      where,
      member(from, "bounded") != 0
          ? "; sizes that follow from such numbers are as large as they can be (--unknown most)"
          : "");
}

bool sizes_were_bounded(const json& row) {
  const json from = member(row, "estimates_from");
  return !from.is_object() || from["kind"] != "size";
}

bool may_have_died_of_zeros(const json& row) {
  constexpr std::array<std::string_view, 7> kOfNumbers = {
      "ZeroDivisionError", "OverflowError", "FloatingPointError", "ValueError",
      "AssertionError",    "IndexError",    "RuntimeError"};
  const json exception = member(row, "exception");
  return exception.is_object() && member(exception, "out_of_memory") == false &&
         member(row, "estimates_from").is_object() && member(row, "unknown") == "zeros" &&
         std::find(kOfNumbers.begin(), kOfNumbers.end(),
                   exception["type"].get_ref<const std::string&>()) != kOfNumbers.end();
}

bool took_as_much(double bytes_before, double bytes_now) {
  constexpr double kSamePart = 0.005;
  return std::abs(bytes_now - bytes_before) <= bytes_before * kSamePart;
}

bool tells(const json& row, const std::string& note) {
  const json reason = member(row, "reason");
  return reason.is_string() && reason.get<std::string>().find(note) != std::string::npos;
}

void judge_estimates(json& row, bool accepted) {
  const json from = member(row, "estimates_from");
  if (!from.is_object()) return;
  if (row["fits"].is_null() && may_have_died_of_zeros(row)) {
    row["reason"] = row["reason"].get<std::string>() +
                    "; numbers that nobody knows had been read, which are zeros (--unknown noise)";
  }
  const auto not_known = [&](const std::string& reason) {
    row["fits"] = nullptr;
    row["verdict"] = "not known";
    row["reason"] = reason;
  };
  const bool most = member(row, "unknown") == "most";
  const bool bounded = from["bounded"] != 0;
  if (row["fits"] == false && bounded) {
    return not_known(
        fmt::format("with as many chosen, by masks and the like, as there can be (--unknown most) "
                    "it does not fit: {}; with fewer it may",
                    row["reason"].get<std::string>()));
  }
  if (row["fits"] != true) return;
  const std::string verdict = row["verdict"];
  row["by_estimates"] = false;
  const bool is_size = from["kind"] == "size";
  const std::uint64_t steered = bounded ? from["steered"].get<std::uint64_t>() : 0;
  if (bounded && !is_size && steered == 0) {
    row["verdict"] = verdict + ", at the most";
  } else if (is_size || bounded || member(row, "computes_numbers") == false) {
    row["by_estimates"] = true;
    if (accepted) {
      row["verdict"] = verdict + ", by estimates";
      return;
    }
    const char* const either =
        " (--unknown most makes them as large as they can be; --estimates takes them for what they "
        "are)";
    const std::string read = fmt::format(
        "; and integers or flags that nobody knows were read back {}, by which it may do less or "
        "more",
        times(steered));
    not_known(estimate_note(row) + (bounded && !is_size ? read : "") +
              (most ? " (--estimates takes it for what it is)" : either));
  }
}

}  // namespace gapless::tools
