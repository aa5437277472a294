// LiveTable: addresses whose hashes agree in all bits that the table keeps.
#include "allocator/heap/live_table.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// What the table keeps of an address (LiveTable::tag_of).
std::uint32_t kept_bits_of(std::uint64_t unit) {
  return static_cast<std::uint32_t>((unit * 0x9E3779B97F4A7C15) >> 32);
}

// Two addresses of one tag, a distance apart by which the hash all but comes round.
std::pair<std::uint64_t, std::uint64_t> addresses_of_one_tag() {
  std::vector<std::uint64_t> fibonacci = {1, 2};
  while (fibonacci.back() < std::uint64_t{1} << 50) {
    fibonacci.push_back(fibonacci.back() + fibonacci.end()[-2]);
  }
  for (const std::uint64_t distance : fibonacci) {
    for (std::uint64_t unit = 1; unit < 64; ++unit) {
      if (kept_bits_of(unit) != kept_bits_of(unit + distance)) continue;
      return {unit * kUnitBytes, (unit + distance) * kUnitBytes};
    }
  }
  return {};
}

TEST(LiveTableTags, TellAddressesOfOneTagApart) {
  const auto [a, b] = addresses_of_one_tag();
  ASSERT_NE(a, 0U) << "the table hashes in another way now";
  const std::uint64_t addresses[] = {0, a, b, 512 * kUnitBytes};  // by block
  for (const bool b_first : {false, true}) {
    LiveTable table;
    const auto insert = [&](BlockId block) { table.insert(addresses[block], block); };
    insert(b_first ? 2 : 1);
    insert(b_first ? 1 : 2);
    insert(3);  // both are in the table now
    const auto find = [&](std::uint64_t address) {
      return table.find(address, [&](BlockId block) { return addresses[block] == address; });
    };
    const auto take = [&](std::uint64_t address) {
      return table.take(address, [&](BlockId block) { return addresses[block] == address; });
    };
    EXPECT_EQ(find(a), 1U);
    EXPECT_EQ(find(b), 2U);
    EXPECT_EQ(take(b), 2U);
    EXPECT_EQ(find(b), 0U);
    EXPECT_EQ(take(b), 0U);
    EXPECT_EQ(find(a), 1U);
    EXPECT_EQ(take(a), 1U);
    EXPECT_EQ(table.size(), 1U);
  }
}

}  // namespace
}  // namespace gapless
