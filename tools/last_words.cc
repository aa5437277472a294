#include "tools/last_words.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <utility>

namespace gapless::tools {
namespace {

// Without what launchers put before the lines of their children: "[rank0]: ", "[default0]:".
std::string_view without_rank(std::string_view line) {
  if (!line.starts_with('[')) return line;
  const std::size_t end = line.find("]:");
  if (end == std::string_view::npos || end > 40) return line;
  line.remove_prefix(end + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

// Without what colours it on a terminal: "\x1b[31m".
std::string uncoloured(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    if (line.starts_with("\x1b[")) {
      const std::size_t end = line.find_first_not_of("0123456789;?", 2);
      line.remove_prefix(end == line.npos ? line.size() : end + 1);
      continue;
    }
    text += line.front();
    line.remove_prefix(1);
  }
  return text;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

bool is_of_launcher(std::string_view exception) {
  return exception.find("ChildFailedError") != exception.npos ||
         exception.find("CalledProcessError") != exception.npos;
}

// "E1129 15:31:59.100000 22205 torch/distributed/elastic/multiprocessing/api.py:984] failed ..."
bool is_log_of_launcher(std::string_view line) {
  return !line.empty() && std::string_view("WEI").find(line.front()) != line.npos &&
         line.find("torch/distributed/") != line.npos;
}

// Who names all the choices that there are goes on for pages.
std::string first_of(const std::string& text) {
  constexpr std::size_t kMost = 300;  // bytes
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

bool begins_traceback(std::string_view line) {
  return line.starts_with("Traceback (most recent call last)");
}

// Of what a worker raised, inside the message of the exception that PyTorch raises in its place.
bool begins_workers_traceback(std::string_view line) {
  return line.starts_with("Original Traceback (most recent call last)");
}

const std::string kCausedBy = ", caused by ";

// Between the traceback of a cause and that of what was raised from it.
bool is_cause_of_next(std::string_view line) {
  return line.starts_with("The above exception was the direct cause");
}

// Of an exception whose message begins on a line of its own: neither a rule ("=====") nor what
// stands between the tracebacks of exceptions that led to each other.
bool may_be_message(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0; }) &&
         !begins_traceback(line) && !begins_workers_traceback(line) && !is_cause_of_next(line) &&
         !line.starts_with("During handling of the above exception");
}

}  // namespace

std::vector<std::string> lines_said(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const std::size_t bar = line.rfind('\r'); bar != line.npos) line.remove_prefix(bar + 1);
    std::string plain = uncoloured(line);
    if (!is_blank(plain)) lines.push_back(std::move(plain));
  }
  return lines;
}

std::vector<std::string> without_launcher(std::vector<std::string> lines) {
  std::size_t traceback = lines.size();
  std::size_t end = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (begins_traceback(without_rank(lines[i]))) traceback = i;
    if (traceback < i && !lines[i].starts_with(' ') && is_of_launcher(lines[i])) end = traceback;
  }
  // Of a child that a signal ended nobody but the launcher says why. The first that failed stands
  // last.
  bool by_signal = false;
  for (const std::string& line : lines) {
    if (line.find("exitcode ") != line.npos) by_signal = line.find(": -") != line.npos;
    if (line.find("died with <Signals") != line.npos) by_signal = true;
  }
  while (end > 0 && is_log_of_launcher(lines[end - 1])) --end;
  if (end > 0 && !by_signal) lines.resize(end);
  return lines;
}

std::vector<std::string> lines_said_last(const std::filesystem::path& file) {
  std::ifstream input(file, std::ios::binary | std::ios::ate);
  if (!input) return {};
  constexpr std::int64_t kMost = 16 << 10;
  input.seekg(std::max<std::int64_t>(0, static_cast<std::int64_t>(input.tellg()) - kMost));
  std::ostringstream text;
  text << input.rdbuf();
  return without_launcher(lines_said(text.str()));
}

std::vector<std::string> exceptions_in(const std::vector<std::string>& lines) {
  std::vector<std::string> exceptions;
  std::vector<std::size_t> raised_from_the_one_before;
  bool in_traceback = false;
  bool in_worker = false;  // what it raised is said in the message of what was raised in its place
  bool goes_on = false;    // what an exception says may begin on a line of its own
  for (const std::string& said : lines) {
    std::string_view line = without_rank(said);
    if (std::exchange(goes_on, false) && may_be_message(line)) {
      line.remove_prefix(line.find_first_not_of(' '));
      exceptions.back() += " " + std::string(line);
      continue;
    }
    if (is_cause_of_next(line)) raised_from_the_one_before.push_back(exceptions.size());
    if (begins_traceback(line) || begins_workers_traceback(line)) {
      in_traceback = true;
      in_worker = !begins_traceback(line) && !exceptions.empty();
    } else if (in_traceback && !is_blank(line) && !line.starts_with(' ')) {
      in_traceback = false;
      std::string exception(line);
      while (exception.ends_with(' ')) exception.pop_back();
      goes_on = !in_worker && exception.ends_with(':');
      if (std::exchange(in_worker, false)) {
        exceptions.back() = exception + " (" + exceptions.back() + ")";
      } else {
        exceptions.push_back(std::move(exception));
      }
    }
  }
  for (const std::size_t i : raised_from_the_one_before) {
    if (i == 0 || i >= exceptions.size()) continue;
    const std::string& before = exceptions[i - 1];
    const std::size_t cause = before.rfind(kCausedBy);  // of several the first
    exceptions[i] +=
        kCausedBy + (cause == before.npos ? before : before.substr(cause + kCausedBy.size()));
  }
  return exceptions;
}

std::string why_it_ended(const std::vector<std::string>& lines) {
  const std::vector<std::string> exceptions = exceptions_in(lines);
  const auto own = std::find_if_not(exceptions.rbegin(), exceptions.rend(), is_of_launcher);
  if (own != exceptions.rend()) return first_of(*own);
  if (!exceptions.empty()) return first_of(exceptions.front());
  return lines.empty() ? std::string() : first_of(lines.back());
}

std::string exception_passed_over(const std::vector<std::string>& lines) {
  std::vector<std::string> own;
  bool ignored = false;
  for (const std::string& line : lines) {
    if (line.find("Exception ignored ") != line.npos) ignored = true;
    // Up to the line after the traceback, which names the exception.
    const bool is_last = ignored && !line.starts_with(' ') && !begins_traceback(line) &&
                         line.find("Exception ignored ") == line.npos;
    if (!ignored) own.push_back(line);
    if (is_last) ignored = false;
  }
  const std::vector<std::string> exceptions = exceptions_in(own);
  const auto other = std::find_if(exceptions.rbegin(), exceptions.rend(), [](const auto& one) {
    return one.find("OutOfMemoryError") == one.npos && one.find("out of memory") == one.npos;
  });
  return other == exceptions.rend() ? std::string() : first_of(*other);
}

std::vector<std::string> last_of(const std::vector<std::string>& lines, std::size_t most) {
  return {lines.end() - static_cast<std::ptrdiff_t>(std::min(most, lines.size())), lines.end()};
}

}  // namespace gapless::tools
