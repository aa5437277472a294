// What a run has come to, in one line of a terminal.
#include "tools/run_progress.h"

#include <gtest/gtest.h>

#include "tools/progress.h"
#include "tools/text_width.h"

namespace gapless::tools {
namespace {

TEST(RunProgress, TheLineIsNeverBroken) {
  const std::string what = "gapless advise: the allocator's expandable segments";
  const std::string figures = "1 s, 0 steps, 426.00 MiB";
  EXPECT_EQ(status_line(what, figures, 0), what + ": " + figures + " in use at most");
  EXPECT_EQ(status_line(what, figures, 100), what + ": " + figures + " in use at most");
  EXPECT_EQ(status_line(what, figures, 80), what + ": " + figures);
  EXPECT_EQ(status_line(what, figures, 60), "gapless advise: the allocator's: " + figures);
  for (std::size_t columns = 2; columns < 120; ++columns) {
    EXPECT_LT(columns_of(status_line(what, figures, columns)), std::max<std::size_t>(columns, 3))
        << columns;
  }
}

TEST(Progress, TheBarIsNeverBroken) {
  const std::string what = "/data/runs/of/last/week/qwen-lora-varlen.pickle  native";
  EXPECT_EQ(progress_line("tiny  native", 0.5, 0),
            "tiny  native                             [############............]  50 %");
  EXPECT_EQ(progress_line("tiny  native", 0.5, 60),
            "tiny  native               [############............]  50 %");
  EXPECT_EQ(progress_line(what, 0.5, 60),
            "lora-varlen.pickle  native [############............]  50 %");
  EXPECT_EQ(progress_line(what, 0.5, 30), "a-varlen.pickle  native  50 %");
  for (std::size_t columns = 8; columns < 120; ++columns) {
    EXPECT_LT(columns_of(progress_line(what, 1, columns)), columns);
  }
}

}  // namespace
}  // namespace gapless::tools
