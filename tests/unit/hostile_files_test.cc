// Files made to hurt: every reader answers with an error that names the place, within a budget of
// memory and time that is a multiple of the file's size (base/read_budget.h), or reads what there
// is within it.
#include <chrono>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "allocator/base/error.h"
#include "allocator/report/fragmentation.h"
#include "allocator/report/memory_state.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/load.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/pickle.h"
#include "allocator/trace/rmm_log.h"
#include "bench/replay/synthetic.h"
#include "tests/support/heap_peak.h"
#include "tests/support/opened_trace.h"
#include "tests/support/sanitizers.h"
#include "tests/unit/pickle_writer.h"

namespace gapless {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::HeapPeak;
using testing::OpenedTrace;
using testing::PickleWriter;
using ::testing::StartsWith;

#ifdef NDEBUG
constexpr bool kDebug = false;
#else
constexpr bool kDebug = true;
#endif
constexpr std::size_t kSlower =
    testing::kAddressSanitizer || testing::kThreadSanitizer || kDebug ? 20 : 1;

// What the reader says of those bytes; it must say so within the budget.
std::string error_within_budget(const std::string& bytes,
                                const std::function<void(const std::string&)>& read) {
  std::string error;
  const HeapPeak heap;
  const auto begin = std::chrono::steady_clock::now();
  try {
    read(bytes);
  } catch (const InputError& caught) {
    error = caught.what();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto size = static_cast<double>(bytes.size());
  EXPECT_LE(static_cast<double>(heap.bytes()), 64 * size + 64 * MiB) << error;
  EXPECT_LE(took.count(), (1 + size / 1e6) * static_cast<double>(kSlower)) << error;
  EXPECT_LT(error.size(), 1000U);
  return error;
}

std::string error_of_trace(const std::string& bytes) {
  return error_within_budget(
      bytes, [](const std::string& file) { (void)read_compact(file, "bad.gtrace"); });
}
std::string error_of_trace(const OpenedTrace& opened) { return error_of_trace(opened.close()); }

// As inspect reads it, which is the most that is made of a snapshot.
std::string error_of_snapshot(const std::string& bytes) {
  return error_within_budget(bytes, [](const std::string& file) {
    (void)analyze(state_of(snapshot_of(file, "bad.pickle")));
  });
}

std::string error_of_dump(const std::string& text) {
  return error_within_budget(
      text, [](const std::string& file) { (void)analyze(read_dump(file, "bad.json")); });
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string bytes_of(const std::vector<TraceEvent>& events) {
  return {reinterpret_cast<const char*>(events.data()), events.size() * sizeof(TraceEvent)};
}

// --- compact traces ------------------------------------------------------------------------------

class HostileTrace : public ::testing::Test {
 protected:
  HostileTrace() {
    Trace trace;
    trace.name = "small";
    trace.events = {{.kind = EventKind::alloc, .bytes = 512},
                    {.kind = EventKind::free, .bytes = 512}};
    trace.blocks = 1;
    opened = OpenedTrace::open(write_compact({trace}));
  }
  // The trace with one number of the header changed.
  std::string with_number(const std::string& key, const std::string& value) {
    OpenedTrace changed = opened;
    json header = json::parse(changed.header);
    header["devices"][0][key] = json::parse(value);
    changed.header = header.dump();
    return error_of_trace(changed);
  }
  std::string with_event(const TraceEvent& event) {
    OpenedTrace changed = opened;
    changed.frames = {bytes_of({event, {.kind = EventKind::marker}})};
    return error_of_trace(changed);
  }
  OpenedTrace opened;
};

TEST_F(HostileTrace, IsReadAsItWas) {
  EXPECT_EQ(error_of_trace(opened), "");
  EXPECT_EQ(OpenedTrace::of_text(opened.text()).close(), opened.close());
}

TEST_F(HostileTrace, DeepNestingIsAnError) {
  const std::string deep = repeated("[", 3000000) + repeated("]", 3000000);
  OpenedTrace changed = opened;
  changed.change_index("\"@0\"", deep);
  EXPECT_THAT(error_of_trace(changed), StartsWith("bad.gtrace: index: byte "));
  EXPECT_THAT(error_of_trace(changed), HasSubstr("nested more than 64 deep"));
  changed = opened;
  changed.change_header("\"format\":1", "\"format\":" + deep);
  EXPECT_THAT(error_of_trace(changed), HasSubstr("header: byte "));
}

TEST_F(HostileTrace, ALargeHeaderInASmallFileIsAnError) {
  for (const std::string& much :
       {"[" + repeated("[],", 20000000) + "0]", "[" + repeated("{},", 3000000) + "0]",
        "[" + repeated("0,", 5000000) + "0]", "[" + repeated("\"\",", 3000000) + "0]",
        "\"" + repeated("a", 40000000) + "\"", repeated("1", 40000000), repeated(" ", 150000000),
        "{" + repeated("\"a\":0,", 3000000) + "\"b\":0}", repeated("\"a", 20000000)}) {
    OpenedTrace changed = opened;
    changed.change_header("\"format\":1", "\"format\":1,\"x\":" + much);
    EXPECT_THAT(error_of_trace(changed), HasSubstr("out of proportion")) << much.substr(0, 10);
  }
}

TEST_F(HostileTrace, OneFrameOverAndOverIsAnError) {
  constexpr std::uint64_t kCount = 20000;
  constexpr std::uint64_t kEvents = 65536;
  const std::vector<TraceEvent> events(kEvents, {.kind = EventKind::marker});
  OpenedTrace changed = opened;
  changed.frames = {bytes_of(events)};
  json frames = json::array();
  for (std::uint64_t i = 0; i < kCount; ++i) {
    frames.push_back({{"offset", "@0"},
                      {"bytes", "#0"},
                      {"trace", 0},
                      {"first", i * kEvents},
                      {"events", kEvents}});
  }
  changed.index = json{{"frames", frames}}.dump();
  changed.change_header("\"events\":2", "\"events\":" + std::to_string(kCount * kEvents));
  EXPECT_THAT(error_of_trace(changed), HasSubstr("header.devices[0].events"));
  // The header says less than the frames hold.
  changed.change_header("\"events\":" + std::to_string(kCount * kEvents), "\"events\":65537");
  EXPECT_THAT(error_of_trace(changed), HasSubstr("index.frames[1].events: more than the header"));
}

TEST_F(HostileTrace, ManyDevicesAreAnError) {
  json header = json::parse(opened.header);
  const json device = header["devices"][0];
  for (int i = 0; i < 200; ++i) header["devices"].push_back(device);
  OpenedTrace changed = opened;
  changed.header = header.dump();
  EXPECT_THAT(error_of_trace(changed), HasSubstr("header.devices: holds 201 values; at most 128"));
}

TEST_F(HostileTrace, NumbersOutOfRangeAreErrors) {
  for (const char* device : {"-5", "128", "2147483647", "1e300", "1.5", "null", "[[]]"}) {
    EXPECT_THAT(with_number("device", device),
                HasSubstr("header.devices[0].device: expected a whole number from 0 to 127"));
  }
  EXPECT_THAT(with_number("initial_events", "3"), HasSubstr("initial_events: expected"));
  EXPECT_THAT(with_number("initial_events", "-1"), HasSubstr("initial_events: expected"));
  EXPECT_THAT(with_number("blocks", "3"), HasSubstr("blocks: expected a whole number"));
  EXPECT_THAT(with_number("events", "3"), HasSubstr("events are missing"));
  EXPECT_THAT(with_number("events", "18446744073709551615"), HasSubstr("out of proportion"));
  EXPECT_THAT(with_number("recorded_peak_reserved_bytes", "18446744073709551615"),
              HasSubstr("recorded_peak_reserved_bytes"));
  EXPECT_THAT(with_number("streams", "[-1]"), HasSubstr("streams: expected whole numbers"));
  EXPECT_THAT(with_number("pools", "[0]"), HasSubstr("pools: expected texts"));
  EXPECT_THAT(with_number("pools", json(std::vector<std::string>(257, "p")).dump()),
              HasSubstr("pools: holds 257 values"));
  EXPECT_THAT(with_number("streams", json(std::vector<int>(65537, 1)).dump()),
              HasSubstr("streams: holds 65537 values"));
  EXPECT_THAT(with_number("name", "5"), HasSubstr("name: expected a text"));
  EXPECT_THAT(with_number("starts_empty", "1"), HasSubstr("starts_empty: expected true or false"));
}

TEST_F(HostileTrace, StacksMustBeATreeOfWhatIsListed) {
  // The trace with stacks, of which one thing is wrong.
  const auto with = [&](const std::string& frames, const std::string& stacks,
                        const std::string& site_stacks) {
    OpenedTrace changed = opened;
    json header = json::parse(changed.header);
    header["frames"] = json::parse(frames);
    header["stacks"] = json::parse(stacks);
    header["devices"][0]["site_stacks"] = json::parse(site_stacks);
    changed.header = header.dump();
    return error_of_trace(changed);
  };
  const std::string frames = R"(["", "a.py:1 f"])";
  EXPECT_EQ(with(frames, "[0,0,0,1]", "[1]"), "");
  EXPECT_THAT(with(frames, "[0,0,1,1]", "[1]"),
              HasSubstr("header.stacks: a caller that comes later"));
  EXPECT_THAT(with(frames, "[0,0,2,1,0,1]", "[1]"), HasSubstr("a caller that comes later"));
  EXPECT_THAT(with(frames, "[0,0,0,2]", "[1]"), HasSubstr("a frame that is not listed"));
  EXPECT_THAT(with("[]", "[0,0]", "[0]"), HasSubstr("a frame that is not listed"));
  EXPECT_THAT(with(frames, "[0,0,0]", "[0]"), HasSubstr("header.stacks: expected pairs"));
  EXPECT_THAT(with(frames, "[]", "[0]"), HasSubstr("expected pairs"));
  EXPECT_THAT(with(frames, "[0,1]", "[0]"), HasSubstr("the first is no stack"));
  EXPECT_THAT(with(frames, "[0,0,-1,1]", "[0]"), HasSubstr("expected whole numbers"));
  EXPECT_THAT(with(frames, "[0,0,0,1.5]", "[0]"), HasSubstr("expected whole numbers"));
  EXPECT_THAT(with(frames, "{}", "[0]"), HasSubstr("header.stacks: expected a list"));
  EXPECT_THAT(with("[1]", "[0,0]", "[0]"), HasSubstr("header.frames: expected texts"));
  EXPECT_THAT(with(frames, "[0,0,0,1]", "[2]"),
              HasSubstr("site_stacks: a stack that is not listed"));
  EXPECT_THAT(with(frames, "[0,0,0,1]", "[4294967296]"), HasSubstr("site_stacks"));
  EXPECT_THAT(with(frames, "[0,0,0,1]", "[0,1]"), HasSubstr("not as many as there are call sites"));
  EXPECT_THAT(with(frames, "[0,0,0,1]", "[]"), HasSubstr("not as many as there are call sites"));
  EXPECT_THAT(with_number("site_stacks", "[0]"), HasSubstr("the header lists no stacks"));
  EXPECT_THAT(with(frames, "[0,0" + repeated(",0,1", 2000000) + "]", "[0]"),
              HasSubstr("out of proportion"));
}

TEST_F(HostileTrace, SegmentsMustBeWhatADeviceCanHave) {
  EXPECT_EQ(with_number("segments", R"([[512,1024,0,0,1,"small"]])"), "");
  for (const char* shape : {R"([[512,1024,0,0,1]])", R"([[512,1024,0,0,1,"small",0]])",
                            R"([[512,1024,0,0,1,2]])", "[{}]", "[5]"}) {
    EXPECT_THAT(with_number("segments", shape), HasSubstr("segments: expected lists of six"));
  }
  for (const char* number :
       {R"([[-512,1024,0,0,1,""]])", R"([[512,-1,0,0,1,""]])",
        R"([[512,1125899906842625,0,0,1,""]])", R"([[0,1,65536,0,1,""]])", R"([[0,1,0,256,1,""]])",
        R"([[0,1,0,0,2,""]])", R"([[0.5,1,0,0,1,""]])", R"([["0",1,0,0,1,""]])"}) {
    EXPECT_THAT(with_number("segments", number), HasSubstr("a number that is out of range"));
  }
  EXPECT_THAT(with_number("segments", R"([[0,1,1,0,1,""]])"),
              HasSubstr("segments: a stream or pool"));
  EXPECT_THAT(with_number("segments", R"([[0,1,0,1,1,""]])"),
              HasSubstr("segments: a stream or pool"));
  EXPECT_THAT(with_number("segments", R"([[0,1125899906842624,0,0,1,""],[0,1,0,0,1,""]])"),
              HasSubstr("more than 1 PiB in all"));
  EXPECT_THAT(with_number("segments", "5"), HasSubstr("segments: expected a list"));
}

TEST_F(HostileTrace, TheIndexMustAgreeWithTheFile) {
  const auto with = [&](std::string_view from, std::string_view to) {
    OpenedTrace changed = opened;
    changed.change_index(from, to);
    return error_of_trace(changed);
  };
  EXPECT_THAT(with("\"@0\"", "100000"), HasSubstr("points outside of the file"));
  EXPECT_THAT(with("\"@0\"", "18446744073709551615"), HasSubstr("points outside of the file"));
  EXPECT_THAT(with("\"#0\"", "18446744073709551615"), HasSubstr("points outside of the file"));
  EXPECT_THAT(with("\"@0\"", "0"), HasSubstr("not a zstd frame"));
  EXPECT_THAT(with("\"#0\"", "20"), HasSubstr("frame at byte "));
  EXPECT_THAT(with("\"first\":0", "\"first\":1"), HasSubstr("first: frames out of order"));
  EXPECT_THAT(with("\"trace\":0", "\"trace\":1"), HasSubstr("a frame of an unknown trace"));
  EXPECT_THAT(with("\"events\":2", "\"events\":1"), HasSubstr("does not hold the 1 events"));
  EXPECT_THAT(with("\"events\":2", "\"events\":65537"), HasSubstr("events: expected"));
  EXPECT_THAT(with("{\"frames\"", "{\"frame\""), HasSubstr("index.frames: is missing"));
  EXPECT_THAT(with("[{", "[3,{"), HasSubstr("index.frames[0]: expected an object"));
  OpenedTrace changed = opened;
  changed.index = "[]";
  EXPECT_THAT(error_of_trace(changed), HasSubstr("index: expected an object"));
  changed.index = "";
  EXPECT_THAT(error_of_trace(changed), HasSubstr("index: [json.exception.parse_error"));
}

TEST_F(HostileTrace, AFrameThatIsNotAsItSaysIsAnError) {
  std::string file = opened.close();
  const std::string frame = testing::zstd(opened.frames[0]);
  const std::size_t at = file.find(frame);
  ASSERT_NE(at, std::string::npos);
  constexpr std::size_t kContentSizeAt = 5;  // of a frame that is short enough: one byte
  for (const unsigned char size : {79, 81, 255}) {
    file[at + kContentSizeAt] = static_cast<char>(size);
    EXPECT_THAT(error_of_trace(file), HasSubstr("frame at byte " + std::to_string(at)));
  }
}

TEST_F(HostileTrace, EventsOutOfRangeAreErrors) {
  EXPECT_EQ(with_event({.kind = EventKind::alloc, .bytes = 1}), "");
  EXPECT_THAT(with_event({.kind = static_cast<EventKind>(9)}),
              HasSubstr("event 0 is of an unknown"));
  EXPECT_THAT(with_event({.kind = EventKind::alloc, .pool = 1}), HasSubstr("event 0: a pool"));
  EXPECT_THAT(with_event({.kind = EventKind::alloc, .stream = 1}), HasSubstr("event 0: a stream"));
  EXPECT_THAT(with_event({.kind = EventKind::marker, .site = 1}),
              HasSubstr("event 0: a call site"));
  EXPECT_THAT(with_event({.kind = EventKind::alloc, .block = 1}),
              HasSubstr("event 0: a block number"));
  EXPECT_THAT(with_event({.kind = EventKind::free}), HasSubstr("event 0: a block is freed"));
  for (const EventKind kind : {EventKind::alloc, EventKind::segment_alloc, EventKind::segment_free,
                               EventKind::segment_map, EventKind::segment_unmap}) {
    EXPECT_EQ(with_event({.kind = kind, .bytes = std::uint64_t{1} << 50}), "");
    EXPECT_THAT(with_event({.kind = kind, .bytes = (std::uint64_t{1} << 50) + 1}),
                HasSubstr("bad.gtrace: event 0: "));
  }
  EXPECT_EQ(with_event({.kind = EventKind::oom, .bytes = UINT64_MAX}), "");  // asked for, not had
}

TEST_F(HostileTrace, MoreThanAllMemoryLiveAtOnceIsAnError) {
  Trace trace;
  trace.blocks = 20000;
  for (std::uint32_t i = 0; i < trace.blocks; ++i) {
    trace.events.push_back({.block = i, .bytes = std::uint64_t{1} << 50});
  }
  EXPECT_THAT(error_of_trace(write_compact({trace})),
              HasSubstr("event 1: more than 1 PiB is live"));
}

// --- snapshots -----------------------------------------------------------------------------------

// {"segments": [], "device_traces": [[ ... ]]} around the events of one device.
std::string of_events(const std::string& events) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list();
  writer.list().mark().raw(events).appends().append().set_items();
  return writer.stop();
}
// The opcodes of a part of a pickle.
std::string part(const PickleWriter& writer) { return writer.bytes().substr(2); }

TEST(HostileSnapshot, ALargeDictLookedThroughOverAndOverIsAnError) {
  constexpr std::size_t kTimes = 250000;
  PickleWriter event;
  event.dict()
      .op(0x94)
      .mark()
      .text("action")
      .text("unknown")
      .raw(repeated("NN", kTimes))
      .set_items();
  const std::string again = repeated(std::string("h\0", 2), kTimes);
  const std::string error = error_of_snapshot(of_events(part(event) + again));
  EXPECT_THAT(error, HasSubstr("device_traces[0]["));
  EXPECT_THAT(error, HasSubstr("takes too long"));
}

TEST(HostileSnapshot, ALongNameInEverySiteIsAnError) {
  PickleWriter name;
  name.op('X').number(1 << 20, 4).raw(std::string((1 << 20) - 3, 'a') + ".py").op(0x94).op('0');
  std::string events = part(name);
  for (std::uint32_t i = 0; i < 20000; ++i) {
    PickleWriter event;
    event.dict().mark().text("action").text("alloc").text("addr").integer(512 * i);
    event.text("size").integer(512).text("frames").list().dict().mark();
    event.text("filename").op('h').number(0, 1).text("line").integer(i).set_items().append();
    events += part(event.set_items());
  }
  const std::string error = error_of_snapshot(of_events(events));
  EXPECT_THAT(error, HasSubstr("device_traces[0]["));
  EXPECT_THAT(error, HasSubstr("out of proportion"));
}

TEST(HostileSnapshot, OneLongSiteOverAndOverIsReadOnce) {
  PickleWriter frame;  // the same dict each time
  frame.dict().op(0x94).mark().text("filename");
  frame.op('X').number(1 << 20, 4).raw(std::string(1 << 20, 'a')).set_items().op('0');
  PickleWriter event;
  event.dict().op(0x94).mark().text("action").text("alloc").text("addr").integer(512);
  event.text("size").integer(512).text("frames").list().op('h').number(0, 1).append().set_items();
  EXPECT_EQ(error_of_snapshot(
                of_events(part(frame) + part(event) + repeated(std::string("h\x01", 2), 500000))),
            "");
}

// Segments that are one segment, with a list of blocks that are one block.
std::string of_segments(std::size_t segments, std::size_t blocks, std::string_view site) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().mark();
  writer.dict().mark().text("address").integer(4096);
  writer.text("total_size").integer(static_cast<std::int64_t>(512 * blocks));
  writer.text("blocks").list().mark().dict().mark().text("size").integer(512);
  writer.text("state").text("active_allocated").text("frames").list().dict().mark();
  writer.text("filename").op('X').number(site.size(), 4).raw(site).set_items().append();
  writer.set_items().op(0x94).raw(repeated(std::string("h\0", 2), blocks - 1)).appends();
  writer.set_items().op(0x94).raw(repeated(std::string("h\x01", 2), segments - 1));
  return writer.appends().set_items().stop();
}

TEST(HostileSnapshot, OneSegmentOverAndOverIsAnError) {
  EXPECT_EQ(error_of_snapshot(of_segments(10, 10, "train.py")), "");
  for (const auto& [segments, blocks] :
       {std::pair{1000, 1000}, {100000, 20}, {20, 100000}, {300000, 1}, {1, 300000}}) {
    const std::string error = error_of_snapshot(of_segments(
        static_cast<std::size_t>(segments), static_cast<std::size_t>(blocks), "train.py"));
    if (segments * blocks > 300000) {
      EXPECT_THAT(error, HasSubstr("bad.pickle: segments["));
    }
  }
  // Of a long site each block carries the end.
  EXPECT_EQ(error_of_snapshot(of_segments(100, 100, std::string(100000, 'a'))), "");
}

TEST(HostileSnapshot, AListOfEventsForEveryDeviceIsAnError) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().mark();
  writer.dict().op(0x94).mark().text("address").integer(0).text("total_size").integer(0);
  writer.text("blocks").list().set_items();
  writer.raw(repeated(std::string("h\0", 2), 20000)).appends();
  writer.text("device_traces").list().mark().list().op(0x94).mark();
  writer.event("snapshot", 0, 0).appends().raw(repeated(std::string("h\x01", 2), 200000));
  writer.appends().set_items();
  EXPECT_THAT(error_of_snapshot(writer.stop()), HasSubstr("device_traces: 200001 devices"));
}

TEST(HostileSnapshot, StacksOfAnyKindStayWithinTheBudget) {
  constexpr std::size_t kTimes = 3000000 / kSlower;
  for (const std::string one : {"]", "}", ")", "N", "(", ")\x85", "N\x94", "]\x94", "2", "K\x01",
                                "]Na", "(l", "\x8a\x01\x01", "\x8c\x01x"}) {
    (void)error_of_snapshot("\x80\x04N" + repeated(one, kTimes) + ".");
  }
}

TEST(HostileSnapshot, NumbersOutOfRangeAreErrors) {
  const auto event = [](std::string_view action, std::int64_t size) {
    return error_of_snapshot(
        of_events(part(PickleWriter().event(action, 512, static_cast<std::uint64_t>(size)))));
  };
  EXPECT_EQ(event("alloc", std::int64_t{1} << 50), "");
  EXPECT_THAT(event("alloc", -5), HasSubstr("device_traces[0][0].size: -5 bytes"));
  EXPECT_THAT(event("alloc", (std::int64_t{1} << 50) + 1), HasSubstr("no GPU has memory"));
  EXPECT_THAT(event("segment_alloc", -1), HasSubstr("device_traces[0][0].size"));
  EXPECT_EQ(event("oom", std::int64_t{1} << 62), "");
  const auto segment = [](const char* key, std::int64_t value) {
    PickleWriter writer;
    writer.list().dict().mark().text("address").integer(512).text("total_size").integer(512);
    writer.text("blocks").list().block(512, "inactive").append().text(key).integer(value);
    return error_of_snapshot(writer.set_items().append().stop());
  };
  EXPECT_EQ(segment("device", 127), "");
  EXPECT_THAT(segment("device", 128), HasSubstr("segments[0].device: device 128"));
  EXPECT_THAT(segment("device", -(std::int64_t{1} << 40)), HasSubstr("segments[0].device"));
  EXPECT_THAT(segment("total_size", INT64_MIN), HasSubstr("segments[0].total_size"));
  EXPECT_EQ(segment("address", -1), "");  // the end of the address space
  PickleWriter many;                      // whose sum would overflow
  many.list();
  for (int i = 0; i < 2; ++i) {
    many.dict().mark().text("address").integer(0).text("total_size").integer(std::int64_t{1} << 50);
    many.text("blocks").list().set_items().append();
  }
  EXPECT_THAT(error_of_snapshot(many.stop()), HasSubstr("segments[1].total_size"));
}

// --- dumps of gapless ----------------------------------------------------------------------------

std::string dump_of(const std::string& home, const std::string& window_blocks) {
  return R"({"gapless_dump":1,"devices":[{"device":0,"free_page_bytes":0,"page_bytes":2097152,)"
         R"("windows":0,"home":[)" +
         home + R"(],"window_blocks":[)" + window_blocks + "]}]}";
}
std::string block_of(const std::string& bytes) {
  return R"({"address":512,"stream":0,"kind":"hole","requested_bytes":1,"bytes":)" + bytes + "}";
}

TEST(HostileDump, DeepNestingIsAnError) {
  const std::string deep = repeated("[", 1000000) + repeated("]", 1000000);
  EXPECT_THAT(error_of_dump("{\"gapless_dump\":" + deep + "}"), HasSubstr("nested more than 64"));
  EXPECT_THAT(error_of_dump("{\"gapless_dump\":[[[1]]]}"),
              HasSubstr("gapless_dump: expected a whole number"));
  EXPECT_THAT(error_of_dump(repeated("{\"a\":", 1000000)), HasSubstr("nested more than 64"));
}

TEST(HostileDump, WrongShapesNameThePlace) {
  EXPECT_EQ(error_of_dump(dump_of(block_of("512"), block_of("512"))), "");
  EXPECT_THAT(error_of_dump(dump_of("3", "")), HasSubstr("devices[0].home[0]: expected an object"));
  EXPECT_THAT(error_of_dump(dump_of(block_of("-1"), "")), HasSubstr("devices[0].home[0].bytes"));
  EXPECT_THAT(error_of_dump(dump_of("", block_of("1e300"))), HasSubstr("window_blocks[0].bytes"));
  const std::string pib = block_of(std::to_string(std::uint64_t{1} << 50));
  EXPECT_EQ(error_of_dump(dump_of(pib, "")), "");
  EXPECT_THAT(error_of_dump(dump_of(pib, pib)), HasSubstr("more than 1 PiB in all"));
  EXPECT_THAT(error_of_dump("{\"a\":1}"), HasSubstr("not a gapless dump"));
  EXPECT_THAT(error_of_dump("{\"gapless_dump\":2}"), HasSubstr("dump format 2"));
  EXPECT_THAT(error_of_dump("{\"gapless_dump\":1}"), HasSubstr("devices: is missing"));
  EXPECT_THAT(error_of_dump("{"), HasSubstr("bad.json: top level: "));
}

TEST(HostileDump, ValuesOfAnyKindStayWithinTheBudget) {
  for (const std::string one : {"[]", "{}", "0", "\"\"", "{\"\":0}", "{\"a\":\"b\"}", "[0]"}) {
    (void)error_of_dump("{\"x\":[" + repeated(one + ",", 1000000 / kSlower) + "0]}");
  }
  (void)error_of_dump(dump_of("", repeated(block_of("1") + ",", 100000 / kSlower) + block_of("1")));
  (void)error_of_dump(dump_of(repeated(block_of("1") + ",", 100000 / kSlower) + block_of("1"), ""));
}

// --- CSV -----------------------------------------------------------------------------------------

TEST(HostileCsv, AnyLinesStayWithinTheBudget) {
  const auto error_of = [](const std::string& text) {
    return error_within_budget(
        text, [](const std::string& file) { (void)analyze(state_of(traces_of(file, "bad.csv"))); });
  };
  const std::string log = "Thread,Time,Action,Pointer,Size,Stream\n";
  std::string allocations = log;
  std::string frees = log;
  std::string streams = log;
  std::string buffers = "id,lower,upper,size\n";
  for (std::size_t i = 0; i < 200000 / kSlower; ++i) {
    const std::string number = std::to_string(i);
    allocations += ",0:0:0,allocate," + number + ",1,0\n";
    frees += ",0:0:0,free," + number + ",1,0\n";
    buffers += number + ",0,1,1\n";
  }
  for (std::size_t i = 0; i <= kMostStreams; ++i) {
    streams += ",0:0:0,allocate failure,,1," + std::to_string(i) + "\n";
  }
  EXPECT_EQ(error_of(allocations), "");
  EXPECT_EQ(error_of(frees), "");
  EXPECT_EQ(error_of(buffers), "");
  EXPECT_THAT(error_of(streams), HasSubstr("more than 65536 streams"));
  EXPECT_THAT(error_of(log + std::string(1000000, ',')), HasSubstr("65 fields; 6 are expected"));
  EXPECT_THAT(error_of(log + std::string(1000000, '\n')), HasSubstr("holds no events"));
  EXPECT_THAT(error_of(log + ",0:0:0,allocate,1,1125899906842624,0\n,0:0:0,allocate,2,1,0\n"),
              HasSubstr("more than 1 PiB is live at once"));
  EXPECT_THAT(error_of("id,lower,upper,size\n" + std::string(1000000, 'x')),
              HasSubstr("line 2: the file is cut off: 1 fields; 4 are expected"));
}

// --- real files ----------------------------------------------------------------------------------

TEST(RealFiles, StayFarBelowTheBudget) {
  for (const auto& entry : std::filesystem::directory_iterator(GAPLESS_TRACES)) {
    if (entry.path().extension() != ".gtrace") continue;
    const HeapPeak heap;
    const std::uint64_t size = std::filesystem::file_size(entry.path());
    EXPECT_FALSE(load_traces(entry.path().string()).empty());
    EXPECT_LT(heap.bytes(), 32 * size + MiB) << entry.path();
  }
  const HeapPeak heap;
  EXPECT_FALSE(load_state(GAPLESS_SNAPSHOT).segments.empty());
  EXPECT_LT(heap.bytes(), 32 * std::filesystem::file_size(GAPLESS_SNAPSHOT));
}

}  // namespace
}  // namespace gapless
