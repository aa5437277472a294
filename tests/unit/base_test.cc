#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bitmap.h"
#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "allocator/base/json_text.h"
#include "allocator/base/nearest.h"
#include "allocator/base/read_budget.h"
#include "allocator/base/terminal_text.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

TEST(Bytes, RoundsUpAndDown) {
  EXPECT_EQ(div_up(0, 512), 0U);
  EXPECT_EQ(div_up(1, 512), 1U);
  EXPECT_EQ(div_up(UINT64_MAX, 2), UINT64_MAX / 2 + 1);  // no overflow on the way
  EXPECT_EQ(align_up(513, 512), 1024U);
  EXPECT_EQ(align_up(1024, 512), 1024U);
  EXPECT_EQ(align_down(1023, 512), 512U);
}

TEST(Bytes, PrintsAsPyTorchDoes) {
  EXPECT_EQ(format_bytes(512), "512 bytes");
  EXPECT_EQ(format_bytes(20 * KiB), "20.00 KiB");
  EXPECT_EQ(format_bytes(2ULL * 2048 * 151936 * 4), "2.32 GiB");
}

TEST(Bytes, ReadsSizes) {
  EXPECT_EQ(parse_bytes("20971520"), 20971520U);
  EXPECT_EQ(parse_bytes("16GiB"), 16 * GiB);
  EXPECT_EQ(parse_bytes("16 g"), 16 * GiB);
  EXPECT_EQ(parse_bytes("1.5M"), 3 * MiB / 2);
  EXPECT_EQ(parse_bytes("80 GB"), 80'000'000'000U);
  EXPECT_EQ(parse_bytes("3bytes"), 3U);
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "-1", "1.2.3G", "5 parsecs", "1e3", "99999999999G", "0x10"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Bytes, AsksBackWhereAUnitIsMissing) {
  std::string cause;
  EXPECT_EQ(read_bytes("16", cause), std::nullopt);
  EXPECT_EQ(cause, "that is 16 bytes; 16GiB? (16B if it is meant so)");
  EXPECT_EQ(read_bytes("81920", cause), std::nullopt);  // a card's memory in MiB
  EXPECT_EQ(cause, "that is 81920 bytes; 81920MiB? (81920B if it is meant so)");
  EXPECT_EQ(read_bytes(" 1 ", cause), std::nullopt);
  EXPECT_EQ(cause, "that is 1 byte; 1GiB? (1B if it is meant so)");
  EXPECT_EQ(read_bytes("huge", cause), std::nullopt);
  EXPECT_EQ(cause, "expected a size such as 2MiB or 14.5GiB");
  for (const auto& [text, bytes] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
           {"0", 0}, {"16B", 16}, {"16 bytes", 16}, {"64k", 64 * KiB}, {"1048576", MiB}}) {
    EXPECT_EQ(read_bytes(text, cause), bytes) << text;
  }
}

TEST(Nearest, IsWhatTakesTheFewestEdits) {
  const std::vector<std::string_view> known = {"run", "replay", "fit", "inspect", "options"};
  for (const auto& [typed, meant] : std::initializer_list<std::pair<const char*, const char*>>{
           {"replya", "replay"}, {"Inspct", "inspect"}, {"fti", "fit"}, {"option", "options"}}) {
    EXPECT_EQ(nearest(typed, known), meant);
  }
  EXPECT_EQ(nearest("replay", {}), "");
  EXPECT_EQ(nearest("help", known, 1), "");
  EXPECT_EQ(nearest("replai", known, 1), "replay");
}

TEST(TerminalText, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(terminal_text("plain \\ text"), "plain \\ text");
  EXPECT_EQ(terminal_text("gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x98\x80");
  EXPECT_EQ(terminal_text(std::string_view("\x1b[2J\a\b\n\r\t\0\x7f", 11)),
            R"(\x1b[2J\x07\x08\n\r\t\x00\x7f)");
  EXPECT_EQ(terminal_text("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\\u0080\\u009b\\u009f\xc2\xa0");
  // Overrides and isolates, marks, separators, the byte order mark, tags.
  EXPECT_EQ(terminal_text("\u202a\u202e\u2066\u2069\u200e\u200f\u061c\u2028\u2029\ufeff"),
            R"(\u202a\u202e\u2066\u2069\u200e\u200f\u061c\u2028\u2029\ufeff)");
  EXPECT_EQ(terminal_text("\U000e0041"), R"(\U000e0041)");
}

TEST(TerminalText, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(terminal_text("\xff\xfe"), R"(\xff\xfe)");
  EXPECT_EQ(terminal_text("a\x80z"), R"(a\x80z)");                      // a continuation of nothing
  EXPECT_EQ(terminal_text("\xc0\xaf"), R"(\xc0\xaf)");                  // overlong
  EXPECT_EQ(terminal_text("\xe0\x9b\x9b"), R"(\xe0\x9b\x9b)");          // overlong
  EXPECT_EQ(terminal_text("\xed\xa0\x80"), R"(\xed\xa0\x80)");          // a surrogate
  EXPECT_EQ(terminal_text("\xf4\x90\x80\x80"), R"(\xf4\x90\x80\x80)");  // beyond Unicode
  EXPECT_EQ(terminal_text("\xe4\xbd"), R"(\xe4\xbd)");                  // cut off
  EXPECT_EQ(terminal_text("\xe4\x1b["), R"(\xe4\x1b[)");
}

TEST(TerminalText, NeverLetsAnyByteThroughThatIsObeyed) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 32 : random());
    const std::string shown = terminal_text(bytes);
    for (const char c : shown) {
      const auto byte = static_cast<unsigned char>(c);
      ASSERT_TRUE(byte >= 0x20 && byte != 0x7f) << i;
    }
    ASSERT_EQ(terminal_text(shown), shown) << i;  // all of it is plain UTF-8 now
    ASSERT_EQ(json_text(shown), json_text(nlohmann::json(terminal_text(shown))));
  }
}

TEST(JsonText, IsAsciiAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(json_text({{"a\xff", "\x1b\x7f\xc2\x9b\xe2\x80\xae"}}),
            R"({"a\ufffd":"\u001b\u007f\u009b\u202e"})");
}

TEST(ReadBudget, CountsWhatIsHeldAndDone) {
  ReadBudget budget("file", 1000);
  const std::uint64_t most = 64 * 1000 + ReadBudget::kBytesAnyway - 1000;
  budget.hold(most, "here");
  const auto error_of = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of([&] { budget.hold(1, [] { return std::string("there"); }); }),
              HasSubstr("file: there: reading on would take 1 bytes"));
  budget.give_back(1);
  budget.hold(1, "here");
  EXPECT_NE(error_of([&] { budget.hold(UINT64_MAX, "here"); }), "");
  budget.work(64 * 1000 + ReadBudget::kStepsAnyway, "here");
  EXPECT_THAT(error_of([&] { budget.work(1, "here"); }), HasSubstr("file: here: reading takes"));
  ReadBudget small("file", 0);
  std::vector<std::uint64_t> list;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    small.make_room(list, 1, "here");
    list.push_back(i);
  }
  EXPECT_EQ(small.held_bytes(), ReadBudget::allocated(list.capacity() * sizeof list[0]));
  EXPECT_NE(error_of([&] { small.make_room(list, UINT64_MAX / 8, "here"); }), "");
}

TEST(Bitmap, AgreesWithVectorOfBool) {
  std::mt19937 random(7);
  for (const std::uint32_t size : {1U, 63U, 64U, 65U, 300U}) {
    Bitmap bits(size);
    std::vector<bool> model(size, false);
    for (int step = 0; step < 2000; ++step) {
      const std::uint32_t a = static_cast<std::uint32_t>(random()) % (size + 1);
      const std::uint32_t b = static_cast<std::uint32_t>(random()) % (size + 1);
      const std::uint32_t begin = std::min(a, b);
      const std::uint32_t end = std::max(a, b);
      const bool value = random() % 2 == 0;
      if (value) {
        bits.set_range(begin, end);
      } else {
        bits.clear_range(begin, end);
      }
      for (std::uint32_t i = begin; i < end; ++i) model[i] = value;
      ASSERT_EQ(bits.count(), std::count(model.begin(), model.end(), true));
      const auto first_place = model.begin() + std::min(begin, end / 2);
      ASSERT_EQ(bits.count_in(std::min(begin, end / 2), end),
                std::count(first_place, model.begin() + end, true));
      const std::uint32_t from = static_cast<std::uint32_t>(random()) % size;
      std::uint32_t set = from;
      while (set < size && !model[set]) ++set;
      ASSERT_EQ(bits.find_set(from), set == size ? Bitmap::npos : set);
      std::uint32_t clear = from;
      while (clear < size && model[clear]) ++clear;
      ASSERT_EQ(bits.find_clear(from), clear);
      if (model[from]) {
        std::uint32_t first = from;
        while (first > 0 && model[first - 1]) --first;
        ASSERT_EQ(bits.run_begin(from), first);
      }
    }
  }
}

TEST(Bitmap, ResizeKeepsBitsAndClearsNewOnes) {
  Bitmap bits(10);
  bits.set_range(0, 10);
  bits.resize(5);
  EXPECT_EQ(bits.count(), 5U);
  bits.resize(200);
  EXPECT_EQ(bits.count(), 5U);
  EXPECT_FALSE(bits.test(7));
  EXPECT_EQ(bits.find_set(5), Bitmap::npos);
}

}  // namespace
}  // namespace gapless
