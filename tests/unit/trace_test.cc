#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/report/fragmentation.h"
#include "allocator/report/memory_state.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/snapshot.h"
#include "bench/replay/synthetic.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/pickle_writer.h"

namespace gapless {
namespace {

using gapless::testing::PickleWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const std::string& bytes) {
  try {
    const PickleDocument document(bytes, "bad.pickle");
    (void)read_snapshot(document);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// --- pickles -------------------------------------------------------------------------------------

TEST(Pickle, ReadsEveryKindOfPlainValue) {
  PickleWriter writer;
  writer.dict().mark();
  writer.text("none").none();
  writer.text("true").op(0x88);
  writer.text("byte").op('K').number(200, 1);
  writer.text("short").op('M').number(65535, 2);
  writer.text("int").op('J').number(static_cast<std::uint32_t>(-5), 4);
  writer.text("long").integer(-(std::int64_t{1} << 40));
  writer.text("empty_long").op(0x8a).number(0, 1);
  writer.text("unsigned").op(0x8a).number(9, 1).number(UINT64_MAX, 8).number(0, 1);
  writer.text("float").op('G').raw(std::string("\x3f\xf8\0\0\0\0\0\0", 8));
  writer.text("long text").op('X').number(3, 4).raw("abc");
  writer.text("bytes").op('C').number(2, 1).raw("xy");
  writer.text("tuple").op('K').number(1, 1).op('K').number(2, 1).op(0x86);
  writer.text("list").mark().none().none().op('l');
  writer.text("dict").mark().text("k").text("v").op('d');
  writer.set_items();
  const PickleDocument document(writer.stop(), "good.pickle");
  const PickleValue& root = document.root();
  EXPECT_TRUE(root.find("none")->is_none());
  EXPECT_EQ(root.find("true")->integer(), 1);
  EXPECT_EQ(root.find("byte")->integer(), 200);
  EXPECT_EQ(root.find("short")->integer(), 65535);
  EXPECT_EQ(root.find("int")->integer(), -5);
  EXPECT_EQ(root.find("long")->integer(), -(std::int64_t{1} << 40));
  EXPECT_EQ(root.find("empty_long")->integer(), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(root.find("unsigned")->integer()), UINT64_MAX);
  EXPECT_EQ(root.find("float")->real(), 1.5);
  EXPECT_EQ(root.find("long text")->text(), "abc");
  EXPECT_EQ(root.find("bytes")->kind(), PickleValue::Kind::bytes);
  EXPECT_EQ(root.find("tuple")->items().size(), 2U);
  EXPECT_EQ(root.find("list")->items().size(), 2U);
  EXPECT_EQ(root.find("dict")->find("k")->text(), "v");
  EXPECT_EQ(root.find("missing"), nullptr);
}

TEST(Pickle, MemoRefersToTheSameValue) {
  PickleWriter writer;
  writer.list().mark().text("x").op('q').number(3, 1).op('h').number(3, 1).op(0x94);
  writer.op('j').number(4, 4).appends();
  const PickleDocument document(writer.stop(), "memo.pickle");
  EXPECT_EQ(document.root().items().size(), 3U);
  EXPECT_EQ(document.root().items()[2].text(), "x");
}

TEST(Pickle, RefusesCode) {
  const std::pair<int, const char*> opcodes[] = {
      {'c', "GLOBAL"}, {'R', "REDUCE"}, {0x93, "STACK_GLOBAL"}, {0x81, "NEWOBJ"}, {'b', "BUILD"},
      {'i', "INST"},   {'o', "OBJ"},    {0x82, "EXT1"},         {'P', "PERSID"}};
  for (const auto& [op, name] : opcodes) {
    const std::string error = error_of(PickleWriter().op(op).stop());
    EXPECT_THAT(error, HasSubstr("bad.pickle: byte 2"));
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_THAT(error, HasSubstr("wants to run code"));
  }
}

TEST(Pickle, EveryPrefixOfAGoodFileIsAnError) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list();
  writer.list().mark().event("alloc", 4096, 512).event("free_completed", 4096, 512).appends();
  writer.append().set_items();
  const std::string good = writer.stop();
  EXPECT_EQ(error_of(good), "");
  for (std::size_t length = 1; length < good.size(); ++length) {
    EXPECT_THAT(error_of(good.substr(0, length)), HasSubstr("the file is cut off")) << length;
  }
  EXPECT_THAT(error_of(""), HasSubstr("the file is empty"));
}

TEST(Pickle, AFrameThatIsNotAllThereIsCutOff) {
  const std::string body = PickleWriter().dict().stop().substr(2);
  const std::string good = PickleWriter().op(0x95).number(body.size(), 8).raw(body).bytes();
  EXPECT_THAT(error_of(good), HasSubstr("\"segments\" is missing"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)),
              HasSubstr("byte 2: the file is cut off: a frame of 2 bytes, 1 left"));
}

TEST(Pickle, HugeLengthsAreRefused) {
  EXPECT_THAT(error_of(PickleWriter().op('X').number(0xffffffff, 4).stop()), HasSubstr("ends"));
  EXPECT_THAT(error_of(PickleWriter().op(0x8d).number(UINT64_MAX, 8).stop()),
              HasSubstr("a text of"));
  EXPECT_THAT(error_of(PickleWriter().op(0x8b).number(0x7fffffff, 4).stop()), HasSubstr("ends"));
  EXPECT_THAT(error_of(PickleWriter().op(0x95).number(UINT64_MAX, 8).stop()), HasSubstr("frame"));
  EXPECT_THAT(error_of(PickleWriter().none().op('r').number(0xfffffff0, 4).stop()),
              HasSubstr("memo number"));
  EXPECT_THAT(error_of(PickleWriter().op(0x8a).number(20, 1).raw(std::string(20, '\x11')).stop()),
              HasSubstr("64 bits"));
}

TEST(Pickle, BrokenStacksAreRefused) {
  for (const char* program :
       {".",  "0",    "1",     "2",    "a",    "e",  "s",   "u",  "t",    "l",    "d",
        "]a", "](e(", "(NNNd", "}(Nu", "}N(s", "Na", "NNs", "(.", "\x85", "\x87", "N\x86"}) {
    EXPECT_NE(error_of(PickleWriter().raw(program).stop()), "") << program;
  }
  EXPECT_THAT(error_of(PickleWriter().op('h').number(7, 1).stop()), HasSubstr("never set"));
  EXPECT_THAT(error_of(PickleWriter().op(0xfe).stop()), HasSubstr("0xfe"));
  EXPECT_THAT(error_of("\x80\x01."), HasSubstr("protocol 1"));
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
}

TEST(Pickle, DeepNestingCostsNoCallStack) {
  PickleWriter writer;
  constexpr int kDepth = 1000000;
  for (int i = 0; i < kDepth; ++i) writer.list();
  for (int i = 1; i < kDepth; ++i) writer.append();
  const PickleDocument document(writer.stop(), "deep.pickle");
  EXPECT_TRUE(document.root().is_list());
}

TEST(Pickle, CyclesAreNotFollowed) {
  PickleWriter writer;  // d = {}; d["segments"] = [d]
  writer.dict().op(0x94).mark().text("segments").list().op('h').number(0, 1).append().set_items();
  EXPECT_THAT(error_of(writer.stop()), HasSubstr("segments[0]: \"address\" is missing"));
  PickleWriter list;  // l = []; l.append(l)
  list.list().op(0x94).op('h').number(0, 1).append();
  EXPECT_THAT(error_of(list.stop()), HasSubstr("expected a dict"));
}

TEST(Pickle, RepeatedReferencesCannotMakeAReaderLargerThanItsFile) {
  // One segment with 1000 blocks, referred to 1000 times.
  PickleWriter writer;
  writer.dict().mark().text("segments").list().mark();
  writer.dict().mark().text("address").integer(4096).text("total_size").integer(512 * 1000);
  writer.text("blocks").list().mark();
  writer.block(512, "inactive").op(0x94);
  for (int i = 1; i < 1000; ++i) writer.op('h').number(0, 1);
  writer.appends().set_items().op(0x94);
  for (int i = 1; i < 1000; ++i) writer.op('h').number(1, 1);
  writer.appends().set_items();
  EXPECT_THAT(error_of(writer.stop()), HasSubstr("over and over"));
}

TEST(Pickle, RandomBytesNeverCrash) {
  std::mt19937 random(11);
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list();
  writer.list().mark().event("alloc", 4096, 512).event("free_completed", 4096, 512).appends();
  writer.append().set_items();
  const std::string good = writer.stop();
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    (void)error_of(bytes);
  }
}

// --- snapshots -----------------------------------------------------------------------------------

TEST(Snapshot, WrongShapesNameThePlace) {
  EXPECT_THAT(error_of(PickleWriter().none().stop()), HasSubstr("top level: expected a dict"));
  EXPECT_THAT(error_of(PickleWriter().dict().stop()), HasSubstr("\"segments\" is missing"));
  PickleWriter segments;
  segments.dict().mark().text("segments").integer(3).set_items();
  EXPECT_THAT(error_of(segments.stop()), HasSubstr("segments: expected a list, found int"));
  PickleWriter state;
  state.dict().mark().text("segments").list();
  state.dict().mark().text("address").integer(0).text("total_size").integer(512);
  state.text("blocks").list().block(512, "asleep").append().set_items().append().set_items();
  EXPECT_THAT(error_of(state.stop()), HasSubstr("segments[0].blocks[0]: unknown state \"asleep\""));
  PickleWriter large;
  large.dict().mark().text("segments").list();
  large.dict().mark().text("address").integer(0).text("total_size").integer(512);
  large.text("blocks").list().block(1024, "inactive").append().set_items().append().set_items();
  EXPECT_THAT(error_of(large.stop()), HasSubstr("larger than their segment"));
  PickleWriter event;
  event.dict().mark().text("segments").list().text("device_traces").list();
  event.list().dict().mark().text("action").text("alloc").text("addr").text("here").text("size");
  event.integer(5).set_items().append().append().set_items();
  EXPECT_THAT(error_of(event.stop()), HasSubstr("device_traces[0][0].addr: expected an int"));
}

// A window that starts mid-run: block A is freed though it was never allocated, block B is live at
// the end though no event speaks of it.
TEST(Snapshot, RebuildsWhatWasLiveBefore) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list();
  writer.dict().mark().text("address").integer(10000).text("total_size").integer(4096);
  writer.text("blocks").list().mark();
  writer.block(1024, "active_allocated").block(512, "active_pending_free");
  writer.block(2560, "inactive");
  writer.appends().set_items().append();
  writer.text("device_traces").list().list().mark();
  writer.event("free_requested", 20000, 700).event("free_completed", 20000, 700);
  writer.event("alloc", 11024, 500).event("free_requested", 11024, 500);
  writer.event("record_stream", 1, 1).event("snapshot", 0, 99);
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "mid.pickle");
  const Snapshot snapshot = read_snapshot(document);
  ASSERT_EQ(snapshot.traces.size(), 1U);
  const Trace& trace = snapshot.traces[0];
  check_trace(trace);
  EXPECT_EQ(trace.initial_events, 2U);
  EXPECT_EQ(trace.blocks, 3U);
  EXPECT_EQ(trace.events[0].kind, EventKind::alloc);
  EXPECT_EQ(trace.events[0].address, 10000U);  // by address
  EXPECT_EQ(trace.events[0].bytes, 1024U);
  EXPECT_EQ(trace.events[1].address, 20000U);
  EXPECT_EQ(trace.events[1].bytes, 700U);
  EXPECT_FALSE(trace.starts_empty);
  EXPECT_EQ(peak_live_bytes(trace), 1024U + 1024U);
  EXPECT_THAT(trace.warnings, IsEmpty());
}

TEST(Snapshot, LostFreesAreAssumedAndSaid) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list().list().mark();
  writer.event("alloc", 512, 100).event("alloc", 512, 200).event("free_completed", 512, 200);
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "lost.pickle");
  const Snapshot snapshot = read_snapshot(document);
  check_trace(snapshot.traces[0]);
  EXPECT_THAT(snapshot.traces[0].warnings, ElementsAre(HasSubstr("1 frees are missing")));
  const std::vector<TraceEvent>& events = snapshot.traces[0].events;
  ASSERT_EQ(events.size(), 4U);  // alloc 0, the free that was lost, alloc 1, free 1
  EXPECT_EQ(events[1].kind, EventKind::free);
  EXPECT_EQ(events[1].block, 0U);
  EXPECT_EQ(events[1].address, 512U);
  EXPECT_EQ(events[2].kind, EventKind::alloc);
  EXPECT_EQ(events[2].block, 1U);
  EXPECT_EQ(events[3].block, 1U);
}

TEST(Snapshot, AFreeRequestedTwiceIsOneRequest) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list().list().mark();
  writer.event("alloc", 512, 100).event("free_requested", 512, 100);
  writer.event("free_requested", 512, 100).event("free_completed", 512, 100);
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "twice.pickle");
  const Snapshot snapshot = read_snapshot(document);
  check_trace(snapshot.traces[0]);
  EXPECT_EQ(snapshot.traces[0].events.size(), 3U);
}

// The peak of what was reserved, found by walking back from the segments at the end: `events`
// after which so many bytes are reserved on devices 0 and 1.
Trace with_segments(const std::function<void(PickleWriter&)>& events, std::uint64_t at_end,
                    std::uint64_t elsewhere = 0) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list();
  for (const auto& [device, bytes] : {std::pair{0, at_end}, {1, elsewhere}}) {
    if (bytes == 0) continue;
    writer.dict().mark().text("device").integer(device).text("address").integer(bytes);
    writer.text("total_size").integer(static_cast<std::int64_t>(bytes));
    writer.text("blocks").list().block(bytes, "inactive").append().set_items().append();
  }
  writer.text("device_traces").list().list().mark();
  events(writer);
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "segments.pickle");
  return read_snapshot(document).traces.at(0);
}

TEST(Snapshot, TheRecordedPeakIsFoundBackwards) {
  const Trace plain = with_segments(
      [](PickleWriter& writer) {
        writer.event("segment_alloc", 0, 3000).event("segment_map", 4096, 2000);
        writer.event("segment_unmap", 4096, 1000).event("segment_free", 0, 3000);
        writer.event("segment_alloc", 0, 500);
      },
      1500, 70000);  // what another device has does not count
  EXPECT_EQ(plain.recorded_peak_reserved_bytes, 5000U);
  EXPECT_TRUE(plain.starts_empty);
  EXPECT_THAT(plain.warnings, IsEmpty());
  const Trace at_end =
      with_segments([](PickleWriter& writer) { writer.event("segment_alloc", 0, 3000); }, 3000);
  EXPECT_EQ(at_end.recorded_peak_reserved_bytes, 3000U);
  EXPECT_TRUE(at_end.starts_empty);
  const Trace not_empty =
      with_segments([](PickleWriter& writer) { writer.event("segment_free", 0, 700); }, 300);
  EXPECT_EQ(not_empty.recorded_peak_reserved_bytes, 1000U);
  EXPECT_FALSE(not_empty.starts_empty);
  const Trace live_before = with_segments(
      [](PickleWriter& writer) {
        writer.event("segment_alloc", 0, 3000).event("free_completed", 0, 700);
      },
      3000);
  EXPECT_FALSE(live_before.starts_empty);
}

TEST(Snapshot, SegmentsThatDoNotAgreeAreSaid) {
  for (const char* action : {"segment_alloc", "segment_map"}) {
    const Trace trace =
        with_segments([&](PickleWriter& writer) { writer.event(action, 0, 3000); }, 2999);
    EXPECT_THAT(trace.warnings, ElementsAre(HasSubstr("do not agree")));
    EXPECT_EQ(trace.recorded_peak_reserved_bytes, 0U);
    EXPECT_FALSE(trace.starts_empty);
  }
  const Trace huge = with_segments(
      [&](PickleWriter& writer) {
        for (int i = 0; i < 3; ++i) writer.event("segment_free", 0, std::uint64_t{1} << 50);
      },
      1);
  EXPECT_THAT(huge.warnings, ElementsAre(HasSubstr("do not agree")));
}

// An "oom" has no address: what it tells is what was free on the device.
TEST(Snapshot, KeepsRequestsThatFailed) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list().list().mark();
  writer.event("alloc", 512, 100);
  writer.dict().mark().text("action").text("oom").text("device_free").integer(4096);
  writer.text("size")
      .integer(1 << 20)
      .text("stream")
      .integer(0)
      .text("frames")
      .list()
      .dict()
      .mark();
  writer.text("filename").text("train.py").text("line").integer(8).text("name").text("main");
  writer.set_items().append().set_items();
  writer.appends().append().set_items();
  const PickleDocument document(writer.stop(), "oom.pickle");
  const Snapshot snapshot = read_snapshot(document);
  const Trace& trace = snapshot.traces.at(0);
  ASSERT_EQ(trace.events.size(), 2U);
  EXPECT_EQ(trace.events[1].kind, EventKind::oom);
  EXPECT_EQ(trace.events[1].bytes, 1U << 20);
  EXPECT_EQ(trace.events[1].address, 4096U);
  EXPECT_EQ(trace.sites.at(trace.events[1].site), "train.py:8 main");
}

TEST(Snapshot, AListOfSegmentsIsReadToo) {
  PickleWriter writer(2);
  writer.list().dict().mark().text("address").integer(0).text("total_size").integer(512);
  writer.text("segment_type").text("small").text("is_expandable").op(0x88);
  writer.text("segment_pool_id").integer(0).integer(1).op(0x86);
  writer.text("blocks").list().block(512, "inactive").append().set_items().append();
  const PickleDocument document(writer.stop(), "segments.pickle");
  const Snapshot snapshot = read_snapshot(document);
  ASSERT_EQ(snapshot.segments.size(), 1U);
  EXPECT_TRUE(snapshot.segments[0].expandable);
  EXPECT_EQ(snapshot.segments[0].pool, "(0, 1)");
}

// --- the compact format --------------------------------------------------------------------------

class Compact : public ::testing::Test {
 protected:
  Compact() {
    Trace first = bench::synthetic_trace("moe", {.steps = 12, .seed = 3});
    first.sites = {"", "train.py:7 forward"};
    first.events[5].site = 1;
    first.streams = {0, 0x5555};
    first.events[6].stream = 1;
    first.pools = {"default", "(0, 1)"};
    first.recorded_peak_reserved_bytes = 12345;
    first.warnings = {"careful"};
    Trace second = bench::synthetic_trace("serve", {.steps = 3});
    second.device = 4;
    traces = {first, second};
    bytes = write_compact(traces);
  }
  std::string error_of(const std::string& changed) {
    try {
      (void)read_compact(changed, "bad.gtrace");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::vector<Trace> traces;
  std::string bytes;
};

TEST_F(Compact, GivesBackWhatWasWritten) {
  const std::vector<Trace> read = read_compact(bytes, "good.gtrace");
  ASSERT_EQ(read.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read[i].events, traces[i].events);
    EXPECT_EQ(read[i].name, traces[i].name);
    EXPECT_EQ(read[i].source, traces[i].source);
    EXPECT_EQ(read[i].device, traces[i].device);
    EXPECT_EQ(read[i].blocks, traces[i].blocks);
    EXPECT_EQ(read[i].streams, traces[i].streams);
    EXPECT_EQ(read[i].pools, traces[i].pools);
    EXPECT_EQ(read[i].sites, traces[i].sites);
    EXPECT_EQ(read[i].initial_events, traces[i].initial_events);
    EXPECT_EQ(read[i].starts_empty, traces[i].starts_empty);
    EXPECT_EQ(read[i].warnings, traces[i].warnings);
    EXPECT_EQ(read[i].recorded_peak_reserved_bytes, traces[i].recorded_peak_reserved_bytes);
  }
  EXPECT_LT(bytes.size(), traces[0].events.size() * sizeof(TraceEvent) / 4);
}

TEST_F(Compact, CutFilesAreErrors) {
  for (std::size_t length = 0; length < bytes.size();
       length += length < 200 || length + 200 > bytes.size() ? 1 : 997) {
    EXPECT_THAT(error_of(bytes.substr(0, length)), HasSubstr("bad.gtrace")) << length;
  }
}

TEST_F(Compact, ChangedBytesAreFoundOrHarmless) {
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] ^= static_cast<char>(1 << random() % 8);
    if (error_of(changed).empty()) {  // a bit that means nothing to zstd
      EXPECT_EQ(read_compact(changed, "")[0].events, traces[0].events);
      EXPECT_EQ(read_compact(changed, "")[1].events, traces[1].events);
    }
  }
}

TEST_F(Compact, FreesOfDeadBlocksAreErrors) {
  traces[0].events[50].kind = EventKind::free;
  traces[0].events[50].block = 999999;
  EXPECT_THAT(error_of(write_compact(traces)), HasSubstr("event 50"));
}

TEST(Load, TellsFormatsApart) {
  const ScratchFolder folder;
  const std::string text = folder.file("note.txt");
  std::ofstream(text) << "hello";
  EXPECT_THROW(load_traces(text), InputError);
  EXPECT_THROW(load_traces(folder.path()), InputError);
  EXPECT_THROW(load_traces(folder.file("absent.pickle")), InputError);
  EXPECT_THROW(load_state(text), InputError);
  std::ofstream(text) << "{\"a\": 1}";
  EXPECT_THROW(load_state(text), InputError);
  PickleWriter writer;
  writer.dict().mark().text("segments").list().set_items();
  write_file(text, writer.stop());
  try {
    load_traces(text);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds no events"));
  }
  EXPECT_TRUE(load_snapshot(text).segments.empty());
  EXPECT_THROW(write_file("/no/such/folder/file", "x"), InputError);
}

// --- reports -------------------------------------------------------------------------------------

TEST(Fragmentation, AddsUpByPoolStreamAndSegment) {
  MemoryState state;
  StateSegment small;
  small.pool = "small";
  small.bytes = 2048;
  small.blocks = {{StateBlock::Kind::live, 0, 512, 500, 0, "a.py:1 f"},
                  {StateBlock::Kind::free, 512, 1536, 0, 0, ""}};
  StateSegment large;
  large.pool = "large";
  large.stream = 7;
  large.bytes = 10000;
  large.blocks = {{StateBlock::Kind::free, 10000, 1000, 0, 7, ""},
                  {StateBlock::Kind::pending, 11000, 4000, 4000, 7, ""},
                  {StateBlock::Kind::live, 15000, 2000, 1999, 7, ""},
                  {StateBlock::Kind::free, 17000, 3000, 0, 7, ""}};
  state.segments = {small, large};
  const Fragmentation found = analyze(state, 1);
  EXPECT_EQ(found.total.reserved_bytes, 12048U);
  EXPECT_EQ(found.total.active_bytes, 6512U);
  EXPECT_EQ(found.total.allocated_bytes, 2512U);
  EXPECT_EQ(found.total.requested_bytes, 2499U);
  EXPECT_EQ(found.total.internal_bytes(), 13U);
  EXPECT_EQ(found.total.free_bytes, 5536U);
  EXPECT_EQ(found.largest_request_bytes, 3000U);
  EXPECT_DOUBLE_EQ(found.total.external(), 1 - 3000.0 / 5536);
  ASSERT_EQ(found.pools.size(), 2U);
  EXPECT_EQ(found.pools[0].name, "large");
  EXPECT_EQ(found.pools[0].holes, 2U);
  ASSERT_EQ(found.streams.size(), 2U);
  EXPECT_EQ(found.streams[0].name, "stream 0x7");
  EXPECT_EQ(found.segments[0].free_bytes, 4000U);
  ASSERT_EQ(found.holes.size(), 3U);
  EXPECT_EQ(found.holes[0].from_bytes, 512U);
  EXPECT_EQ(found.holes[1].from_bytes, 1024U);
  EXPECT_EQ(found.holes[2].from_bytes, 2048U);
  ASSERT_EQ(found.biggest.size(), 1U);
  EXPECT_EQ(found.biggest[0].bytes, 4000U);
}

TEST(Fragmentation, PagesThatCanBeJoinedCount) {
  MemoryState state;
  state.joinable_free_bytes = 10 * MiB;
  StateSegment segment;
  segment.bytes = 6 * MiB;
  segment.blocks = {{StateBlock::Kind::free, 0, 6 * MiB, 0, 0, ""}};
  state.segments = {segment};
  EXPECT_EQ(analyze(state).largest_request_bytes, 10 * MiB);
}

}  // namespace
}  // namespace gapless
