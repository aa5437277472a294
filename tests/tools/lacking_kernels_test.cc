#include "tools/lacking_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gapless::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(LackingKernels, MachineCodeRunsOnNewerMinorsAndPtxOnAllThatIsNewer) {
  const json wheel = {"sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"};
  for (const int there : {75, 80, 86, 89, 90, 100, 103, 120, 121}) {
    EXPECT_TRUE(has_kernels(wheel, there)) << there;
  }
  for (const int lacking : {60, 70, 72, 110, 130})
    EXPECT_FALSE(has_kernels(wheel, lacking)) << lacking;
  EXPECT_TRUE(has_kernels({"sm_80", "compute_90"}, 100));
  EXPECT_FALSE(has_kernels({"sm_80", "compute_90"}, 75));
  EXPECT_TRUE(has_kernels({"sm_90a"}, 90));
  EXPECT_FALSE(has_kernels({"sm_100a"}, 103));
  EXPECT_TRUE(has_kernels({"sm_100f"}, 103));
  EXPECT_FALSE(has_kernels({"compute_100f"}, 120));
  EXPECT_TRUE(has_kernels(json(), 70));  // nobody told
}

TEST(LackingKernels, AreToldWhereItFits) {
  json row = {{"fits", true}, {"compute_capability", "7.0"}, {"built_for", {"sm_75", "sm_100"}}};
  EXPECT_THAT(lacking_kernels_note(row),
              HasSubstr("has kernels for compute capability 7.5, 10.0, and none for 7.0"));
  row["fits"] = false;
  EXPECT_EQ(lacking_kernels_note(row), "");
  row["fits"] = true;
  row["compute_capability"] = "7.5";
  EXPECT_EQ(lacking_kernels_note(row), "");
}

}  // namespace
}  // namespace gapless::tools
