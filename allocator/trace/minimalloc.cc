#include "allocator/trace/minimalloc.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "allocator/base/bytes.h"
#include "allocator/trace/csv_lines.h"
#include "allocator/trace/interner.h"

namespace gapless {
namespace {

constexpr std::string_view kSource = "minimalloc CSV";
constexpr std::uint64_t kMostTime = std::uint64_t{1} << 62;

enum Column : std::size_t { kId, kLower, kUpper, kSize, kOffset, kAlignment, kGaps, kColumns };

struct Columns {
  static constexpr std::size_t kNone = SIZE_MAX;
  std::array<std::size_t, kColumns> at;
  bool last_time = false;  // "end": the last time of a life
  std::size_t count = 0;

  [[nodiscard]] bool has(Column column) const { return at[column] != kNone; }
};

// Nothing where a column that is needed is missing, or one is there twice.
std::optional<Columns> columns_of(const std::vector<std::string_view>& names) {
  static constexpr std::pair<std::string_view, Column> kNames[] = {
      {"id", kId},       {"buffer", kId},     {"buffer_id", kId},        {"lower", kLower},
      {"start", kLower}, {"begin", kLower},   {"upper", kUpper},         {"end", kUpper},
      {"size", kSize},   {"offset", kOffset}, {"alignment", kAlignment}, {"gaps", kGaps}};
  Columns columns;
  columns.at.fill(Columns::kNone);
  columns.count = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const auto& [name, column] : kNames) {
      if (names[i] != name) continue;
      if (columns.has(column)) return {};
      columns.at[column] = i;
      if (name == "end") columns.last_time = true;
    }
  }
  for (const Column needed : {kId, kLower, kUpper, kSize}) {
    if (!columns.has(needed)) return {};
  }
  return columns;
}

struct Buffer {
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint32_t site = 0;
  bool lives = false;  // written: a block number may be of no block
};

class BufferReader {
 public:
  BufferReader(std::string_view bytes, const std::string& name)
      : budget_(name, bytes.size()),
        lines_(bytes, budget_),
        sites_(trace_.sites, UINT32_MAX, budget_) {
    trace_.name = std::filesystem::path(name).stem().string();
    trace_.source = kSource;
  }

  Trace read() {
    lines_.next();
    columns_ = columns_of(lines_.fields()).value();
    while (lines_.next()) add();
    make_events();
    if (leaves_out_) {
      trace_.warnings.emplace_back("alignments and gaps are left out: a trace does not hold them");
    }
    budget_.hold(trace_.blocks * sizeof(std::uint64_t), "events");
    check_trace(trace_, budget_.file());
    return std::move(trace_);
  }

 private:
  // One end of a life. In this order frees come before what is allocated at the same time.
  struct Moment {
    std::uint64_t time;
    std::uint32_t begins;
    std::uint32_t buffer;

    bool operator<(const Moment& other) const {
      return std::tie(time, begins, buffer) < std::tie(other.time, other.begins, other.buffer);
    }
  };

  void add() {
    const auto place = [this] { return lines_.place(); };
    lines_.expect_fields(columns_.count);
    budget_.work(columns_.count, place);
    const auto field = [&](Column column) { return lines_.fields()[columns_.at[column]]; };
    Buffer buffer;
    buffer.lower = lines_.number(field(kLower), "begin", kMostTime);
    buffer.upper = lines_.number(field(kUpper), "end", kMostTime) + (columns_.last_time ? 1 : 0);
    if (buffer.upper <= buffer.lower) lines_.fail("the buffer ends before it begins");
    buffer.bytes = lines_.number(field(kSize), "size", kMostTraceBytes);
    if (columns_.has(kOffset) && !field(kOffset).empty()) {
      buffer.offset = lines_.number(field(kOffset), "offset", kMostTime);
    }
    if (columns_.has(kAlignment) && field(kAlignment) != "1") leaves_out_ = true;
    if (columns_.has(kGaps) && !field(kGaps).empty()) leaves_out_ = true;
    buffer.site = static_cast<std::uint32_t>(sites_(field(kId), place).value());
    budget_.make_room(buffers_, 1, place);
    buffers_.push_back(buffer);
    constexpr std::size_t kMost = UINT32_MAX / 2;
    if (buffers_.size() >= kMost) lines_.fail("too many buffers");
  }

  void make_events() {
    std::vector<Moment> moments;
    budget_.make_room(moments, 2 * buffers_.size(), "buffers");
    for (std::uint32_t i = 0; i < buffers_.size(); ++i) {
      moments.push_back({buffers_[i].lower, 1, i});
      moments.push_back({buffers_[i].upper, 0, i});
    }
    std::sort(moments.begin(), moments.end());
    std::vector<std::uint32_t> blocks;
    budget_.make_room(blocks, buffers_.size(), "buffers");
    blocks.resize(buffers_.size());
    budget_.make_room(trace_.events, moments.size(), "buffers");
    for (const Moment& moment : moments) {
      const Buffer& buffer = buffers_[moment.buffer];
      const bool begins = moment.begins != 0;
      if (begins) blocks[moment.buffer] = trace_.blocks++;
      trace_.events.push_back({.kind = begins ? EventKind::alloc : EventKind::free,
                               .block = blocks[moment.buffer],
                               .bytes = buffer.bytes,
                               .address = buffer.offset,
                               .time_us = moment.time,
                               .site = buffer.site});
    }
  }

  ReadBudget budget_;
  CsvLines lines_;
  Trace trace_;
  Interner<std::string, std::string_view> sites_;
  Columns columns_;
  std::vector<Buffer> buffers_;
  bool leaves_out_ = false;
};

// A name that is one field of one line.
std::string one_field(std::string_view text) {
  std::string field(text);
  for (char& c : field) {
    if (c == ',' || static_cast<unsigned char>(c) < ' ') c = '_';
  }
  return field;
}

// The blocks with their lives; site is where a block was allocated.
std::vector<Buffer> buffers_of(const Trace& trace, bool own_times) {
  std::vector<Buffer> buffers(trace.blocks);
  std::uint64_t end = trace.events.size();
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    const std::uint64_t time = own_times ? event.time_us : i;
    end = std::max(end, time + 1);
    if (event.kind == EventKind::alloc) {
      buffers[event.block] = {time, 0, event.bytes, event.address, event.site, true};
    } else if (event.kind == EventKind::free) {
      buffers[event.block].upper = std::max(time, buffers[event.block].lower + 1);
    }
  }
  for (Buffer& buffer : buffers) {
    if (buffer.upper == 0) buffer.upper = end;
  }
  return buffers;
}

}  // namespace

bool looks_like_minimalloc(std::string_view bytes) {
  constexpr std::size_t kLongestHeader = 4096;
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), kLongestHeader));
  const ReadBudget budget("", line.size());
  CsvLines lines(line, budget);
  return lines.next() && columns_of(lines.fields()).has_value();
}

Trace read_minimalloc(std::string_view bytes, const std::string& name) {
  return BufferReader(bytes, name).read();
}

bool came_from_minimalloc(const Trace& trace) { return trace.source.starts_with(kSource); }

std::string write_minimalloc(const Trace& trace) {
  const bool came_from_one = came_from_minimalloc(trace);
  const std::vector<Buffer> buffers = buffers_of(trace, came_from_one);
  std::vector<std::uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  if (came_from_one) {  // sites are numbered as they stood in the file
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return buffers[a].site < buffers[b].site;
    });
  }
  const bool with_offsets =
      std::any_of(buffers.begin(), buffers.end(), [](const Buffer& b) { return b.offset != 0; });
  std::string out = with_offsets ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n";
  for (const std::uint32_t i : order) {
    const Buffer& buffer = buffers[i];
    if (!buffer.lives) continue;
    out += came_from_one ? one_field(trace.sites[buffer.site]) : "b" + std::to_string(i);
    for (const std::uint64_t number : {buffer.lower, buffer.upper, buffer.bytes}) {
      out += "," + std::to_string(number);
    }
    if (with_offsets) out += "," + std::to_string(buffer.offset);
    out += '\n';
  }
  return out;
}

}  // namespace gapless
