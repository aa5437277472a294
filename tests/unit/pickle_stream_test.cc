// Snapshots whose events are read one by one are what they are when they are read as a whole: in
// pieces of any length, where values are shared, and where the pickle is written as no pickler
// does.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/error.h"
#include "allocator/trace/load.h"
#include "allocator/trace/pickle.h"
#include "tests/unit/pickle_writer.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;
using testing::PickleWriter;

// Bytes in pieces; from the second reading on others.
class Pieces final : public ByteSource {
 public:
  Pieces(std::string bytes, std::size_t length, std::string later = "")
      : bytes_(std::move(bytes)), later_(std::move(later)), length_(length) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] std::uint64_t held_bytes() const override { return length_; }
  std::string_view next() override {
    began_ = true;
    const std::string_view piece = std::string_view(bytes_).substr(at_, length_);
    at_ += piece.size();
    return piece;
  }
  void rewind() override {
    // The first bytes are looked at by whoever opens it, which is no reading.
    if (began_ && at_ > length_ && !later_.empty()) bytes_ = later_;
    at_ = 0;
  }
  std::string take_all() override { return bytes_; }
  void check_unchanged() const override {}

 private:
  std::string bytes_;
  std::string later_;
  std::size_t length_;
  std::size_t at_ = 0;
  bool began_ = false;
};

Snapshot read_whole(const std::string& bytes) {
  const PickleDocument document(bytes, "x.pickle");
  return read_snapshot(document);
}

// What is read, or the error, in words.
template <class Read>
std::string told(const Read& read) {
  try {
    std::string text;
    for (const Trace& trace : read().traces) {
      text += std::to_string(trace.device) + ": ";
      for (const TraceEvent& event : trace.events) {
        text += std::string(to_string(event.kind)) + " " + std::to_string(event.block) + " " +
                std::to_string(event.bytes) + " " + trace.sites.at(event.site) + ", ";
      }
    }
    return text;
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string expect_same(const std::string& bytes) {
  const std::string whole = told([&] { return read_whole(bytes); });
  for (const std::size_t length : {std::size_t{2}, std::size_t{7}, std::size_t{1} << 20}) {
    EXPECT_EQ(
        told([&] { return snapshot_of(std::make_unique<Pieces>(bytes, length), "x.pickle"); }),
        whole);
  }
  return whole;
}

// An event with a stack that is kept under a number, or with one that was kept before.
void put_event(PickleWriter& writer, const char* action, int address, int number, bool is_new) {
  writer.dict().mark().text("action").text(action).text("addr").integer(address);
  writer.text("size").integer(512).text("frames");
  if (is_new) {
    writer.list().op('q').number(static_cast<std::uint64_t>(number), 1);
    writer.dict().mark().text("filename").text("train.py").text("line").integer(number);
    writer.text("name").text("step").set_items().append();
  } else {
    writer.op('h').number(static_cast<std::uint64_t>(number), 1);
  }
  writer.set_items();
}

TEST(PickleStream, DevicesAndSharedStacksAreReadAsAWhole) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list().mark();
  writer.list().mark();
  put_event(writer, "alloc", 4096, 1, true);
  put_event(writer, "alloc", 8192, 2, true);
  writer.appends().mark();
  put_event(writer, "free_requested", 4096, 1, false);
  put_event(writer, "free_completed", 4096, 1, false);
  writer.appends().list().list();
  put_event(writer, "alloc", 4096, 2, false);
  writer.append().appends().text("later").none().set_items();
  const std::string told = expect_same(writer.stop());
  EXPECT_THAT(told, HasSubstr("0: alloc 0 512 train.py:1 step, alloc 1 512 train.py:2 step, "
                              "free_requested 0 512 train.py:1 step, free 0"));
  EXPECT_THAT(told, HasSubstr("2: alloc 0 512 train.py:2 step"));
}

TEST(PickleStream, EventsThatAreElsewhereAsWellAreReadAsAWhole) {
  const auto begin = [] {
    PickleWriter writer;
    writer.dict().mark().text("segments").list().text("device_traces").list().mark();
    writer.list().op('q').number(9, 1).mark();
    writer.event("alloc", 4096, 512).op('q').number(8, 1);
    return writer;
  };
  // The list of one device is another's as well.
  expect_same(begin().appends().op('h').number(9, 1).appends().set_items().stop());
  // An event twice; and one that is changed after it was put in.
  expect_same(begin().op('h').number(8, 1).appends().appends().set_items().stop());
  expect_same(begin()
                  .appends()
                  .appends()
                  .text("changed")
                  .op('h')
                  .number(8, 1)
                  .text("size")
                  .integer(1024)
                  .op('s')
                  .set_items()
                  .stop());
  // The key comes again, with other events.
  expect_same(begin()
                  .appends()
                  .appends()
                  .text("device_traces")
                  .list()
                  .list()
                  .event("alloc", 1, 2)
                  .append()
                  .append()
                  .set_items()
                  .stop());
  // The list is thrown away, or lies in a tuple.
  expect_same(begin().appends().op('0').appends().set_items().stop());
  expect_same(begin().appends().op(0x85).appends().set_items().stop());
  // The last event is no dict.
  EXPECT_THAT(expect_same(begin().none().appends().appends().set_items().stop()),
              HasSubstr("device_traces[0][1]: expected a dict, found None"));
}

// Frames 0 to 4 in the memo, the last under a number of four bytes.
int kept_frame(int frame) { return frame == 4 ? 200 : frame; }

PickleWriter& put_frame(PickleWriter& writer, int frame, int line) {
  writer.dict().op('r').number(static_cast<std::uint64_t>(kept_frame(frame)), 4);
  writer.mark().text("filename").text("train.py").text("line").integer(line);
  return writer.text("name").text("step").set_items();
}

PickleWriter& get_frame(PickleWriter& writer, int frame) {
  return frame == 4 ? writer.op('j').number(200, 4)
                    : writer.op('h').number(static_cast<std::uint64_t>(frame), 1);
}

// An event whose stack is so many frames from that one on, of 0 to 4 in turn, and whatever follows.
template <class Rest>
void put_deep_event(PickleWriter& writer, int address, int first, int frames, const Rest& rest) {
  writer.dict().mark().text("action").text("alloc").text("addr").integer(address);
  writer.text("size").integer(512).text("frames").list().mark();
  for (int i = 0; i < frames; ++i) get_frame(writer, (first + i) % 5);
  writer.appends();
  rest();
  writer.set_items();
}

TEST(PickleStream, StacksThatAreWrittenOutAgainAreThoseOfTheirOpcodes) {
  constexpr int kDeep = 20;
  const auto nothing = [] {};
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("frames").list().mark();
  for (int frame = 0; frame < 5; ++frame) put_frame(writer, frame, frame);
  writer.appends().text("device_traces").list().list().mark();
  for (int i = 0; i < 4; ++i) put_deep_event(writer, 4096 * (i + 1), i % 2, kDeep, nothing);
  // One that goes on, as a pickler lets a long list do, and one more that does not.
  put_deep_event(writer, 4096 * 5, 0, kDeep, [&] {
    get_frame(writer.mark(), 2).appends();
    get_frame(writer, 3).append();
  });
  put_deep_event(writer, 4096 * 6, 0, kDeep, nothing);
  // A number of the memo is another frame from here on.
  put_deep_event(writer, 4096 * 7, 0, kDeep, [&] {
    writer.text("between");
    put_frame(writer, 0, 77);
  });
  put_deep_event(writer, 4096 * 8, 0, kDeep, nothing);
  put_deep_event(writer, 4096 * 9, 0, kDeep, nothing);
  const std::string bytes = writer.appends().append().set_items().stop();
  expect_same(bytes);

  const Snapshot snapshot =
      snapshot_of(std::make_unique<Pieces>(bytes, std::size_t{1} << 20), "x.pickle");
  ASSERT_EQ(snapshot.traces.size(), 1);
  const Trace& trace = snapshot.traces[0];
  // The lines of an event's stack, the innermost first.
  const auto lines_of = [&](std::size_t event) {
    std::string lines;
    for (std::uint32_t at = trace.site_stacks.at(trace.events.at(event).site); at != 0;
         at = trace.stacks->nodes.at(at).parent) {
      const std::string& frame = trace.stacks->frames.at(trace.stacks->nodes.at(at).frame);
      lines += frame.substr(frame.find(':') + 1, frame.find(' ') - frame.find(':') - 1) + " ";
    }
    return lines;
  };
  const std::string from_0 = "0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 ";
  const std::string from_1 = "1 2 3 4 0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0 ";
  const std::string changed = "77 1 2 3 4 77 1 2 3 4 77 1 2 3 4 77 1 2 3 4 ";
  const std::vector<std::string> expected = {from_0, from_1, from_0,  from_1, from_0 + "2 3 ",
                                             from_0, from_0, changed, changed};
  ASSERT_EQ(trace.events.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(lines_of(i), expected[i]) << i;
}

TEST(PickleStream, AFileThatChangesIsAnError) {
  PickleWriter writer;
  writer.dict().mark().text("segments").list().text("device_traces").list().list().mark();
  for (int i = 0; i < 100; ++i) writer.event("alloc", 4096 * (i + 1ULL), 512);
  writer.appends().append().set_items();
  const std::string good = writer.stop();
  for (std::size_t at = 2; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = '.';
    const std::string error =
        told([&] { return snapshot_of(std::make_unique<Pieces>(good, 64, bad), "x.pickle"); });
    // A number or a letter may be another one; what is a pickle no more is told.
    if (error.find("changed") == std::string::npos) continue;
    EXPECT_THAT(error, HasSubstr("x.pickle: byte ")) << at;
    EXPECT_THAT(error, HasSubstr("the file changed while it was read")) << at;
  }
  std::string cut = good;
  cut[good.size() - 3] = '.';
  EXPECT_THAT(
      told([&] { return snapshot_of(std::make_unique<Pieces>(good, 64, cut), "x.pickle"); }),
      HasSubstr("the file changed while it was read"));
}

}  // namespace
}  // namespace gapless
