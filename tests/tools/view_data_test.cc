// The tables of a page: nothing is lost in them, nothing counted otherwise than elsewhere.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "allocator/base/bytes.h"
#include "allocator/trace/load.h"
#include "allocator/trace/segment_ranges.h"
#include "tools/view/page.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> example_traces() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(GAPLESS_TRACES)) {
    if (entry.path().extension() == ".gtrace") files.push_back(entry.path().string());
  }
  files.emplace_back(GAPLESS_SNAPSHOT);
  return files;
}

// A table as the page reads it.
class Table {
 public:
  explicit Table(const std::string& bytes) : left_(bytes) {
    about = json::parse(part());
    columns_.resize(take_length());
    for (std::string_view& column : columns_) column = part();
    EXPECT_TRUE(left_.empty());
  }

  std::uint64_t number(PageColumn column) {
    std::string_view& bytes = at(column);
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  }
  // 0 of a column that was left out.
  std::uint64_t number_or_zero(PageColumn column) { return left_out(column) ? 0 : number(column); }
  std::uint64_t difference(PageColumn column) {
    const std::uint64_t value = number(column);
    return value >> 1 ^ (0 - (value & 1));
  }
  bool left_out(PageColumn column) { return at(column).data() == nullptr || was_empty(column); }
  std::string_view& at(PageColumn column) { return columns_[static_cast<std::size_t>(column)]; }

  void expect_read_to_the_end() {
    for (const std::string_view column : columns_) EXPECT_TRUE(column.empty());
  }

  json about;

 private:
  bool was_empty(PageColumn column) {
    if (empty_.empty()) {
      for (const std::string_view each : columns_) empty_.push_back(each.empty());
    }
    return empty_[static_cast<std::size_t>(column)];
  }
  std::size_t take_length() {
    std::size_t value = 0;
    for (int i = 0; i < 4; ++i) {
      value |= std::size_t{static_cast<unsigned char>(left_[static_cast<std::size_t>(i)])}
               << (8 * i);
    }
    left_.remove_prefix(4);
    return value;
  }
  std::string_view part() {
    const std::size_t bytes = take_length();
    const std::string_view found = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return found;
  }

  std::string_view left_;
  std::vector<std::string_view> columns_;
  std::vector<bool> empty_;  // which were at first
};

// The events a table holds, with blocks numbered in the order of their allocation.
std::vector<TraceEvent> events_of(Table& table) {
  using Column = PageColumn;
  std::vector<TraceEvent> events;
  const std::string kinds(table.at(Column::kinds));
  table.at(Column::kinds) = {};
  const bool timed = !table.left_out(Column::times_us);
  const std::uint64_t base =
      std::stoull(table.about["base_address"].get<std::string>(), nullptr, 16);
  const std::uint64_t unit = table.about["address_unit"];
  std::uint64_t time = 0;
  std::uint64_t address = 0;
  std::uint64_t range = 0;
  std::uint32_t blocks = 0;
  for (const char kind : kinds) {
    TraceEvent event;
    event.kind = static_cast<EventKind>(kind);
    if (timed) event.time_us = time += table.difference(Column::times_us);
    switch (event.kind) {
      case EventKind::alloc:
        event.block = blocks++;
        event.bytes = table.number(Column::sizes);
        event.address = base + unit * (address += table.difference(Column::addresses));
        event.site = static_cast<std::uint32_t>(table.number_or_zero(Column::sites));
        event.stream = static_cast<std::uint16_t>(table.number_or_zero(Column::streams));
        event.pool = static_cast<std::uint8_t>(table.number_or_zero(Column::pools));
        break;
      case EventKind::free_requested:
      case EventKind::free:
        event.block = blocks - 1 - static_cast<std::uint32_t>(table.number(Column::freed));
        break;
      case EventKind::oom:
        event.bytes = table.number(Column::ooms);
        event.address = table.number(Column::ooms);
        event.site = static_cast<std::uint32_t>(table.number(Column::ooms));
        break;
      case EventKind::marker:
        break;
      default:
        event.bytes = table.number(Column::range_sizes);
        event.address = base + (range += table.difference(Column::range_addresses));
        event.stream = static_cast<std::uint16_t>(table.number(Column::range_streams));
    }
    events.push_back(event);
  }
  return events;
}

// What a table says of an event: of a free which block, of an allocation all.
TraceEvent as_told(const TraceEvent& event, const std::vector<std::uint32_t>& order) {
  TraceEvent told = event;
  switch (event.kind) {
    case EventKind::alloc:
      told.block = order[event.block];
      break;
    case EventKind::free_requested:
    case EventKind::free:
      told = {};
      told.kind = event.kind;
      told.time_us = event.time_us;
      told.block = order[event.block];
      break;
    case EventKind::oom:
      told.stream = 0;
      told.pool = 0;
      told.block = 0;
      break;
    case EventKind::marker:
      told = {};
      told.kind = event.kind;
      told.time_us = event.time_us;
      break;
    default:
      told.block = 0;
      told.pool = 0;
      told.site = 0;
  }
  return told;
}

std::vector<TraceEvent> all_as_told(const Trace& trace) {
  std::vector<std::uint32_t> order(trace.blocks);
  std::uint32_t blocks = 0;
  std::vector<TraceEvent> events;
  std::uint64_t time = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::alloc) order[event.block] = blocks++;
    events.push_back(as_told(event, order));
    if (event.time_us != 0) time = event.time_us;
    events.back().time_us = time;
  }
  return events;
}

TraceEvent event(EventKind kind, std::uint64_t address, std::uint64_t bytes,
                 std::uint32_t block = 0) {
  TraceEvent made;
  made.kind = kind;
  made.address = address;
  made.bytes = bytes;
  made.block = block;
  return made;
}

TEST(ViewData, HoldsEveryEventOfRealTraces) {
  for (const std::string& file : example_traces()) {
    for (const Trace& trace : load_traces(file)) {
      SCOPED_TRACE(file);
      const std::string bytes = page_table(trace, page_numbers(trace));
      Table table(bytes);
      EXPECT_EQ(events_of(table), all_as_told(trace));
    }
  }
}

TEST(ViewData, CountsAsTheOtherCommandsDo) {
  for (const std::string& file : example_traces()) {
    for (const Trace& trace : load_traces(file)) {
      SCOPED_TRACE(file);
      const PageNumbers numbers = page_numbers(trace);
      EXPECT_EQ(numbers.events, trace.events.size());
      EXPECT_EQ(numbers.peak_allocated_bytes, peak_live_bytes(trace));
      EXPECT_EQ(numbers.peak_requested_bytes, peak_live_bytes(trace, 1));
      if (trace.recorded_peak_reserved_bytes != 0) {
        EXPECT_EQ(numbers.peak_reserved_bytes, trace.recorded_peak_reserved_bytes);
      }
    }
  }
}

TEST(ViewData, NumbersThePeakFromTheFirstRecordedEvent) {
  Trace trace;
  trace.blocks = 3;
  trace.initial_events = 1;
  trace.events = {event(EventKind::alloc, 4096, 1, 0), event(EventKind::free, 4096, 1, 0),
                  event(EventKind::alloc, 4096, 513, 1)};
  EXPECT_EQ(page_numbers(trace).peak_allocated_bytes, 1024U);
  EXPECT_EQ(page_numbers(trace).peak_allocated_event, 2U);
  trace.events.pop_back();
  EXPECT_EQ(page_numbers(trace).peak_allocated_bytes, 512U);
  EXPECT_EQ(page_numbers(trace).peak_allocated_event, 0U);  // before the recording
}

TEST(ViewData, KeepsTheStacksThatSitesReach) {
  auto stacks = std::make_shared<CallStacks>();
  stacks->frames = {"", "train.py:80 <module>", "elsewhere.py:1 f", "torch/nn/linear.py:1 forward"};
  stacks->nodes = {{}, {0, 1}, {0, 2}, {1, 3}};
  Trace trace;
  trace.blocks = 1;
  trace.sites = {"", "train.py:80 <module>"};
  trace.site_stacks = {0, 3};
  trace.stacks = stacks;
  trace.events = {event(EventKind::alloc, 4096, 100, 0)};
  trace.events[0].site = 1;
  const std::string bytes = page_table(trace, page_numbers(trace));
  Table table(bytes);
  EXPECT_EQ(table.about["frames"], json({"train.py:80 <module>", "torch/nn/linear.py:1 forward"}));
  EXPECT_EQ(table.about["frame_kinds"].get<std::string>()[0], '0');  // the program's own
  EXPECT_EQ(table.number(PageColumn::node_parents), 1U);             // the outermost
  EXPECT_EQ(table.number(PageColumn::node_frames), 0U);
  EXPECT_EQ(table.number(PageColumn::node_parents), 1U);  // called from the one before
  EXPECT_EQ(table.number(PageColumn::node_frames), 1U);
  EXPECT_EQ(table.number(PageColumn::site_nodes), 0U);
  EXPECT_EQ(table.number(PageColumn::site_nodes), 2U);
}

TEST(ReservedRanges, UndoesSegmentEventsFromTheEnd) {
  Trace trace;
  trace.has_segments = true;
  trace.segments = {{10 * MiB, 4 * MiB, 0, 0, false, "large"}};
  trace.events = {event(EventKind::segment_free, 2 * MiB, 3 * MiB),
                  event(EventKind::segment_alloc, 10 * MiB, 4 * MiB)};
  EXPECT_EQ(reserved_at_start(trace), 3 * MiB);
  EXPECT_EQ(page_numbers(trace).peak_reserved_bytes, 4 * MiB);
  EXPECT_THAT(ranges_of(trace),
              ElementsAre(AddressRange{2 * MiB, 3 * MiB}, AddressRange{10 * MiB, 4 * MiB}));
}

TEST(ReservedRanges, AreNotKnownWhereEventsContradictSegments) {
  Trace trace;
  trace.has_segments = true;
  trace.events = {event(EventKind::segment_alloc, 10 * MiB, 4 * MiB)};
  EXPECT_EQ(reserved_at_start(trace), std::nullopt);
  EXPECT_EQ(page_numbers(trace).peak_reserved_bytes, std::nullopt);
}

TEST(ReservedRanges, BeginUnderTheRecordedPeak) {
  Trace trace;
  trace.events = {event(EventKind::segment_alloc, 1 * MiB, 1 * MiB),
                  event(EventKind::segment_free, 9 * MiB, 4 * MiB)};
  EXPECT_EQ(reserved_at_start(trace), std::nullopt);  // as much as nobody knows, and 3 MiB
  trace.recorded_peak_reserved_bytes = 8 * MiB;
  EXPECT_EQ(reserved_at_start(trace), 7 * MiB);
  EXPECT_EQ(page_numbers(trace).peak_reserved_bytes, 8 * MiB);
  trace.recorded_peak_reserved_bytes = 3 * MiB;  // 2 MiB and 1 are less than is given back
  EXPECT_EQ(reserved_at_start(trace), std::nullopt);
  trace.events.pop_back();
  trace.starts_empty = true;
  EXPECT_EQ(reserved_at_start(trace), 0U);
}

TEST(ReservedRanges, JoinWhereTheyTouch) {
  Trace trace;
  trace.has_segments = true;
  trace.events = {event(EventKind::segment_map, 4 * MiB, 2 * MiB),
                  event(EventKind::segment_map, 2 * MiB, 2 * MiB),
                  event(EventKind::segment_unmap, 3 * MiB, 1 * MiB),
                  event(EventKind::segment_map, 8 * MiB, 2 * MiB)};
  EXPECT_THAT(ranges_of(trace),
              ElementsAre(AddressRange{2 * MiB, 4 * MiB}, AddressRange{8 * MiB, 2 * MiB}));
}

TEST(ReservedRanges, JoinNearBlocksWhereSegmentsAreNotKnown) {
  Trace trace;
  trace.events = {event(EventKind::alloc, 4 * MiB, 100), event(EventKind::alloc, 5 * MiB, 100),
                  event(EventKind::alloc, 64 * MiB, 1 * MiB)};
  EXPECT_THAT(ranges_of(trace),
              ElementsAre(AddressRange{4 * MiB, MiB + 512}, AddressRange{64 * MiB, 1 * MiB}));
}

TEST(ReservedRanges, StayInsideTheAddressesThereAre) {
  Trace trace;
  trace.events = {event(EventKind::segment_map, UINT64_MAX - 10, kMostTraceBytes)};
  EXPECT_THAT(ranges_of(trace), ElementsAre(AddressRange{UINT64_MAX - 10, 10}));
  trace.events = {event(EventKind::alloc, 0, 100)};
  EXPECT_THAT(ranges_of(trace), IsEmpty());
}

TEST(Page, PacksSoThatBrowsersUnpackIt) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += static_cast<char>(i * i >> 3);
  const std::string packed = deflated(text);
  std::string unpacked(text.size(), '\0');
  uLongf bytes = unpacked.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(unpacked.data()), &bytes,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  EXPECT_EQ(bytes, text.size());
  EXPECT_EQ(unpacked, text);
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("M"), "TQ==");
  EXPECT_EQ(base64_of("Ma"), "TWE=");
  EXPECT_EQ(base64_of("Man"), "TWFu");
  EXPECT_EQ(base64_of("\xff\xfe\xfd"), "//79");
}

TEST(Page, LetsNothingOfATraceBeMarkup) {
  const std::string bad = "</script><img src=x onerror=alert(1)>{{DATA}}{{SCRIPT}}";
  Trace trace;
  trace.name = bad;
  trace.source = bad;
  trace.blocks = 1;
  trace.sites = {"", bad};
  trace.warnings = {bad};
  trace.events = {event(EventKind::alloc, 4096, 100, 0)};
  trace.events[0].site = 1;
  PageTrace of_trace = page_trace(trace);
  of_trace.findings = {bad};
  const std::string page = page_of({of_trace});
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x"));  // the title
  EXPECT_EQ(page.find("</title>"), page.rfind("</title>"));
  const std::string policy = "script-src 'nonce-";
  const std::string nonce = page.substr(page.find(policy) + policy.size(), 32);
  EXPECT_THAT(page, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page_of({page_trace(trace)}), Not(HasSubstr(nonce)));
}

}  // namespace
}  // namespace gapless::tools
