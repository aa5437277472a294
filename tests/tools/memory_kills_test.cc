// Whether this machine's memory had run out when a program was killed.
#include "tools/memory_kills.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace gapless::tools {
namespace {

TEST(MemoryKills, AreReadFromTheKernelsStatistics) {
  const ScratchFolder folder;
  const std::string file = folder.file("vmstat");
  std::ofstream(file) << "nr_free_pages 7\noom_kill 12\ndrop_pagecache 3\n";
  EXPECT_EQ(memory_kills(file), 12U);
  std::ofstream(file) << "nr_free_pages 7\n";
  EXPECT_EQ(memory_kills(file), 0U);
  EXPECT_EQ(memory_kills(folder.file("none")), 0U);
}

TEST(MemoryKills, AreCountedFromNowOn) { EXPECT_FALSE(MemoryKills().any()); }

}  // namespace
}  // namespace gapless::tools
