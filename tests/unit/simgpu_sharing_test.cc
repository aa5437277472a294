// Memory between processes, and ranks that meet in shared memory.
#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "simgpu/front/nccl/meeting.h"
#include "simgpu/front/nccl/reduction.h"
#include "simgpu/memory_model.h"
#include "simgpu/process/config.h"
#include "simgpu/process/shared_usage.h"
#include "simgpu/process/too_few_gpus.h"
#include "tests/support/scratch_folder.h"

namespace gapless::simgpu {
namespace {

using testing::HasSubstr;

MemoryModel model_of_one_device() {
  return MemoryModel({{.total_bytes = 16 * MiB, .granularity_bytes = 2 * MiB}});
}

TEST(SharedMemory, IsSeenByAnotherModelAndChargedOnce) {
  MemoryModel owner = model_of_one_device();
  MemoryModel other = model_of_one_device();
  std::string misuse;
  MemHandle mine = 0;
  ASSERT_EQ(owner.create(0, 4 * MiB, mine, misuse), DriverStatus::ok);
  const unsigned char before[] = {1, 2, 3};
  owner.write({mine, 1 * MiB, 3}, before);
  const auto contents = owner.share(mine);
  ASSERT_NE(contents, nullptr);
  EXPECT_EQ(owner.share(mine), contents);  // once shared, always the same

  MemHandle theirs = 0;
  ASSERT_EQ(other.import(SharedContents::open(contents->file()), theirs), DriverStatus::ok);
  EXPECT_EQ(other.device(0).used_bytes, 0U);
  unsigned char seen[3] = {};
  other.read({theirs, 1 * MiB, 3}, seen);
  EXPECT_EQ(std::memcmp(seen, before, 3), 0);
  const unsigned char after[] = {9};
  other.write({theirs, 1 * MiB, 1}, after);
  owner.read({mine, 1 * MiB, 3}, seen);
  EXPECT_EQ(seen[0], 9);
  EXPECT_EQ(seen[1], 2);

  owner.forget({mine, 0, 4 * MiB});
  other.read({theirs, 1 * MiB, 3}, seen);
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 0);
  ASSERT_EQ(other.release(theirs, misuse), DriverStatus::ok);
  EXPECT_EQ(owner.device(0).used_bytes, 4 * MiB);
  EXPECT_EQ(other.device(0).used_bytes, 0U);
}

TEST(SharedMemory, HasAddressesLikeAllocated) {
  MemoryModel owner = model_of_one_device();
  std::string misuse;
  DeviceAddress there = 0;
  ASSERT_EQ(owner.alloc(0, 2 * MiB, there, misuse), DriverStatus::ok);
  MemoryModel other = model_of_one_device();
  MemHandle handle = 0;
  ASSERT_EQ(other.import(owner.share(owner.plain_handle(there)), handle), DriverStatus::ok);
  const DeviceAddress here = other.place_import(handle);
  EXPECT_TRUE(other.resolve(here, 2 * MiB, 0, misuse));
  EXPECT_EQ(other.free(0, here, misuse), DriverStatus::ok);
  EXPECT_FALSE(other.resolve(here, 1, 0, misuse));
  EXPECT_EQ(other.device(0).used_bytes, 0U);
}

TEST(SharedMemory, RefusesWhatIsNoMemoryOfAGpu) {
  EXPECT_EQ(SharedContents::open(STDERR_FILENO), nullptr);
  EXPECT_EQ(SharedContents::open(-1), nullptr);
  MemoryModel model = model_of_one_device();
  MemHandle handle = 0;
  EXPECT_EQ(model.import(nullptr, handle), DriverStatus::invalid_value);
  // Of a device that is not here.
  EXPECT_EQ(model.import(SharedContents::make(3, 2 * MiB), handle), DriverStatus::invalid_value);
  EXPECT_EQ(model.share(12345), nullptr);
}

TEST(SharedUsage, CountsTheLivingOthers) {
  const ScratchFolder folder;
  const std::string file = folder.file("usage");
  SharedUsage mine(file);
  mine.publish(0, 5 * MiB);
  EXPECT_EQ(mine.of_others(0), 0U);
  int ready[2];
  int go[2];
  ASSERT_EQ(pipe(ready) + pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    SharedUsage theirs(file);
    theirs.publish(0, 3 * MiB);
    theirs.publish(1, 7 * MiB);
    const char seen = theirs.of_others(0) == 5 * MiB ? 'y' : 'n';
    (void)!write(ready[1], &seen, 1);
    char word = 0;
    (void)!read(go[0], &word, 1);
    _exit(0);
  }
  char seen = 0;
  ASSERT_EQ(read(ready[0], &seen, 1), 1);
  EXPECT_EQ(seen, 'y');
  EXPECT_EQ(mine.of_others(0), 3 * MiB);
  EXPECT_EQ(mine.of_others(1), 7 * MiB);
  EXPECT_EQ(mine.of_others(99), 0U);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(mine.of_others(0), 0U);  // it has ended
}

TEST(SharedUsage, WithoutAFileNothingIsShared) {
  SharedUsage none("");
  none.publish(0, 1);
  EXPECT_EQ(none.of_others(0), 0U);
  SharedUsage nowhere("/no/such/folder/usage");
  nowhere.publish(0, 1);
  EXPECT_EQ(nowhere.of_others(0), 0U);
}

TEST(VisibleDevices, AreTakenAsTheDriverTakesThem) {
  using Devices = std::vector<int>;
  EXPECT_EQ(visible_devices("0,1,2", 3), (Devices{0, 1, 2}));
  EXPECT_EQ(visible_devices("2, 0", 3), (Devices{2, 0}));
  EXPECT_EQ(visible_devices("1,5,0", 3), (Devices{1}));  // what follows an unknown one is lost
  EXPECT_EQ(visible_devices("", 3), Devices{});
  EXPECT_EQ(visible_devices("-1", 3), Devices{});
  EXPECT_EQ(visible_devices("0,x,1", 3), (Devices{0}));
  EXPECT_EQ(visible_devices("0,0", 3), Devices{});
}

TEST(TooFewGpus, AreToldWithWhatToSayInstead) {
  const auto config_of = [](std::size_t visible, std::size_t installed) {
    Config config;
    config.gpus.resize(visible);
    config.installed.resize(installed);
    return config;
  };
  const Config one = config_of(1, 1);
  EXPECT_EQ(text_of_absent_gpu(1, one, "20GiB", 3),
            "GPU 1 was asked for, and there is GPU 0 only: have as many as the program uses, by "
            "--gpu 3x20GiB");
  EXPECT_THAT(text_of_absent_gpu(1, one, "1xA100", -1), HasSubstr("by --gpu 2xA100"));
  const Config two = config_of(2, 2);
  EXPECT_EQ(text_of_absent_gpu(3, two, "A100,T4", 4),
            "GPU 3 was asked for, and there are 2 GPUs, from 0 on: have as many as the program "
            "uses, 4 names after --gpu");
  EXPECT_THAT(text_of_absent_gpu(2, two, "2xA100", 2), HasSubstr("by --gpu 3xA100"));
  EXPECT_EQ(text_of_absent_gpu(1, config_of(1, 2), "2xA100", -1),
            "GPU 1 was asked for, and there is GPU 0 only: CUDA_VISIBLE_DEVICES hides the others "
            "of 2");
  EXPECT_EQ(text_of_shared_gpu(0, 1, 0, 4, one, "A100"),
            "ranks 0 and 1 both have GPU 0, which NCCL refuses: have as many as the program uses, "
            "by --gpu 4xA100");
  EXPECT_EQ(text_of_shared_gpu(1, 0, 1, 2, two, "2xA100"),
            "ranks 0 and 1 both have GPU 1, which NCCL refuses");
  EXPECT_EQ(
      text_of_hidden_gpus("2, 3", one, "T4"),
      "CUDA_VISIBLE_DEVICES=2, 3 is set in the program, and there is GPU 0 only: have as many "
      "as the program uses, by --gpu 4xT4");
  for (const char* const none : {"", "-1", "NoDevFiles", "0"}) {
    EXPECT_EQ(text_of_hidden_gpus(none, one, "T4"), "");
  }
}

TEST(Meeting, MessagesAndLettersArrive) {
  const std::string name = "/simgpu-test-" + std::to_string(getpid());
  constexpr int kRanks = 3;
  const auto rank = [&](int me) {
    const nccl::Meeting meeting(name, kRanks, me, me);
    for (std::uint64_t turn = 1; turn <= 100; ++turn) {
      nccl::Message& mine = meeting.message(me, turn);
      mine.told.data[0] = static_cast<unsigned char>(turn + static_cast<unsigned>(me));
      mine.turn.store(turn, std::memory_order_release);
      for (int other = 0; other < kRanks; ++other) {
        const nccl::Message& theirs = meeting.message(other, turn);
        while (theirs.turn.load(std::memory_order_acquire) != turn) std::this_thread::yield();
        EXPECT_EQ(theirs.told.data[0],
                  static_cast<unsigned char>(turn + static_cast<unsigned>(other)));
      }
    }
    auto& letter = meeting.letter(me, (me + 1) % kRanks, 0);
    letter.told.data[0] = static_cast<unsigned char>(100 + me);
    letter.full.store(1, std::memory_order_release);
    auto& got = meeting.letter((me + kRanks - 1) % kRanks, me, 0);
    while (got.full.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    EXPECT_EQ(got.told.data[0], 100 + (me + kRanks - 1) % kRanks);
  };
  std::vector<std::thread> ranks;
  for (int me = 0; me < kRanks; ++me) ranks.emplace_back(rank, me);
  for (std::thread& each : ranks) each.join();
}

TEST(Meeting, KnowsWhoHasEnded) {
  const std::string name = "/simgpu-test-ended-" + std::to_string(getpid());
  const nccl::Meeting meeting(name, 2, 0, 0);
  EXPECT_FALSE(meeting.ended(1));  // not here yet
  const pid_t child = fork();
  if (child == 0) {
    const nccl::Meeting theirs(name, 2, 1, 1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(meeting.ended(1));
  EXPECT_FALSE(meeting.ended(0));
}

TEST(Meeting, KnowsWhoHasTheSameGpu) {
  const std::string name = "/simgpu-test-gpu-" + std::to_string(getpid());
  const nccl::Meeting first(name, 3, 0, 0);
  EXPECT_EQ(first.rank_on_same_gpu(), -1);  // nobody else is here yet
  const nccl::Meeting second(name, 3, 2, 1);
  EXPECT_EQ(first.rank_on_same_gpu(), -1);
  const nccl::Meeting third(name, 3, 1, 0);
  EXPECT_EQ(first.rank_on_same_gpu(), 1);
  EXPECT_EQ(third.rank_on_same_gpu(), 0);
  EXPECT_EQ(second.rank_on_same_gpu(), -1);
}

TEST(Reduction, CombinesEveryType) {
  using namespace nccl;
  constexpr int kInt64 = 4;
  constexpr int kHalf = 6;
  constexpr int kFloat = 7;
  constexpr int kBfloat = 9;
  std::int64_t a[] = {1, -5};
  const std::int64_t b[] = {10, 3};
  combine(kInt64, kSum, a, b, 2);
  EXPECT_EQ(a[0], 11);
  EXPECT_EQ(a[1], -2);
  combine(kInt64, kMaximum, a, b, 2);
  EXPECT_EQ(a[1], 3);
  divide(kInt64, a, 2, 3);
  EXPECT_EQ(a[0], 3);
  float f = 1.5F;
  const float g = 4;
  combine(kFloat, kProduct, &f, &g, 1);
  EXPECT_EQ(f, 6.0F);
  std::uint16_t half = 0x3c00;  // 1
  const std::uint16_t two = 0x4000;
  combine(kHalf, kSum, &half, &two, 1);
  EXPECT_EQ(half, 0x4200);       // 3
  std::uint16_t brain = 0x3f80;  // 1
  const std::uint16_t three = 0x4040;
  combine(kBfloat, kMinimum, &brain, &three, 1);
  EXPECT_EQ(brain, 0x3f80);
  EXPECT_FALSE(can_reduce(10, kSum));  // float8
  EXPECT_FALSE(can_reduce(kFloat, 5));
  EXPECT_EQ(type_bytes(10), 1U);
  EXPECT_EQ(type_bytes(99), 0U);
}

}  // namespace
}  // namespace gapless::simgpu
