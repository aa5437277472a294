// The streamed format: what is written of lost events, and files that anybody may have changed.
#include "allocator/trace/streamed_format.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/error.h"
#include "allocator/report/moment.h"
#include "allocator/trace/streamed_writer.h"
#include "allocator/trace/zstd_frame.h"

namespace gapless {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StreamedWriter, KeepsATraceWholeWhereEventsWereLost) {
  std::string file;
  StreamedWriter writer([&](std::string_view bytes) { file += bytes; });
  writer.begin({{"run", "gapless", 0, {}}}, {{}});
  const auto event = [&](EventKind kind, std::uint64_t address, std::uint64_t bytes) {
    StreamedEvent one;
    one.kind = kind;
    one.address = address;
    one.bytes = bytes;
    one.pool_number = 7;
    writer.event(0, one);
  };
  event(EventKind::alloc, 0x1000, 512);
  writer.lost(0, 3);
  event(EventKind::alloc, 0x1000, 1024);  // its free was lost
  event(EventKind::free, 0x5000, 512);    // never seen
  event(EventKind::free, 0x1000, 1024);
  writer.end();
  const std::vector<Trace> traces = read_streamed(file, "lost");
  ASSERT_EQ(traces.size(), 1U);
  std::vector<std::pair<EventKind, std::uint64_t>> seen;
  for (const TraceEvent& one : traces[0].events) seen.emplace_back(one.kind, one.bytes);
  EXPECT_THAT(seen,
              ElementsAre(std::pair(EventKind::alloc, 512), std::pair(EventKind::free, 512),
                          std::pair(EventKind::alloc, 1024), std::pair(EventKind::free, 1024)));
  EXPECT_THAT(traces[0].warnings, ElementsAre(HasSubstr("3 events were lost")));
  EXPECT_EQ(traces[0].pools[traces[0].events[0].pool], "(0, 7)");
}

// A file with all that the format has.
std::string streamed_file() {
  std::string file;
  StreamedWriter writer([&](std::string_view bytes) { file += bytes; });
  TraceSegment mapped;
  mapped.address = 0x100000;
  mapped.bytes = 0x200000;
  StreamedEvent before;
  before.address = 0x100000;
  before.bytes = 4096;
  writer.begin({{"a", "gapless", 0, {mapped}}, {"b", "gapless", 1, {}}}, {{before}, {}});
  writer.add_stacks({"a.py:1 f", "a.py:2 g"}, {{0, 1}, {1, 2}});
  for (std::uint64_t i = 0; i < 50; ++i) {
    StreamedEvent event;
    event.kind = static_cast<EventKind>(i % 5 == 4 ? 5 : (i % 3 == 2 ? 2 : 0));
    event.address = 0x400000 + (i - i % 3) * 0x1000;
    event.bytes = 512 * (1 + i);
    event.stream = i % 4;
    event.pool_number = static_cast<std::uint32_t>(i % 2);
    event.time_us = i;
    event.stack = static_cast<std::uint32_t>(i % 3);
    writer.event(i % 2, event);
    if (i == 20) writer.flush();
  }
  writer.end();
  return file;
}

// The file with one byte of what is inside of a frame, or of a frame's header, changed.
std::string changed(const std::string& file, std::mt19937_64& random) {
  constexpr std::size_t kHeader = sizeof(StreamedFrameHeader);
  std::vector<std::pair<StreamedFrameHeader, std::string>> frames;
  for (std::size_t at = kStreamedMagic.size(); at < file.size();) {
    StreamedFrameHeader header;
    std::memcpy(&header, file.data() + at, kHeader);
    ReadBudget budget("file", file.size());
    frames.emplace_back(
        header, unpack_zstd_frame(std::string_view(file).substr(at + kHeader, header.bytes), budget,
                                  "frame"));
    at += kHeader + header.bytes;
  }
  auto& [header, raw] = frames[random() % frames.size()];
  if (random() % 8 == 0) header.kind = static_cast<StreamedFrame>(random() % 5);
  if (random() % 8 == 0) header.trace = static_cast<std::uint32_t>(random() % 4);
  constexpr std::string_view kLetters = "0123456789[]{},:\"-e.n";
  for (std::uint64_t i = random() % 4; i-- > 0 && !raw.empty();) {
    raw[random() % raw.size()] =
        random() % 2 == 0 ? kLetters[random() % kLetters.size()] : static_cast<char>(random());
  }
  if (random() % 10 == 0) raw.resize(raw.size() / 2);
  std::string out(kStreamedMagic);
  for (auto& [one, text] : frames) {
    const std::string packed = zstd_frame(text, 1);
    one.bytes = random() % 500 == 0 ? random() : packed.size();
    const std::size_t at = out.size();
    out.resize(at + kHeader);
    std::memcpy(out.data() + at, &one, kHeader);
    out += packed;
  }
  return out;
}

TEST(StreamedFormat, ChangedFilesAreReadOrRefused) {
  const std::string file = streamed_file();
  ASSERT_EQ(read_streamed(file, "whole").size(), 2U);
  std::mt19937_64 random(1);
  int refused = 0;
  int read = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string other = changed(file, random);
    try {
      for (const Trace& trace : read_streamed(other, "changed")) {
        check_trace(trace);
        if (trace.events.empty()) continue;
        const Moments moments = find_moments(trace);
        (void)state_at(trace, moments.peak);
      }
      ++read;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("changed"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
  EXPECT_GT(read, 150);
}

}  // namespace
}  // namespace gapless
