// PyTorch's settings in the environment beside an allocator that was asked for.
#include "tools/torch_settings.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gapless::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TorchSettings, WhetherSegmentsExpandGoesByTheAllocator) {
  const char* const set = "max_split_size_mb:128,expandable_segments:True";
  EXPECT_EQ(torch_settings_for("native", set), "max_split_size_mb:128,expandable_segments:False");
  EXPECT_EQ(torch_settings_for("expandable", set), set);
  EXPECT_EQ(torch_settings_for("async", set), "backend:cudaMallocAsync");
  EXPECT_EQ(torch_settings_for("gapless", set), set);
  EXPECT_EQ(torch_settings_for("native", "backend:cudaMallocAsync"), "expandable_segments:False");
}

TEST(TorchSettings, TheOthersStay) {
  EXPECT_EQ(torch_settings_for("native", "max_split_size_mb:128"), "max_split_size_mb:128");
  EXPECT_EQ(torch_settings_for("expandable", "max_split_size_mb:128"),
            "max_split_size_mb:128,expandable_segments:True");
  EXPECT_EQ(
      torch_settings_for("expandable", "roundup_power2_divisions:[256:1,512:2], backend:native"),
      "roundup_power2_divisions:[256:1,512:2],expandable_segments:True");
  EXPECT_THAT(torch_settings_for("native", ""), IsEmpty());
  EXPECT_EQ(torch_settings_for("expandable", ""), "expandable_segments:True");
}

TEST(TorchSettings, TorchTakesTheOtherNameOnlyWhereTheOldOneIsNotSet) {
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
  EXPECT_THAT(torch_settings_set(), IsEmpty());
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
  EXPECT_EQ(torch_settings_set(), "expandable_segments:True");
  setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1);
  EXPECT_THAT(torch_settings_set(), IsEmpty());
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
}

TEST(TorchSettings, WhatIsLeftOutIsTold) {
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  ::testing::internal::CaptureStderr();
  leave_out_torch_settings("fits", {"gapless", "native", "expandable"});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("gapless fits: PYTORCH_NO_CUDA_MEMORY_CACHING is left out"));
  EXPECT_THAT(said, HasSubstr("gapless fits: with native, expandable_segments:True of "
                              "PYTORCH_ALLOC_CONF is left out"));
  EXPECT_EQ(std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING"), nullptr);
  ::testing::internal::CaptureStderr();
  leave_out_torch_settings("fits", {"gapless", "expandable"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
  unsetenv("PYTORCH_ALLOC_CONF");
}

TEST(TorchSettings, WhatTheProgramSetsItselfIsNoted) {
  nlohmann::json row = {{"allocator", "native"}, {"replaced_settings", nullptr}};
  EXPECT_THAT(replaced_settings_note(row), IsEmpty());
  row["replaced_settings"] = "expandable_segments:True";
  EXPECT_EQ(replaced_settings_note(row),
            "the program sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True itself: whether "
            "segments expand went by the allocator that was asked for (native)");
}

}  // namespace
}  // namespace gapless::tools
