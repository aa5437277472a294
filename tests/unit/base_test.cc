#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/bitmap.h"
#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/nearest.h"

namespace gapless {
namespace {

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

TEST(Mutex, LetsOneThreadInAtATime) {
  Mutex mutex;
  std::uint64_t count = 0;  // no atomic: ThreadSanitizer watches
  constexpr std::uint64_t kEach = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t k = 0; k < kEach; ++k) {
        const std::scoped_lock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 8 * kEach);
}

// The holder sleeps, so the others do too, and every one of them comes to its turn.
TEST(Mutex, WakesThoseWhoSleep) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  mutex.lock();
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const std::scoped_lock lock(mutex);
      ++count;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(count, 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace gapless
