#include "allocator/c_api.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/driver/forwarding_driver.h"
#include "allocator/gapless.h"
#include "allocator/report/memory_state.h"
#include "allocator/trace/load.h"
#include "simgpu/sim_driver.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CApi : public ::testing::Test {
 protected:
  CApi() {
    auto driver = std::make_unique<simgpu::SimDriver>(
        simgpu::SimOptions{.devices = {{.total_bytes = 64 * MiB}, {.total_bytes = 64 * MiB}}});
    EXPECT_EQ(create_over(std::move(driver), {}, &allocator), GAPLESS_OK);
  }
  gapless_allocator* allocator = nullptr;
};

TEST_F(CApi, AllocatesFreesAndCounts) {
  EXPECT_EQ(gapless_devices(allocator), 2);
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 1, 3 << 20, nullptr, &memory), GAPLESS_OK);
  ASSERT_NE(memory, nullptr);
  gapless_statistics statistics = GAPLESS_STATISTICS_INIT;
  ASSERT_EQ(gapless_stats(allocator, 1, &statistics), GAPLESS_OK);
  EXPECT_EQ(statistics.allocated_bytes.all.current, 3 << 20);
  EXPECT_EQ(statistics.reserved_bytes.all.current, 4 << 20);
  EXPECT_EQ(statistics.max_split_size, -1);
  EXPECT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_reset_peak_stats(allocator, 1), GAPLESS_OK);
  EXPECT_EQ(gapless_reset_accumulated_stats(allocator, 1), GAPLESS_OK);
  ASSERT_EQ(gapless_stats(allocator, 1, &statistics), GAPLESS_OK);
  EXPECT_EQ(statistics.allocated_bytes.all.peak, 0);
  EXPECT_EQ(gapless_trim(allocator, 1, 0), GAPLESS_OK);
  ASSERT_EQ(gapless_stats(allocator, 1, &statistics), GAPLESS_OK);
  EXPECT_EQ(statistics.reserved_bytes.all.current, 0);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, SharesBlocksWithOtherProcesses) {
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 1, 5 << 20, nullptr, &memory), GAPLESS_OK);
  std::size_t size = 0;
  EXPECT_EQ(gapless_share(allocator, memory, nullptr, &size), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("bytes"));
  EXPECT_EQ(gapless_unshare(allocator, memory), GAPLESS_INVALID_ARGUMENT);  // nothing was
  std::string message(size, ' ');
  ASSERT_EQ(gapless_share(allocator, memory, message.data(), &size), GAPLESS_OK);
  void* opened = nullptr;
  ASSERT_EQ(gapless_open(allocator, 1, message.data(), size, &opened), GAPLESS_OK)
      << gapless_last_error();
  EXPECT_NE(opened, memory);
  EXPECT_EQ(gapless_pin(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_close(allocator, memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_close(allocator, opened), GAPLESS_OK);
  EXPECT_EQ(gapless_unshare(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_unpin(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_unpin(allocator, memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_open(allocator, 1, "nothing", 7, &opened), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("no message about a block"));
  EXPECT_EQ(gapless_set_pool(allocator, 1, 0, 9, 1, 1), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, RefusesWithWordsAndChangesNothing) {
  void* memory = reinterpret_cast<void*>(7);
  EXPECT_EQ(gapless_alloc(allocator, 0, std::size_t{1} << 30, nullptr, &memory),
            GAPLESS_OUT_OF_MEMORY);
  EXPECT_EQ(memory, reinterpret_cast<void*>(7));
  EXPECT_THAT(gapless_last_error(), HasSubstr("1.00 GiB"));
  EXPECT_EQ(gapless_alloc(allocator, 5, 1, nullptr, &memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("no device 5; there are 2"));
  EXPECT_EQ(gapless_alloc(nullptr, 0, 1, nullptr, &memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_alloc(allocator, 0, 1, nullptr, nullptr), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_free(allocator, &memory), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_stats(allocator, 0, nullptr), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_dump(allocator, "/no/such/folder/dump.json"), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("/no/such/folder/dump.json"));
  EXPECT_EQ(gapless_free(allocator, nullptr), GAPLESS_OK);
  EXPECT_STREQ(gapless_last_error(), "");
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(nullptr), GAPLESS_OK);
}

TEST_F(CApi, WillNotDestroyUnderLiveBlocks) {
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 1, nullptr, &memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_STREQ(gapless_last_error(), "1 block is still live");
  EXPECT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, WillNotDestroyWhatOthersStillUse) {
  // A network card has registered the memory; another process has opened it, and this one
  // another's.
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 3 << 20, nullptr, &memory), GAPLESS_OK);
  ASSERT_EQ(gapless_pin(allocator, memory), GAPLESS_OK);
  std::size_t size = 1000;
  std::string message(size, ' ');
  ASSERT_EQ(gapless_share(allocator, memory, message.data(), &size), GAPLESS_OK);
  void* opened = nullptr;
  ASSERT_EQ(gapless_open(allocator, 0, message.data(), size, &opened), GAPLESS_OK);
  ASSERT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_STREQ(gapless_last_error(), "1 block is freed, but still pinned or shared");
  EXPECT_EQ(gapless_unpin(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_unshare(allocator, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_STREQ(gapless_last_error(), "1 block is another process's, and still open");
  EXPECT_EQ(gapless_close(allocator, opened), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, StatisticsMayGrow) {
  // A program that was compiled before fields were added, or after; or that did not say.
  struct Newer {
    gapless_statistics known;
    std::int64_t added[4];
  };
  Newer newer{};
  newer.known.size = sizeof newer;
  newer.added[0] = 42;
  EXPECT_EQ(gapless_stats(allocator, 0, &newer.known), GAPLESS_OK);
  EXPECT_EQ(newer.known.size, sizeof(gapless_statistics));
  EXPECT_EQ(newer.known.max_split_size, -1);
  EXPECT_EQ(newer.added[0], 42);
  gapless_statistics statistics{};
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof statistics - 1, SIZE_MAX}) {
    statistics.size = size;
    EXPECT_EQ(gapless_stats(allocator, 0, &statistics), GAPLESS_INVALID_ARGUMENT) << size;
    EXPECT_THAT(gapless_last_error(), HasSubstr("GAPLESS_STATISTICS_INIT"));
    EXPECT_EQ(statistics.max_split_size, 0);
  }
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, NegativeSizesAreExplained) {
  void* memory = nullptr;
  EXPECT_EQ(gapless_alloc(allocator, 0, static_cast<std::size_t>(-5), nullptr, &memory),
            GAPLESS_OUT_OF_MEMORY);
  std::string json(100000, ' ');
  std::size_t size = json.size();
  ASSERT_EQ(gapless_explain(allocator, 0, json.data(), &size), GAPLESS_OK);
  json.resize(size);
  EXPECT_THAT(json, HasSubstr("\"asked_bytes\": 18446744073709551611"));
  EXPECT_THAT(json, Not(HasSubstr("\"missing_bytes\": 0")));
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST(CApiCreate, SaysThatTheHostHasNoMemory) {
  struct Device {
    simgpu::SimDriver gpu{simgpu::SimOptions{.devices = {{.total_bytes = 64 * MiB}}}};
  };
  class NoHostMemory final : private Device, public ForwardingDriver {
   public:
    NoHostMemory() : ForwardingDriver(gpu) {}

   private:
    DriverStatus around(DriverCall kind, const Call& call) override {
      if (kind == DriverCall::mem_info) throw std::bad_alloc();
      return call();
    }
  };
  gapless_allocator* allocator = nullptr;
  auto driver = std::make_unique<NoHostMemory>();
  ASSERT_EQ(create_over(std::move(driver), read_options("limit:1MiB"), &allocator), GAPLESS_OK);
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 4 << 20, nullptr, &memory), GAPLESS_OUT_OF_MEMORY);
  std::size_t size = 0;
  EXPECT_EQ(gapless_explain(allocator, 0, nullptr, &size), GAPLESS_INTERNAL_ERROR);
  EXPECT_STREQ(gapless_last_error(), "no host memory");
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, PoolsAndStreams) {
  void* other = reinterpret_cast<void*>(16);  // a name is enough while nothing waits for it
  EXPECT_EQ(gapless_begin_pool(allocator, 0, 0, 7, nullptr, 0), GAPLESS_OK);
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 2 << 20, nullptr, &memory), GAPLESS_OK);
  EXPECT_EQ(gapless_record_stream(allocator, memory, nullptr), GAPLESS_OK);
  EXPECT_EQ(gapless_record_stream_of(allocator, memory, 0, nullptr), GAPLESS_OK);
  EXPECT_EQ(gapless_record_stream_of(allocator, memory, 9, nullptr), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("no such device"));
  EXPECT_EQ(gapless_record_stream(allocator, static_cast<char*>(memory) + 1, other),
            GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("no block begins"));
  EXPECT_EQ(gapless_end_pool(allocator, 0, 0, 7), GAPLESS_OK);
  EXPECT_EQ(gapless_sleep(allocator, 0, 0, 7, 0), GAPLESS_OK);
  EXPECT_EQ(gapless_sleep(allocator, 0, 0, 7, 0), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_wake(allocator, 0, 0, 7), GAPLESS_OK);
  EXPECT_EQ(gapless_wake(allocator, 0, 0, 8), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_end_pool(allocator, 0, 0, 7), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
  void* elsewhere = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 2 << 20, nullptr, &elsewhere), GAPLESS_OK);
  EXPECT_EQ(gapless_release_pool(allocator, 0, 0, 7), GAPLESS_OK);
  EXPECT_EQ(gapless_release_pool(allocator, 0, 0, 7), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_begin_pool(allocator, 9, 0, 7, nullptr, 1), GAPLESS_INVALID_ARGUMENT);
  EXPECT_EQ(gapless_free(allocator, elsewhere), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, LimitIsKept) {
  EXPECT_EQ(gapless_set_limit(allocator, 0, 4 << 20), GAPLESS_OK);
  void* memory = nullptr;
  EXPECT_EQ(gapless_alloc(allocator, 0, 5 << 20, nullptr, &memory), GAPLESS_OUT_OF_MEMORY);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, DumpIsReadBack) {
  void* a = nullptr;
  void* b = nullptr;
  ASSERT_EQ(gapless_alloc(allocator, 0, 3 << 20, nullptr, &a), GAPLESS_OK);
  ASSERT_EQ(gapless_alloc(allocator, 0, 1000, nullptr, &b), GAPLESS_OK);
  const ScratchFolder folder;
  const std::string path = folder.file("dump.json");
  ASSERT_EQ(gapless_dump(allocator, path.c_str()), GAPLESS_OK);
  const MemoryState state = load_state(path);
  EXPECT_EQ(state.source, "gapless dump");
  ASSERT_EQ(state.segments.size(), 1U);
  EXPECT_EQ(state.segments[0].bytes, 4U << 20);
  ASSERT_EQ(state.segments[0].blocks.size(), 3U);
  EXPECT_EQ(state.segments[0].blocks[1].requested_bytes, 1000U);
  gapless_free(allocator, a);
  gapless_free(allocator, b);
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST_F(CApi, IsThreadSafe) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 1; i <= 2000; ++i) {
        void* memory = nullptr;
        const int device = static_cast<int>(i + static_cast<std::size_t>(t)) % 2;
        ASSERT_EQ(gapless_alloc(allocator, device, i * 700, nullptr, &memory), GAPLESS_OK);
        ASSERT_EQ(gapless_free(allocator, memory), GAPLESS_OK);
        ASSERT_EQ(gapless_free(allocator, memory == nullptr ? memory : &memory),
                  GAPLESS_INVALID_ARGUMENT);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gapless_destroy(allocator), GAPLESS_OK);
}

TEST(CApiCreate, ExplainsWrongOptionsAndMissingDriver) {
  gapless_allocator* allocator = nullptr;
  EXPECT_EQ(gapless_create("pagesize:2MiB", &allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("page_size"));
  EXPECT_EQ(gapless_create(nullptr, nullptr), GAPLESS_INVALID_ARGUMENT);
  setenv("GAPLESS_CONF", "limit:14XiB", 1);
  EXPECT_EQ(gapless_create(nullptr, &allocator), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("GAPLESS_CONF: option limit: \"14XiB\": expected"));
  std::size_t size = 0;
  EXPECT_EQ(gapless_config(nullptr, &size), GAPLESS_INVALID_ARGUMENT);
  EXPECT_THAT(gapless_last_error(), HasSubstr("14XiB"));
  unsetenv("GAPLESS_CONF");
  const gapless_status status = gapless_create("page_size:2MiB", &allocator);
  if (status == GAPLESS_OK) {
    gapless_destroy(allocator);
  } else {
    EXPECT_EQ(status, GAPLESS_DRIVER_ERROR);
    EXPECT_THAT(gapless_last_error(), HasSubstr("CUDA"));
  }
  EXPECT_STREQ(gapless_status_text(GAPLESS_OUT_OF_MEMORY), "out of memory");
  EXPECT_STRNE(gapless_version(), "");
}

}  // namespace
}  // namespace gapless
