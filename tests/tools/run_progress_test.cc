// What a run has come to, in one line of a terminal.
#include "tools/run_progress.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace gapless::tools
