// The formats beside our own: what is read of them, what is written, and that what goes there and
// back is what it was.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/utf8.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/layout.h"
#include "allocator/trace/load.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/perfetto.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/rmm_log.h"
#include "allocator/trace/snapshot_writer.h"
#include "allocator/trace/speedscope.h"
#include "bench/replay/synthetic.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// The same events: what they number may be numbered otherwise.
void expect_same(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.events.size(), b.events.size());
  EXPECT_EQ(a.initial_events, b.initial_events);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.device, b.device);
  for (std::size_t i = 0; i < a.events.size(); ++i) {
    const TraceEvent& x = a.events[i];
    const TraceEvent& y = b.events[i];
    EXPECT_EQ(x.kind, y.kind) << i;
    EXPECT_EQ(x.block, y.block) << i;
    EXPECT_EQ(x.bytes, y.bytes) << i;
    EXPECT_EQ(x.address, y.address) << i;
    EXPECT_EQ(x.time_us, y.time_us) << i;
    EXPECT_EQ(a.streams[x.stream], b.streams[y.stream]) << i;
    EXPECT_EQ(a.pools[x.pool], b.pools[y.pool]) << i;
    EXPECT_EQ(a.sites[x.site], b.sites[y.site]) << i;
  }
  EXPECT_EQ(a.has_segments, b.has_segments);
  EXPECT_EQ(a.segments, b.segments);
  EXPECT_EQ(a.recorded_peak_reserved_bytes, b.recorded_peak_reserved_bytes);
  EXPECT_EQ(a.starts_empty, b.starts_empty);
}

Trace through_compact(const Trace& trace) {
  return read_compact(write_compact({trace}), "x.gtrace").at(0);
}
std::vector<Trace> through_snapshot(const std::vector<Trace>& traces) {
  return snapshot_of(write_snapshot(traces).bytes, "x.pickle").traces;
}

// --- RMM -----------------------------------------------------------------------------------------

const std::string kRmmHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

Trace rmm(const std::string& lines, const std::string& name = "log.csv") {
  return read_rmm_log(kRmmHeader + lines, name);
}
std::string rmm_error(const std::string& lines) {
  return error_of([&] { (void)rmm(lines); });
}

TEST(RmmLog, BecomesATrace) {
  const Trace trace =
      rmm("2342727,15:47:02.841961,allocate,0x10012400000,1048576,0\n"
          "2342731,15:47:02.841970,allocate,0x10012500000,100,0x5581aa\n"
          "2342727,15:47:02.841977,free,0x10012400000,1048576,0\n"
          "2342731,15:47:03.000001,allocate failure,(nil),99999999999,0x2\n"
          "2342731,15:47:03.000002,allocate,0x10012400000,200,0\n");
  EXPECT_EQ(trace.name, "log");
  EXPECT_EQ(trace.source, "RMM log");
  EXPECT_EQ(trace.blocks, 3U);
  ASSERT_EQ(trace.events.size(), 5U);
  EXPECT_EQ(trace.events[0].kind, EventKind::alloc);
  EXPECT_EQ(trace.events[0].bytes, 1048576U);
  EXPECT_EQ(trace.events[0].address, 0x10012400000U);
  EXPECT_EQ(trace.events[0].time_us, (15 * 3600 + 47 * 60 + 2) * 1000000ULL + 841961);
  EXPECT_EQ(trace.streams[trace.events[1].stream], 0x5581aaU);
  EXPECT_EQ(trace.events[2].kind, EventKind::free);
  EXPECT_EQ(trace.events[2].block, 0U);
  EXPECT_EQ(trace.events[3].kind, EventKind::oom);
  EXPECT_EQ(trace.events[3].bytes, 99999999999U);
  EXPECT_EQ(trace.events[4].block, 2U);
  EXPECT_THAT(trace.warnings, IsEmpty());
  expect_same(trace, through_compact(trace));
  expect_same(trace, through_snapshot({trace}).at(0));
}

TEST(RmmLog, OfAllVersions) {
  const Trace old =
      rmm("1,23:59:59:900000,allocate,0x10,8,0\r\n1,00:00:01:100000,free,0x10,8,0\r\n");
  EXPECT_EQ(old.events[1].time_us - old.events[0].time_us, 1200000U);  // midnight is between
  const Trace dated =
      rmm("1,1634567890.123456,allocate,0x10,8,0x0\n1,1634567890.5,deallocate,0x10,8,(nil)");
  EXPECT_EQ(dated.events[0].time_us, 1634567890123456U);
  EXPECT_EQ(dated.events[1].time_us, 1634567890500000U);
  EXPECT_EQ(dated.events[1].kind, EventKind::free);
  EXPECT_EQ(rmm("1,00:00:00.1,allocate failure,,8,0\n").events[0].kind, EventKind::oom);
  EXPECT_EQ(rmm("1,00:00:00.1,allocate failure,0x0,8,0\n").events[0].kind, EventKind::oom);
  // Nothing asked for, nothing given.
  EXPECT_THAT(rmm("1,0:0:0.1,allocate,(nil),0,0\n1,0:0:0.1,allocate,(nil),0,0\n").events,
              IsEmpty());
  EXPECT_EQ(rmm("", "log.dev3.csv").device, 3);
  EXPECT_EQ(rmm("", "log.csv.dev12").device, 12);
  EXPECT_EQ(rmm("", "log.dev999.csv").device, 0);
  EXPECT_TRUE(looks_like_rmm_log("\xef\xbb\xbf" + kRmmHeader));
  EXPECT_FALSE(looks_like_rmm_log("Thread,Time,Action"));
}

TEST(RmmLog, ThatBeginsInTheMiddle) {
  const Trace trace =
      rmm("1,00:00:01.0,free,0x900,64,0x2\n"
          "1,00:00:02.0,allocate,0x100,8,0\n"
          "1,00:00:03.0,allocate,0x100,16,0\n");
  EXPECT_EQ(trace.initial_events, 1U);
  EXPECT_EQ(trace.events[0].kind, EventKind::alloc);
  EXPECT_EQ(trace.events[0].bytes, 64U);
  EXPECT_EQ(trace.events[1].kind, EventKind::free);
  EXPECT_EQ(trace.events[3].kind, EventKind::free);
  EXPECT_THAT(trace.warnings, ElementsAre(HasSubstr("1 frees are missing")));
}

TEST(RmmLog, ErrorsNameTheLine) {
  const std::string good = "1,00:00:01.0,allocate,0x100,8,0\n";
  EXPECT_EQ(rmm_error(good + "1,00:00:01.0,allocate,0x1"),
            "log.csv: line 3: the file is cut off: 4 fields; 6 are expected");
  EXPECT_EQ(rmm_error(good + "\n1,2\n"), "log.csv: line 4: 2 fields; 6 are expected");
  EXPECT_THAT(rmm_error(good + "1,0:0:1.0,allocate,0x1,8,0,0\n"), HasSubstr("line 3: 7 fields"));
  EXPECT_THAT(rmm_error("1,00:00:01.0,allocate,0x1,1125899906842625,0\n"),
              HasSubstr("line 2: size \"1125899906842625\": expected a whole number from 0 to "));
  EXPECT_THAT(rmm_error("1,00:00:01.0,allocate,0x1,-8,0\n"), HasSubstr("line 2: size \"-8\""));
  EXPECT_THAT(rmm_error("1,00:00:01.0,allocate,here,8,0\n"), HasSubstr("line 2: pointer \"here\""));
  EXPECT_THAT(rmm_error("1,00:00:01.0,allocate,0x1,8,here\n"), HasSubstr("line 2: stream"));
  EXPECT_THAT(rmm_error("1,00:00:01.0,resize,0x1,8,0\n"), HasSubstr("unknown action \"resize\""));
  for (const char* time : {"", "noon", "25:00:00.0", "00:61:00.0", "00:00", "0:0:1.x", "1.x"}) {
    EXPECT_THAT(rmm_error("1," + std::string(time) + ",allocate,0x1,8,0\n"),
                HasSubstr("line 2: time"))
        << time;
  }
  EXPECT_THAT(rmm_error("1,00:00:01.0," + std::string(5000, 'x') + ",0x1,8,0\n"),
              HasSubstr("xxx...\""));
}

// --- minimalloc ----------------------------------------------------------------------------------

const std::string kBuffers =
    "id,lower,upper,size,offset\nb1,0,3,4,8\nb2,3,9,4,8\nb3,0,9,4,4\nb4,9,21,4,4\nb5,0,21,4,0\n";

Trace minimalloc(const std::string& text) { return read_minimalloc(text, "in.csv"); }
std::string minimalloc_error(const std::string& text) {
  return error_of([&] { (void)minimalloc(text); });
}

TEST(Minimalloc, BecomesATrace) {
  const Trace trace = minimalloc(kBuffers);
  EXPECT_EQ(trace.blocks, 5U);
  ASSERT_EQ(trace.events.size(), 10U);
  EXPECT_EQ(peak_live_bytes(trace, 1), 12U);
  std::vector<std::string> told;
  for (const TraceEvent& event : trace.events) {
    told.push_back(std::to_string(event.time_us) + " " + to_string(event.kind) + " " +
                   trace.sites[event.site] + " at " + std::to_string(event.address));
  }
  EXPECT_THAT(told,
              ElementsAre("0 alloc b1 at 8", "0 alloc b3 at 4", "0 alloc b5 at 0", "3 free b1 at 8",
                          "3 alloc b2 at 8", "9 free b2 at 8", "9 free b3 at 4", "9 alloc b4 at 4",
                          "21 free b4 at 4", "21 free b5 at 0"));
}

TEST(Minimalloc, ComesBackAsItWas) {
  EXPECT_EQ(write_minimalloc(minimalloc(kBuffers)), kBuffers);
  EXPECT_EQ(write_minimalloc(through_compact(minimalloc(kBuffers))), kBuffers);
  const std::string unsolved = "id,lower,upper,size\nx,10,30,7\na,0,1000000,0\n";
  EXPECT_EQ(write_minimalloc(through_compact(minimalloc(unsolved))), unsolved);
}

// Of a snapshot rows come in the order of their begins.
TEST(Minimalloc, ComesBackFromASnapshot) {
  const Trace trace = minimalloc(kBuffers);
  const Trace read = through_snapshot({trace}).at(0);
  EXPECT_EQ(read.source, trace.source);
  expect_same(trace, read);
  EXPECT_EQ(write_minimalloc(read),
            "id,lower,upper,size,offset\nb1,0,3,4,8\nb3,0,9,4,4\nb5,0,21,4,0\nb2,3,9,4,8\n"
            "b4,9,21,4,4\n");
}

TEST(Minimalloc, ColumnsAreFoundByName) {
  // "end" is the last time of a life.
  const Trace trace = minimalloc("size, alignment ,buffer_id,end,start\r\n4,1,b1,2,0\r\n");
  EXPECT_EQ(write_minimalloc(trace), "id,lower,upper,size\nb1,0,3,4\n");
  EXPECT_THAT(trace.warnings, IsEmpty());
  EXPECT_THAT(minimalloc("id,begin,upper,size,gaps\nb,0,3,4,1-2\n").warnings,
              ElementsAre(HasSubstr("gaps are left out")));
  EXPECT_THAT(minimalloc("id,begin,upper,size,alignment\nb,0,3,4,8\n").warnings,
              ElementsAre(HasSubstr("alignments")));
  EXPECT_FALSE(looks_like_minimalloc("id,lower,upper\n"));
  EXPECT_FALSE(looks_like_minimalloc("id,lower,lower,upper,size\n"));
  EXPECT_FALSE(looks_like_minimalloc(""));
  EXPECT_TRUE(looks_like_minimalloc("id,lower,upper,size"));
}

TEST(Minimalloc, ErrorsNameTheLine) {
  const std::string header = "id,lower,upper,size\n";
  EXPECT_EQ(minimalloc_error(header + "b,0,3"),
            "in.csv: line 2: the file is cut off: 3 fields; 4 are expected");
  EXPECT_THAT(minimalloc_error(header + "b,3,3,1\n"), HasSubstr("line 2: the buffer ends before"));
  EXPECT_THAT(minimalloc_error(header + "b,0,3,1125899906842625\n"), HasSubstr("line 2: size"));
  EXPECT_THAT(minimalloc_error(header + "b,x,3,1\n"), HasSubstr("line 2: begin \"x\""));
  EXPECT_THAT(minimalloc_error(header + "b,0,-3,1\n"), HasSubstr("line 2: end \"-3\""));
  EXPECT_THAT(minimalloc_error("id,lower,upper,size,offset\nb,0,3,1,x\n"), HasSubstr("offset"));
}

TEST(Minimalloc, IsWrittenOfAnyTrace) {
  Trace trace;
  trace.name = "run";
  trace.events = {{.kind = EventKind::alloc, .block = 0, .bytes = 100, .address = 512},
                  {.kind = EventKind::marker},
                  {.kind = EventKind::alloc, .block = 1, .bytes = 7, .address = 1024},
                  {.kind = EventKind::free_requested, .block = 0},
                  {.kind = EventKind::free, .block = 0}};
  trace.blocks = 3;  // the last of which is nobody's
  EXPECT_EQ(write_minimalloc(trace), "id,lower,upper,size,offset\nb0,0,4,100,512\nb1,2,5,7,1024\n");
  // Names may come from a file that only says it was one of these.
  trace.source = "minimalloc CSV";
  trace.sites = {"a,b\nc"};
  EXPECT_EQ(write_minimalloc(trace),
            "id,lower,upper,size,offset\na_b_c,0,1,100,512\na_b_c,0,5,7,1024\n");
}

// --- snapshots -----------------------------------------------------------------------------------

// A recording with segments, pools, streams, stacks, a pending block and one that lived before.
Trace recorded(DeviceIndex device = 0) {
  Trace trace;
  trace.name = "x";
  trace.source = "PyTorch snapshot";
  trace.device = device;
  trace.streams = {0, 7};
  trace.pools = {"default", "(0, 1)"};
  trace.sites = {"", "load.py:5 load", "train.py:41 step"};
  CallStacks stacks;
  stacks.frames = {"", "train.py:80 <module>", "load.py:5 load", "train.py:41 step",
                   "??:0 at::_ops::mm::call(at::Tensor const&)"};
  stacks.nodes = {{}, {0, 1}, {1, 2}, {1, 3}, {3, 4}};
  trace.stacks = std::make_shared<const CallStacks>(stacks);
  trace.site_stacks = {0, 2, 4};
  trace.blocks = 4;
  trace.initial_events = 1;
  const std::uint64_t base = std::uint64_t{0x7f} << 40;
  trace.events = {
      {EventKind::alloc, 0, 0, 3, 1000, base, 0, 1},
      {EventKind::segment_alloc, 1, 1, 0, 4 * MiB, base + 4 * MiB, 1700000000000001, 2},
      {EventKind::alloc, 1, 1, 0, 3 * MiB + 1, base + 4 * MiB, 1700000000000002, 2},
      {EventKind::free_requested, 1, 1, 0, 3 * MiB + 1, base + 4 * MiB, 1700000000000003, 0},
      {EventKind::alloc, 0, 0, 1, 5000, base + 1024, 1700000000000004, 2},
      {EventKind::oom, 0, 0, 0, 1 << 30, 4096, 1700000000000005, 2},
      {EventKind::free, 1, 1, 0, 3 * MiB + 1, base + 4 * MiB, 1700000000000006, 0},
      {EventKind::alloc, 1, 1, 2, 77, base + 4 * MiB, 1700000000000007, 1},
      {EventKind::free_requested, 1, 1, 2, 77, base + 4 * MiB, 1700000000000008, 0},
      {EventKind::marker, 0, 0, 0, 0, 0, 1700000000000009, 0},
  };
  trace.segments = {{base, 2 * MiB, 0, 0, true, "small"},
                    {base + 4 * MiB, 4 * MiB, 1, 1, false, "large"}};
  trace.has_segments = true;
  trace.recorded_peak_reserved_bytes = 6 * MiB;
  check_trace(trace);
  return trace;
}

TEST(SnapshotWriter, GivesBackARecording) {
  const std::vector<Trace> traces = {recorded(0), recorded(2)};
  const WrittenSnapshot written = write_snapshot(traces);
  EXPECT_THAT(written.added, IsEmpty());
  const Snapshot read = snapshot_of(written.bytes, "x.pickle");
  ASSERT_EQ(read.traces.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    expect_same(traces[i], read.traces[i]);
    for (std::size_t event = 0; event < traces[i].events.size(); ++event) {
      EXPECT_EQ(traces[i].frames_of(traces[i].events[event].site),
                read.traces[i].frames_of(read.traces[i].events[event].site));
    }
  }
  // And again through our own format.
  expect_same(traces[0], read_compact(write_compact(read.traces), "x").at(0));
}

TEST(SnapshotWriter, BlocksTileTheirSegments) {
  const Snapshot read = snapshot_of(write_snapshot({recorded()}).bytes, "x.pickle");
  ASSERT_EQ(read.segments.size(), 2U);
  std::vector<std::string> told;
  for (const SnapshotSegment& segment : read.segments) {
    std::uint64_t at = segment.address;
    for (const SnapshotBlock& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      EXPECT_LE(block.requested_bytes, block.bytes);
      at += block.bytes;
      told.push_back((block.allocated      ? "live "
                      : block.pending_free ? "pending "
                                           : "free ") +
                     std::to_string(block.requested_bytes) + " of " + std::to_string(block.bytes));
    }
    EXPECT_EQ(at, segment.address + segment.bytes);
  }
  EXPECT_THAT(told, ElementsAre("live 1000 of 1024", "live 5000 of 5120", "free 0 of 2091008",
                                "pending 77 of 512", "free 0 of 4193792"));
}

TEST(SnapshotWriter, LaysOutWhatWasNotRecorded) {
  const Trace trace = bench::synthetic_trace("moe", {.steps = 3, .seed = 3});
  const TraceLayout layout = lay_out(trace);
  EXPECT_TRUE(layout.addresses_added);
  std::map<std::uint64_t, std::uint64_t> live;
  for (const TraceEvent& event : trace.events) {
    const std::uint64_t address = layout.address_of(event);
    if (event.kind == EventKind::alloc) {
      const auto next = live.lower_bound(address);
      if (next != live.end()) {
        ASSERT_LE(address + event.bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->second, address);
      }
      live[address] = address + event.bytes;
      ASSERT_LE(address + event.bytes, TiB + layout.added.at(0).event.bytes);
    } else if (event.kind == EventKind::free) {
      ASSERT_EQ(live.erase(address), 1U);
    }
  }
  const WrittenSnapshot written = write_snapshot({trace});
  EXPECT_THAT(written.added, ElementsAre("gpu 0: segments and addresses"));
  expect_same(trace, snapshot_of(written.bytes, "x").traces.at(0));
}

TEST(SnapshotWriter, GivesBlocksWithoutASegmentTheirOwn) {
  Trace trace = recorded();
  trace.has_segments = false;
  trace.segments.clear();
  const TraceLayout layout = lay_out(trace);
  EXPECT_FALSE(layout.addresses_added);
  ASSERT_EQ(layout.added.size(), 1U);  // of block 1; that of block 3 was there before
  EXPECT_EQ(layout.added[0].at, 4U);
  EXPECT_EQ(layout.added[0].event.bytes, 5000U);
  std::vector<std::string> types;
  for (const auto& segment : layout.segments) types.push_back(segment.range.type);
  EXPECT_THAT(types, ElementsAre(kOneBlockSegment, kOneBlockSegment, "large"));
  const WrittenSnapshot written = write_snapshot({trace});
  EXPECT_THAT(written.added, ElementsAre("gpu 0: segments"));
  const Trace read = snapshot_of(written.bytes, "x").traces.at(0);
  expect_same(trace, read);
}

TEST(SnapshotWriter, WritesTextsAndNumbersThatPythonReads) {
  Trace trace;
  trace.name = "x";
  trace.streams = {0, UINT64_MAX, 1U << 31};
  trace.sites = {
      "",    "a\xff",     std::string(300, 'f') + ".py:12 g", "MmBackward0 (backward pass)",
      "f:0", "f.py:007 g"};
  for (std::uint32_t i = 0; i < 6; ++i) {
    trace.events.push_back({.kind = EventKind::alloc,
                            .stream = static_cast<std::uint16_t>(i % 3),
                            .block = i,
                            .bytes = std::uint64_t{1} << (8 * i),
                            .address = (i + 1) * 4 * TiB,
                            .site = i});
  }
  trace.blocks = 6;
  const Trace read = through_snapshot({trace}).at(0);
  trace.sites[1] = "a\xef\xbf\xbd";
  expect_same(trace, read);
  EXPECT_EQ(valid_utf8("\xc3\xa9\xed\xa0\x80\xf5"),
            "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(SnapshotWriter, FillsListsAThousandAtATime) {
  Trace trace;
  trace.name = "x";
  for (std::uint32_t i = 0; i < 5001; ++i) {
    trace.events.push_back(
        {.kind = EventKind::alloc, .block = i, .bytes = 512, .address = 512 * (i + 1)});
  }
  trace.blocks = 5001;
  const std::string bytes = write_snapshot({trace}).bytes;
  expect_same(trace, snapshot_of(bytes, "x").traces.at(0));
  EXPECT_GT(std::count(bytes.begin(), bytes.end(), 'e'), 10);
}

// A device that nothing was recorded of, but for what was there at the end.
TEST(SnapshotWriter, KeepsDevicesWithoutHistory) {
  Trace still = recorded(1);
  still.events.resize(2);
  still.blocks = 1;
  still.events[0].block = 0;
  still.events[1] = still.events[0];
  still.events[1].kind = EventKind::free_requested;
  still.initial_events = 2;
  const std::string bytes = write_snapshot({recorded(0), still}).bytes;
  EXPECT_EQ(snapshot_of(bytes, "x").traces.size(), 1U);
  const ScratchFolder folder;
  write_file(folder.file("x.pickle"), bytes);
  EXPECT_EQ(load_traces(folder.file("x.pickle")).size(), 1U);
  const std::vector<Trace> read = load_recording(folder.file("x.pickle"));
  ASSERT_EQ(read.size(), 2U);
  expect_same(still, read[1]);
  EXPECT_EQ(write_snapshot(read).bytes,
            write_snapshot({read[0], read_compact(write_compact(read), "x")[1]}).bytes);
}

TEST(SnapshotWriter, HoldsOneTraceOfADevice) {
  EXPECT_THAT(error_of([] {
                (void)write_snapshot({recorded(), recorded()});
              }),
              HasSubstr("two traces of device 0"));
}

// --- pictures ------------------------------------------------------------------------------------

json written(const std::function<void(const WriteBytes&)>& write) {
  std::string text;
  write([&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

TEST(Perfetto, HoldsCountersSlicesAndDriverCalls) {
  const json whole = written([](const WriteBytes& write) { write_perfetto({recorded()}, write); });
  EXPECT_EQ(whole["metadata"]["traces"][0]["times"], "microseconds");
  std::map<std::string, int> phases;
  json last_count;
  json first_count;
  std::set<std::uint64_t> open;
  for (const json& event : whole["traceEvents"]) {
    const std::string phase = event["ph"];
    ++phases[phase];
    EXPECT_TRUE(event.contains("pid") && event.contains("ts") && event.contains("name"));
    if (phase == "C" && first_count.is_null()) first_count = event;
    if (phase == "C") last_count = event;
    if (phase == "b") {
      EXPECT_TRUE(open.insert(event["id"].get<std::uint64_t>()).second);
    }
    if (phase == "e") {
      EXPECT_EQ(open.erase(event["id"].get<std::uint64_t>()), 1U);
    }
  }
  EXPECT_THAT(open, IsEmpty());
  EXPECT_EQ(phases["b"], 4);
  EXPECT_EQ(phases["i"], 3);  // segment_alloc, oom, snapshot
  EXPECT_EQ(phases["n"], 2);  // free_requested
  EXPECT_EQ(first_count["args"],
            json({{"requested", 1000}, {"allocated", 1024}, {"reserved", 2 * MiB}}));
  EXPECT_EQ(last_count["args"],
            json({{"requested", 6077}, {"allocated", 6656}, {"reserved", 6 * MiB}}));
  EXPECT_EQ(last_count["ts"], 1700000000000007);
}

TEST(Perfetto, SaysWhenThereAreNoTimesAndEscapesTexts) {
  Trace trace = bench::synthetic_trace("moe", {.steps = 1, .seed = 3});
  trace.sites[0] = "</script>\"\\\n\xff";
  trace.name = "\x01\xff\"";
  const json whole = written([&](const WriteBytes& write) { write_perfetto({trace}, write); });
  EXPECT_THAT(whole["metadata"]["traces"][0]["times"].get<std::string>(), HasSubstr("no times"));
  EXPECT_EQ(whole["traceEvents"].back()["ts"], trace.events.size() - 1);
  EXPECT_EQ(whole["metadata"]["traces"][0]["name"], "\x01\xef\xbf\xbd\"");
}

TEST(Perfetto, TakesTimesFromZeroOn) {
  const json whole =
      written([](const WriteBytes& write) { write_perfetto({minimalloc(kBuffers)}, write); });
  std::vector<std::uint64_t> begins;
  for (const json& event : whole["traceEvents"]) {
    if (event["ph"] == "b") begins.push_back(event["ts"]);
  }
  EXPECT_THAT(begins, ElementsAre(0, 0, 0, 3, 9));
  EXPECT_EQ(whole["metadata"]["traces"][0]["times"], "the recording's own");
}

TEST(Speedscope, HoldsThePeakByStack) {
  const json whole =
      written([](const WriteBytes& write) { write_speedscope({recorded()}, write); });
  const json& frames = whole["shared"]["frames"];
  ASSERT_EQ(whole["profiles"].size(), 2U);
  const json& peak = whole["profiles"][0];
  EXPECT_EQ(peak["type"], "sampled");
  EXPECT_EQ(peak["unit"], "bytes");
  EXPECT_EQ(peak["endValue"], peak_live_bytes(recorded()));
  ASSERT_EQ(peak["samples"].size(), 2U);
  EXPECT_THAT(peak["weights"], ElementsAre(3 * MiB + 512 + 5120, 1024));
  std::vector<std::string> names;
  for (const json& frame : peak["samples"][0])
    names.push_back(frames.at(frame.get<std::size_t>())["name"]);
  EXPECT_THAT(names, ElementsAre("train.py:80 <module>", "train.py:41 step",
                                 "??:0 at::_ops::mm::call(at::Tensor const&)"));
  EXPECT_EQ(whole["profiles"][1]["unit"], "none");
}

TEST(Speedscope, SaysWhatWasNotRecorded) {
  const Trace trace = bench::synthetic_trace("moe", {.steps = 2, .seed = 3});
  const json whole = written([&](const WriteBytes& write) { write_speedscope({trace}, write); });
  EXPECT_EQ(whole["profiles"][0]["endValue"], peak_live_bytes(trace));
  EXPECT_THAT(whole["profiles"][1]["name"].get<std::string>(), HasSubstr("no times"));
  EXPECT_FALSE(whole["profiles"][1]["weights"].empty());
}

// --- by content ----------------------------------------------------------------------------------

TEST(LoadFormats, ByWhatIsInTheFile) {
  const ScratchFolder folder;
  const auto sources = [&](const std::string& bytes) {
    const std::string file = folder.file("any.thing");
    write_file(file, bytes);
    std::vector<std::string> all;
    for (const Trace& trace : load_traces(file)) all.push_back(trace.source);
    return all;
  };
  EXPECT_THAT(sources(kBuffers), ElementsAre("minimalloc CSV"));
  EXPECT_THAT(sources(kRmmHeader + "1,0:0:1.0,allocate,0x1,8,0\n"), ElementsAre("RMM log"));
  EXPECT_THAT(sources(write_snapshot({recorded()}).bytes), ElementsAre("PyTorch snapshot"));
  for (const std::string& empty : {kRmmHeader, std::string("id,lower,upper,size\n")}) {
    EXPECT_THAT(error_of([&] { (void)sources(empty); }), HasSubstr("any.thing: holds no events"));
  }
}

TEST(WriteFile, PieceByPieceIsAllOrNothing) {
  const ScratchFolder folder;
  const std::string file = folder.file("pieces");
  write_file(file, [](const WriteBytes& write) {
    write("ab");
    write("c");
  });
  EXPECT_EQ(read_file(file), "abc");
  EXPECT_THROW(write_file(file,
                          [](const WriteBytes& write) {
                            write("x");
                            throw InputError("no more");
                          }),
               InputError);
  EXPECT_EQ(read_file(file), "abc");
  const auto left = std::distance(std::filesystem::directory_iterator(folder.path()), {});
  EXPECT_EQ(left, 1);
}

}  // namespace
}  // namespace gapless
