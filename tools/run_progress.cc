#include "tools/run_progress.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "simgpu/process/process_record.h"
#include "tools/left_running.h"
#include "tools/say.h"
#include "tools/table.h"
#include "tools/text_width.h"

namespace gapless::tools {

using std::chrono::steady_clock;

RunProgress::RunProgress(std::string what, std::filesystem::path reports, bool alone, bool zeros)
    : what_(std::move(what)),
      reports_(std::move(reports)),
      shown_(alone && isatty(STDERR_FILENO) != 0),
      zeros_(zeros),
      begin_(steady_clock::now()),
      standstill_(begin_) {}

RunProgress::~RunProgress() { clear(); }

void RunProgress::look() {
  const CameTo now_at = came_to();
  const auto now = steady_clock::now();
  if (const auto read = standstill_.look(now_at, now)) {
    clear();
    say(stderr,
        "{}: {} numbers that nobody knows were read, and no step was made and no more memory taken "
        "meanwhile: a loop that waits for one ends by ^C or --time-limit alone{}\n",
        what_, with_commas(*read), zeros_ ? "; --unknown noise gives others" : "");
  }
  if (!shown_) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begin_);
  const std::string figures =
      fmt::format("{} s, {} steps, {}", seconds.count(), with_commas(now_at.steps),
                  format_bytes(now_at.peak_bytes));
  say(stderr, "\r\x1b[K{}", status_line(what_, figures, terminal_columns(STDERR_FILENO)));
  std::fflush(stderr);
  drawn_ = true;
}

std::string status_line(const std::string& what, const std::string& figures, std::size_t columns) {
  constexpr std::string_view kMore = " in use at most";
  std::string text = what + ": " + figures;
  if (columns == 0 || columns_of(text) + kMore.size() < columns) return text.append(kMore);
  if (columns_of(text) < columns) return text;
  const std::size_t room = columns - std::min(columns, figures.size() + 3);
  return room < 2 ? lines_of(figures, std::max<std::size_t>(columns, 2) - 1).front()
                  : lines_of(what, room).front() + ": " + figures;
}

void RunProgress::wait_for(const std::string& names) {
  clear();
  say(stderr, "{}\n", waiting_for(what_, names));
}

CameTo RunProgress::came_to() const {
  using simgpu::Estimate;
  CameTo all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(reports_, ignored)) {
    if (entry.path().extension() != ".gpu") continue;
    const auto record = simgpu::read_record(entry.path().string());
    if (!record) continue;
    all.steps = std::max(all.steps, record->steps);
    for (const auto& device : record->devices) {
      all.peak_bytes = std::max(all.peak_bytes, device.peak_used_bytes);
    }
    for (const Estimate read : {Estimate::number, Estimate::integer, Estimate::flag}) {
      all.unknown_read += record->estimates[static_cast<int>(read)];
    }
  }
  return all;
}

void RunProgress::clear() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

}  // namespace gapless::tools
