#include "tests/fuzz/write_everything.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/perfetto.h"
#include "allocator/trace/snapshot_writer.h"
#include "allocator/trace/speedscope.h"
#include "tests/fuzz/expect.h"
#include "tests/support/heap_peak.h"
#include "tools/view/page.h"

namespace gapless::testing {
namespace {

// What `write` gives, within a budget: a small file may hold much that is packed, so what was read
// counts as well.
template <class Write>
std::string written(const char* what, std::size_t size, const Write& write) {
  const testing::HeapPeak heap;
  std::string bytes = write();
  expect(heap.bytes() <= 64 * size + 64 * MiB, what);
  return bytes;
}

std::size_t length_at(std::string_view table, std::size_t at) {
  expect(at + 4 <= table.size(), "a page's table ends early");
  std::size_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= std::size_t{static_cast<unsigned char>(table[at + i])} << (8 * i);
  }
  return value;
}

// That the parts of a page's table fill it, and that what is told in words is JSON.
void check_table(std::string_view table) {
  const std::size_t about = length_at(table, 0);
  expect(nlohmann::json::accept(table.substr(4, about)), "a page's table is no JSON");
  std::size_t at = 4 + about;
  std::size_t columns = length_at(table, at);
  expect(columns == static_cast<std::size_t>(tools::PageColumn::count), "columns are missing");
  for (at += 4; columns > 0; --columns) at += 4 + length_at(table, at);
  expect(at == table.size(), "a page's table is longer than its columns");
}

void write_page(const std::vector<Trace>& traces, std::size_t size) {
  std::vector<tools::PageTrace> pages;
  for (const Trace& trace : traces) {
    if (trace.events.empty()) continue;  // gapless view shows no such device
    check_table(written("more memory than the budget for a table", size,
                        [&] { return tools::page_table(trace, tools::page_numbers(trace)); }));
    pages.push_back(tools::page_trace(trace));
    pages.back().findings = trace.warnings;
  }
  if (pages.empty()) return;
  const std::string page = written("more memory than the budget for a page", size,
                                   [&] { return tools::page_of(pages); });
  expect(page.ends_with("</html>\n"), "a page is not whole");
}

// What is no UTF-8 is not written as it is.
bool same_but_for_text(const TraceSegment& a, const TraceSegment& b) {
  return std::tie(a.address, a.bytes, a.stream, a.pool, a.expandable) ==
         std::tie(b.address, b.bytes, b.stream, b.pool, b.expandable);
}

void write_gtrace(const std::vector<Trace>& traces, std::size_t size) {
  const std::vector<Trace> again =
      read_compact(written("more memory than the budget for a gapless trace", size,
                           [&] { return write_compact(traces); }),
                   "again");
  expect(again.size() == traces.size(), "traces are lost");
  for (std::size_t i = 0; i < traces.size(); ++i) {
    expect(again[i].events == traces[i].events, "events changed");
    expect(std::equal(again[i].segments.begin(), again[i].segments.end(),
                      traces[i].segments.begin(), traces[i].segments.end(), same_but_for_text),
           "segments changed");
  }
}

void write_pickle(const std::vector<Trace>& traces, std::size_t size) {
  try {
    (void)snapshot_of(written("more memory than the budget for a snapshot", size,
                              [&] { return write_snapshot(traces).bytes; }),
                      "again");
  } catch (const InputError&) {  // two of one device, or segments that cannot be
  }
}

void write_json(const std::vector<Trace>& traces, std::size_t size) {
  for (const auto format : {&write_perfetto, &write_speedscope}) {
    expect(nlohmann::json::accept(written("more memory than the budget for JSON", size,
                                          [&] {
                                            std::string text;
                                            format(traces, [&text](std::string_view part) {
                                              text += part;
                                            });
                                            return text;
                                          })),
           "what should be JSON is none");
  }
}

void write_minimallocs(const std::vector<Trace>& traces, std::size_t size) {
  for (const Trace& trace : traces) {
    const std::string text = written("more memory than the budget for a CSV", size,
                                     [&] { return write_minimalloc(trace); });
    const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    const auto blocks = static_cast<std::size_t>(
        std::count_if(trace.events.begin(), trace.events.end(),
                      [](const TraceEvent& event) { return event.kind == EventKind::alloc; }));
    expect(lines == blocks + 1, "buffers are lost in a CSV");
  }
}

}  // namespace

void write_everything(const std::vector<Trace>& traces, std::size_t size) {
  std::size_t held = size;
  for (const Trace& trace : traces) held += trace.events.size() * sizeof(TraceEvent);
  write_page(traces, held);
  write_gtrace(traces, held);
  write_pickle(traces, held);
  write_json(traces, held);
  write_minimallocs(traces, held);
}

}  // namespace gapless::testing
