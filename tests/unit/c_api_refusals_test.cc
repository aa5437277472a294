// The C API where it refuses: nothing is written beyond a buffer, and nothing changes.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/c_api.h"
#include "allocator/gapless.h"
#include "simgpu/sim_driver.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

class CApiRefusals : public ::testing::Test {
 protected:
  CApiRefusals() {
    auto driver = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = 16 * MiB}}});
    EXPECT_EQ(create_over(std::move(driver), {}, &allocator), GAPLESS_OK);
  }
  ~CApiRefusals() override { EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK); }

  gapless_allocator* allocator = nullptr;
};

TEST_F(CApiRefusals, ABufferThatIsTooShortIsLeftAlone) {
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 5 << 20, nullptr, &memory), GAPLESS_OK);
  void* none = nullptr;
  EXPECT_EQ(gapless_alloc(allocator, 0, 15 << 20, nullptr, &none), GAPLESS_OUT_OF_MEMORY);
  using Ask = std::function<gapless_status(void*, size_t*)>;
  const std::vector<Ask> asks = {
      [&](void* buffer, size_t* size) { return gapless_share(allocator, memory, buffer, size); },
      [&](void* buffer, size_t* size) { return gapless_explain(allocator, 0, buffer, size); },
  };
  for (std::size_t i = 0; i < asks.size(); ++i) {
    SCOPED_TRACE(i);
    size_t needed = 0;
    EXPECT_EQ(asks[i](nullptr, &needed), GAPLESS_INVALID_ARGUMENT);
    ASSERT_GT(needed, 8U);
    for (const size_t given : {size_t{1}, needed - 1}) {
      std::string buffer(needed, 'x');
      size_t size = given;
      EXPECT_EQ(asks[i](buffer.data(), &size), GAPLESS_INVALID_ARGUMENT);
      EXPECT_THAT(gapless_last_error(), HasSubstr("there are " + std::to_string(needed)));
      EXPECT_EQ(size, needed);
      EXPECT_EQ(buffer, std::string(needed, 'x'));
    }
    std::string buffer(needed, 'x');
    EXPECT_EQ(asks[i](buffer.data(), &needed), GAPLESS_OK);
  }
  // A share that was not told is none.
  EXPECT_EQ(gapless_unshare(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_unshare(allocator, memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
}

// The pool has blocks that share pages, so that it cannot stop doing so; nor may others have its
// memory from then on.
TEST_F(CApiRefusals, ARefusedSetPoolChangesNothing) {
  void* small = nullptr;
  void* large = nullptr;
  ASSERT_EQ(gapless_begin_pool(allocator, 0, 0, 1, nullptr, 1), GAPLESS_OK);
  ASSERT_EQ(gapless_alloc(allocator, 0, 512, nullptr, &small), GAPLESS_OK);
  ASSERT_EQ(gapless_alloc(allocator, 0, 12 << 20, nullptr, &large), GAPLESS_OK);
  ASSERT_EQ(gapless_end_pool(allocator, 0, 0, 1), GAPLESS_OK);
  ASSERT_EQ(gapless_free(allocator, large), GAPLESS_OK);
  EXPECT_EQ(gapless_set_pool(allocator, 0, 0, 1, 1, 1), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_alloc(allocator, 0, 8 << 20, nullptr, &large), GAPLESS_OUT_OF_MEMORY);
  EXPECT_EQ(gapless_set_pool(allocator, 0, 0, 1, 1, 0), GAPLESS_OK);
  EXPECT_EQ(gapless_alloc(allocator, 0, 8 << 20, nullptr, &large), GAPLESS_OK);
  EXPECT_EQ(gapless_free(allocator, large), GAPLESS_OK);
  EXPECT_EQ(gapless_free(allocator, small), GAPLESS_OK);
  EXPECT_EQ(gapless_release_pool(allocator, 0, 0, 1), GAPLESS_OK);
}

}  // namespace
}  // namespace gapless
