// What an answer for a bare size says of the cards that are sold with it.
#include "tools/cards_of_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string note_of(double used_gib, double total_gib, const json& changed = json::object()) {
  json row = {{"is_named", false},
              {"fits", true},
              {"total_bytes", static_cast<std::uint64_t>(total_gib * GiB)},
              {"peak_used_bytes", static_cast<std::uint64_t>(used_gib * GiB)}};
  row.update(changed);
  return smaller_cards_note(row);
}

TEST(CardsOfSize, ThoseThatHaveLessThanWasInUseAreNamed) {
  EXPECT_EQ(note_of(15.25, 16),
            "15.25 GiB were in use on a GPU of 16.00 GiB, and cards sold with that have less (T4 "
            "14.74 GiB): name the card (--gpu 'T4')");
  EXPECT_THAT(note_of(15.7, 16), HasSubstr("(T4 14.74 GiB, RTX 4080 15.60 GiB)"));
  EXPECT_THAT(note_of(23, 24), HasSubstr("(L4 22.03 GiB, A10G 22.07 GiB)"));
}

TEST(CardsOfSize, WhatFitsAllOfThemNeedsNoWord) {
  EXPECT_THAT(note_of(14.5, 16), IsEmpty());
  EXPECT_THAT(note_of(19.5, 19.58), IsEmpty());                      // of no card
  EXPECT_THAT(note_of(15.25, 16, {{"is_named", true}}), IsEmpty());  // T4:16GiB
  EXPECT_THAT(note_of(15.25, 16, {{"fits", false}}), IsEmpty());     // it is "no" anyway
  EXPECT_THAT(note_of(15.25, 16, {{"fits", nullptr}}), IsEmpty());
  EXPECT_THAT(note_of(14.8, 14.9), IsEmpty());
  EXPECT_THAT(note_of(15.25, 16), Not(IsEmpty()));
}

TEST(CardsOfSize, ThoseWithLessSharedMemoryThanAKernelHadAreNamed) {
  json row = {{"is_named", false},
              {"fits", true},
              {"total_bytes", 24 * GiB},
              {"shared_per_block_bytes", 128 * KiB}};
  EXPECT_EQ(
      shared_memory_note(row),
      "a kernel was launched with 128.00 KiB of shared memory a block, and L4, A10G, RTX 4090, "
      "RTX 3090 have less: there it fails, where the program does not choose another by the "
      "GPU; name the card (--gpu 'L4')");
  row["total_bytes"] = 20 * GiB;  // of no card that is known
  EXPECT_THAT(shared_memory_note(row),
              HasSubstr("and RTX 4090, RTX 3090, L4, A10G, 10 others have less"));
  row["total_bytes"] = 80 * GiB;  // A100, H100
  EXPECT_THAT(shared_memory_note(row), IsEmpty());
  row["total_bytes"] = 24 * GiB;
  row["shared_per_block_bytes"] = 99 * KiB;
  EXPECT_THAT(shared_memory_note(row), IsEmpty());
  row["shared_per_block_bytes"] = 128 * KiB;
  row["is_named"] = true;
  EXPECT_THAT(shared_memory_note(row), IsEmpty());
}

}  // namespace
}  // namespace gapless::tools
