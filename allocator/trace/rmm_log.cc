#include "allocator/trace/rmm_log.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/trace/csv_lines.h"
#include "allocator/trace/interner.h"

namespace gapless {
namespace {

constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";
enum Field : std::size_t { kThread, kTime, kAction, kPointer, kBytes, kStream, kFields };

// 0 where the name does not say.
DeviceIndex device_of(const std::string& name) {
  std::filesystem::path path(name);
  for (int i = 0; i < 2; ++i) {
    constexpr std::string_view kMark = ".dev";
    const std::string extension = path.extension().string();
    if (extension.starts_with(kMark)) {
      unsigned device = 0;
      const char* const end = extension.data() + extension.size();
      const auto [at, error] = std::from_chars(extension.data() + kMark.size(), end, device);
      if (error == std::errc() && at == end && device < kMostDevices) {
        return static_cast<DeviceIndex>(device);
      }
    }
    path = path.stem();
  }
  return 0;
}

class LogReader {
 public:
  LogReader(std::string_view bytes, const std::string& name)
      : budget_(name, bytes.size()),
        lines_(bytes, budget_),
        streams_(trace_.streams, kMostStreams, budget_) {
    trace_.name = std::filesystem::path(name).stem().string();
    trace_.source = "RMM log";
    trace_.device = device_of(name);
  }

  Trace read() {
    lines_.next();  // the header
    while (lines_.next()) add();
    put_initial_first();
    budget_.hold(trace_.blocks * sizeof(std::uint64_t), "events");
    check_trace(trace_, budget_.file());
    return std::move(trace_);
  }

 private:
  static constexpr std::uint64_t kLiveBytes =
      node_bytes(sizeof(std::pair<std::uint64_t, std::uint32_t>));

  [[nodiscard]] auto place() const {
    return [this] { return lines_.place(); };
  }

  void add() {
    lines_.expect_fields(kFields);
    budget_.work(kFields, place());
    const auto& fields = lines_.fields();
    TraceEvent event;
    event.time_us = time_us(fields[kTime]);
    event.stream = stream_number(fields[kStream]);
    const std::string_view action = fields[kAction];
    if (action == "allocate failure") {
      event.kind = EventKind::oom;
      event.bytes = lines_.number(fields[kBytes], "size", UINT64_MAX);
      push(trace_.events, event);
      return;
    }
    const bool is_free = action == "free" || action == "deallocate";
    if (!is_free && action != "allocate") {
      lines_.fail("unknown action \"" + CsvLines::shortened(action) + "\"");
    }
    event.bytes = lines_.number(fields[kBytes], "size", kMostTraceBytes);
    event.address = pointer(fields[kPointer]);
    if (event.address == 0 && event.bytes == 0) return;  // nothing was asked for, or given
    is_free ? add_free(event) : add_alloc(event);
  }

  // "15:47:02.841961", of old "15:47:02:841961"; or "1634567890.123456".
  std::uint64_t time_us(std::string_view text) {
    constexpr std::uint64_t kSecond = 1000000;
    constexpr std::uint64_t kDay = std::uint64_t{24} * 3600 * kSecond;
    const std::string_view whole = text;
    const auto fail = [&] {
      lines_.fail("time \"" + CsvLines::shortened(whole) + "\": expected hours:minutes:seconds");
    };
    const auto take = [&](std::string_view until, std::uint64_t most) {
      const std::size_t end = std::min(text.find_first_of(until), text.size());
      const std::uint64_t value = lines_.number(text.substr(0, end), "time", most);
      text.remove_prefix(std::min(end + 1, text.size()));
      return value;
    };
    const auto fraction = [&] {
      if (text.empty()) return std::uint64_t{0};
      constexpr std::size_t kDigits = 6;
      std::string digits(text.substr(0, kDigits));
      digits.resize(kDigits, '0');
      return lines_.number(digits, "time", kSecond);
    };
    if (text.find(':') == text.npos) {
      constexpr std::uint64_t kMostSeconds = std::uint64_t{1} << 40;
      const std::uint64_t seconds = take(".", kMostSeconds);
      return seconds * kSecond + fraction();
    }
    const std::uint64_t hours = take(":", 23);
    const std::uint64_t minutes = take(":", 59);
    if (text.empty()) fail();
    const std::uint64_t seconds = take(".:", 60);
    std::uint64_t time = (hours * 3600 + minutes * 60 + seconds) * kSecond + fraction();
    // Threads may log a little out of order; half a day back is midnight.
    if (time + kDay / 2 < last_time_) day_ += kDay;
    last_time_ = time;
    time += day_;
    return time;
  }

  std::uint64_t pointer(std::string_view text) const {
    if (text.empty() || text == "(nil)" || text == "nullptr") return 0;
    if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
    return lines_.number(text, "pointer", UINT64_MAX, 16);
  }

  std::uint16_t stream_number(std::string_view text) {
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    const std::uint64_t handle = text == "(nil)" ? 0
                                 : hex ? lines_.number(text.substr(2), "stream", UINT64_MAX, 16)
                                       : lines_.number(text, "stream", UINT64_MAX);
    const auto number = streams_(handle, place());
    if (!number) lines_.fail("more than " + std::to_string(kMostStreams) + " streams");
    return static_cast<std::uint16_t>(*number);
  }

  void push(std::vector<TraceEvent>& events, const TraceEvent& event) {
    budget_.make_room(events, 1, place());
    events.push_back(event);
  }

  void add_alloc(TraceEvent event) {
    const auto [entry, added] = live_.try_emplace(event.address, trace_.blocks);
    if (added) {
      budget_.hold(kLiveBytes, place());
    } else {  // its free is not in the log: it must have happened by now
      TraceEvent lost = event;
      lost.kind = EventKind::free;
      lost.block = std::exchange(entry->second, trace_.blocks);
      push(trace_.events, lost);
      ++lost_frees_;
    }
    event.kind = EventKind::alloc;
    event.block = trace_.blocks++;
    push(trace_.events, event);
  }

  void add_free(TraceEvent event) {
    const auto found = live_.find(event.address);
    if (found == live_.end()) {  // allocated before the log began
      event.block = trace_.blocks++;
      TraceEvent initial = event;
      initial.kind = EventKind::alloc;
      initial.time_us = 0;
      push(initial_, initial);
    } else {
      event.block = found->second;
      live_.erase(found);
      budget_.give_back(kLiveBytes);
    }
    event.kind = EventKind::free;
    push(trace_.events, event);
  }

  void put_initial_first() {
    trace_.initial_events = initial_.size();
    budget_.make_room(trace_.events, initial_.size(), "events");
    trace_.events.insert(trace_.events.begin(), initial_.begin(), initial_.end());
    if (lost_frees_ != 0) {
      trace_.warnings.push_back(std::to_string(lost_frees_) +
                                " frees are missing; assumed at the next use of their address");
    }
  }

  ReadBudget budget_;
  CsvLines lines_;
  Trace trace_;
  Interner<std::uint64_t> streams_;
  std::unordered_map<std::uint64_t, std::uint32_t> live_;  // block by address
  std::vector<TraceEvent> initial_;
  std::uint64_t lost_frees_ = 0;
  std::uint64_t last_time_ = 0;
  std::uint64_t day_ = 0;
};

}  // namespace

bool looks_like_rmm_log(std::string_view bytes) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return bytes.starts_with(kHeader);
}

Trace read_rmm_log(std::string_view bytes, const std::string& name) {
  return LogReader(bytes, name).read();
}

}  // namespace gapless
