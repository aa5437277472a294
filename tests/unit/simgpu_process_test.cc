// The parts of the simulated GPU's second face that need no PyTorch.
#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "simgpu/abi/runtime_abi.h"
#include "simgpu/process/device_memory.h"
#include "simgpu/process/gpu_profile.h"
#include "simgpu/process/kernel_shape.h"
#include "simgpu/process/ranks.h"
#include "simgpu/process/streams.h"
#if __has_include(<driver_types.h>)
#include <driver_types.h>
#endif

namespace gapless::simgpu {
namespace {

using ::testing::HasSubstr;

TEST(GpuProfile, NamesAndSizes) {
  const auto gpus = parse_gpus("A100, rtx_4090,16 GiB,T4:8GiB");
  ASSERT_EQ(gpus.size(), 4U);
  EXPECT_EQ(gpus[0].name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpus[1].name, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(gpus[1].minor, 9);
  EXPECT_EQ(gpus[2].name, "simulated GPU");
  EXPECT_EQ(gpus[2].total_bytes, 16 * GiB);
  EXPECT_EQ(gpus[3].name, "Tesla T4");
  EXPECT_EQ(gpus[3].total_bytes, 8 * GiB);
  for (const std::string& name : gpu_profile_names()) EXPECT_EQ(parse_gpus(name).size(), 1U);
}

TEST(Ranks, ListsAndRuns) {
  EXPECT_TRUE(Ranks().all());
  EXPECT_TRUE(Ranks().run(7));
  const Ranks some("0,3-5");
  EXPECT_FALSE(some.all());
  EXPECT_EQ(some.count(), 4U);
  for (const int rank : {0, 3, 4, 5}) EXPECT_TRUE(some.run(rank)) << rank;
  for (const int rank : {1, 2, 6, 30}) EXPECT_FALSE(some.run(rank)) << rank;
}

TEST(Ranks, WhatIsNoneIsNamed) {
  for (const char* const wrong : {"x", "-1", "1-", "3-1", "0,", ",0", "0;1", "99999999", "0 1"}) {
    try {
      const Ranks ranks(wrong);
      ADD_FAILURE() << "\"" << wrong << "\" was taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("\"")) << wrong;
    }
  }
}

TEST(GpuProfile, SeveralOfOneKind) {
  const auto gpus = parse_gpus("3x19.58GiB, 2 X T4:8GiB,A100");
  ASSERT_EQ(gpus.size(), 6U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gpus[i].total_bytes, 10024 * 2 * MiB);
  EXPECT_EQ(gpus[3].name, "Tesla T4");
  EXPECT_EQ(gpus[4].total_bytes, 8 * GiB);
  EXPECT_EQ(gpus[5].name, "NVIDIA A100-SXM4-80GB");
  EXPECT_TRUE(gpus[4].is_named);
  EXPECT_FALSE(gpus[2].is_named);
  EXPECT_EQ(name_sizes("3x19.58GiB, 2 X T4:8GiB,A100,16 GiB", "T4"),
            "3xT4:19.58GiB,2xT4:8GiB,A100,T4:16 GiB");
  EXPECT_EQ(parse_gpus("128xT4").size(), 128U);
  for (const char* wrong : {"0xT4", "129xT4", "99999999999999999999xT4", "100xT4,29xT4"}) {
    EXPECT_THROW(parse_gpus(wrong), std::invalid_argument) << wrong;
  }
  for (const char* wrong : {"3x", "x16GiB", "3xA1000", "3x3xT4"}) {
    try {
      parse_gpus(wrong);
      ADD_FAILURE() << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("is no GPU"));
    }
  }
}

TEST(GpuProfile, NoCardHasAllThatItIsSoldWith) {
  for (const std::string& name : gpu_profile_names()) {
    const GpuProfile card = parse_gpus(name)[0];
    EXPECT_LT(card.total_bytes, card.sold_with_bytes) << name;
    EXPECT_GT(card.total_bytes, card.sold_with_bytes / 100 * 91) << name;
  }
  const std::vector<Card> of_16 = cards_sold_with(16 * GiB);
  ASSERT_EQ(of_16.size(), 3U);
  EXPECT_EQ(of_16[0].name, "T4");
  EXPECT_EQ(of_16[2].name, "V100");
  EXPECT_EQ(cards_sold_with(parse_gpus("16GB")[0].total_bytes).size(), 3U);
  EXPECT_TRUE(cards_sold_with(parse_gpus("19.58GiB")[0].total_bytes).empty());
}

TEST(GpuProfile, OfOneKind) {
  EXPECT_EQ(kind_of("2 X T4:8GiB"), "T4:8GiB");
  EXPECT_EQ(kind_of("A100, 3xA100"), "A100");
  EXPECT_EQ(kind_of("16GiB"), "16GiB");
  EXPECT_EQ(kind_of("A100,T4"), "");
}

TEST(GpuProfile, SaysWhatItDoesNotKnow) {
  for (const char* wrong : {"", "A1000", "A100,", "-1GiB", "A100:", "A100:x", "X9:16GiB"}) {
    try {
      parse_gpus(wrong);
      ADD_FAILURE() << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("is no GPU"));
      EXPECT_THAT(error.what(), HasSubstr("RTX 4090"));
    }
  }
}

TEST(GpuProfile, HasTheNameThatTheDriverGives) {
  for (const auto& [name, shown] : std::initializer_list<std::pair<const char*, const char*>>{
           {"NVIDIA GeForce RTX 3090", "RTX 3090"},
           {"GeForce RTX 2080 Ti", "RTX 2080 Ti"},
           {"Tesla T4", "T4"},
           {"NVIDIA A100-SXM4-40GB", "A100-40GB"},
           {"NVIDIA H100 80GB HBM3", "H100"},
           {"a100-80gb", "A100"},
           {"V100-16GB", "V100"},
           {"RTX 4090 24GB", "RTX 4090"}}) {
    EXPECT_EQ(parse_gpus(name)[0].name, parse_gpus(shown)[0].name) << name;
    EXPECT_TRUE(parse_gpus(name)[0].is_named);
  }
  EXPECT_EQ(parse_gpus("NVIDIA L4:20GiB")[0].total_bytes, 20 * GiB);
  EXPECT_THROW(parse_gpus("NVIDIA"), std::invalid_argument);
  EXPECT_THROW(parse_gpus("A100-64GB"), std::invalid_argument);
}

TEST(GpuProfile, ANumberMayBeACards) {
  const auto told = [](const char* wrong) -> std::string {
    try {
      parse_gpus(wrong);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "it was taken";
  };
  // 3,090 TiB would be a size.
  EXPECT_EQ(
      told("3090ti"),
      "\"3090ti\": no GPU has 3164160.00 GiB; or is it the card, \"RTX 3090\"? (Of a card that is "
      "not known give the size.)");
  EXPECT_THAT(told("A100,2x2080 Ti"), HasSubstr("or is it the card, \"RTX 2080 Ti\"?"));
  EXPECT_THAT(told("4070Ti"), HasSubstr("no GPU has 4167680.00 GiB (Of a card"));
  EXPECT_THAT(told("4090"), HasSubstr("4090MiB? (4090B if it is meant so); or is it the card"));
  EXPECT_EQ(told("1TiB"), "it was taken");
  EXPECT_EQ(told("RTX 2080Ti"), "it was taken");
}

TEST(GpuProfile, IsAsSmallAsItsContextAllows) {
  EXPECT_EQ(parse_gpus("20MiB", 0)[0].total_bytes, 20 * MiB);
  EXPECT_EQ(parse_gpus("20MiB", 18 * MiB)[0].context_bytes, 18 * MiB);
  EXPECT_EQ(parse_gpus("T4,A100", GiB)[1].context_bytes, GiB);
  const auto error_of = [](const char* gpus, std::optional<std::uint64_t> context) -> std::string {
    try {
      parse_gpus(gpus, context);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(error_of("20MiB", std::nullopt), HasSubstr("a context takes 424.00 MiB"));
  EXPECT_THAT(error_of("20MiB", 20 * MiB), HasSubstr("a context takes 20.00 MiB"));
  EXPECT_THAT(error_of("T4", 15 * GiB), HasSubstr("\"T4\" is too small"));
  EXPECT_THAT(error_of("1MiB", 0), HasSubstr("too small"));
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  static std::vector<GpuProfile> gpus() {
    auto made = parse_gpus("1GiB,1GiB");
    for (GpuProfile& gpu : made) gpu.context_bytes = 100 * MiB;
    return made;
  }
  DeviceMemory memory{Config{gpus(), gpus(), {0, 1}, ""}};
};

TEST_F(DeviceMemoryTest, ChargesAContextOnce) {
  EXPECT_EQ(memory.free_bytes(0), GiB);
  memory.ensure_context(0);
  memory.ensure_context(0);
  EXPECT_EQ(memory.free_bytes(0), GiB - 100 * MiB);
  EXPECT_EQ(memory.free_bytes(1), GiB);
}

// As PyTorch's expandable segments do: all handles are made, then mapped, or given back where there
// is no room for the last.
TEST(DeviceMemoryUse, HandlesOfARequestThatFailsAreNotPartOfThePeak) {
  auto one = parse_gpus("1GiB");
  one[0].context_bytes = 100 * MiB;
  std::uint64_t peak = 0;
  DeviceMemory memory(Config{one, one, {0}, ""},
                      [&](DeviceIndex, std::uint64_t used) { peak = std::max(peak, used); });
  memory.ensure_context(0);
  EXPECT_EQ(peak, 100 * MiB);
  MemoryModel& model = memory.model();
  std::string misuse;
  std::vector<MemHandle> handles;
  MemHandle handle = 0;
  while (model.create(0, 20 * MiB, handle, misuse) == DriverStatus::ok) handles.push_back(handle);
  EXPECT_EQ(memory.used_bytes(0), 1020 * MiB);
  for (const MemHandle made : handles) EXPECT_EQ(model.release(made, misuse), DriverStatus::ok);
  DeviceAddress plain = 0;
  ASSERT_EQ(memory.alloc(0, 2 * MiB, plain), DriverStatus::ok);
  EXPECT_EQ(peak, 102 * MiB);

  DeviceAddress place = 0;
  ASSERT_EQ(model.reserve(20 * MiB, 0, place, misuse), DriverStatus::ok);
  ASSERT_EQ(model.create(0, 20 * MiB, handle, misuse), DriverStatus::ok);
  EXPECT_EQ(peak, 102 * MiB);
  ASSERT_EQ(model.map(place, 20 * MiB, handle, misuse), DriverStatus::ok);
  EXPECT_EQ(peak, 122 * MiB);
}

TEST_F(DeviceMemoryTest, PacksSmallRequestsIntoSlabs) {
  std::vector<DeviceAddress> small(3);
  for (DeviceAddress& address : small) {
    ASSERT_EQ(memory.alloc(0, 1000, address), DriverStatus::ok);
  }
  EXPECT_EQ(memory.free_bytes(0), GiB - 2 * MiB);
  EXPECT_EQ(small[1] - small[0], 1024U);
  EXPECT_EQ(memory.find(small[1] + 999)->begin, small[1]);
  EXPECT_FALSE(memory.find(small[2] + 1024));
  EXPECT_EQ(memory.free(small[1]), DriverStatus::ok);
  EXPECT_EQ(memory.free(small[1]), DriverStatus::invalid_value);
  DeviceAddress again = 0;
  ASSERT_EQ(memory.alloc(0, 512, again), DriverStatus::ok);
  EXPECT_EQ(again, small[1]);
  for (const DeviceAddress address : {small[0], small[2], again}) {
    EXPECT_EQ(memory.free(address), DriverStatus::ok);
  }
  EXPECT_EQ(memory.free_bytes(0), GiB);
}

TEST_F(DeviceMemoryTest, IsFullToTheByte) {
  DeviceAddress all = 0;
  ASSERT_EQ(memory.alloc(0, GiB, all), DriverStatus::ok);
  DeviceAddress more = 0;
  EXPECT_EQ(memory.alloc(0, 1, more), DriverStatus::out_of_memory);
  EXPECT_EQ(memory.alloc(1, 1, more), DriverStatus::ok);
  EXPECT_EQ(memory.find(more)->device, 1);
}

TEST_F(DeviceMemoryTest, FlagsTheNumbersOfWhichSomethingIsKnown) {
  DeviceAddress a = 0;
  ASSERT_EQ(memory.alloc(0, MiB, a), DriverStatus::ok);
  const std::vector<int> numbers(8, 1);
  std::vector<unsigned char> flags(9, 7);
  const auto flagged = [&](Knowledge wanted) {
    return memory.flag_known(a, sizeof(int), 9, wanted, flags.data());
  };
  EXPECT_EQ(flagged(Knowledge::likely), Knowledge::known);
  EXPECT_EQ(flags, std::vector<unsigned char>(9, 0));
  ASSERT_TRUE(memory.write(a + 4, numbers.data(), 8));                      // 1 and 2
  ASSERT_TRUE(memory.write(a + 20, numbers.data(), 4, Knowledge::likely));  // 5
  ASSERT_TRUE(memory.write(a + 32, numbers.data(), 3));                     // a part of 8
  EXPECT_EQ(flagged(Knowledge::likely), Knowledge::likely);
  EXPECT_EQ(flags, (std::vector<unsigned char>{0, 1, 1, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(flagged(Knowledge::known), Knowledge::known);
  EXPECT_EQ(flags, (std::vector<unsigned char>{0, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST_F(DeviceMemoryTest, KeepsWhatTheHostWrote) {
  DeviceAddress a = 0;
  DeviceAddress b = 0;
  ASSERT_EQ(memory.alloc(0, 4 * MiB, a), DriverStatus::ok);
  ASSERT_EQ(memory.alloc(1, 4 * MiB, b), DriverStatus::ok);
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 1);
  ASSERT_TRUE(memory.write(a + 300, numbers.data(), 4000));
  ASSERT_TRUE(memory.copy(b, a + 300, 4000));
  std::vector<int> found(1001, -1);
  ASSERT_TRUE(memory.read(found.data(), b, 4004));
  EXPECT_EQ(found[999], 1000);
  EXPECT_EQ(found[1000], 0);
  ASSERT_TRUE(memory.fill(b, 7, 4, 8));
  ASSERT_TRUE(memory.fill(b + 8, 0, 1, 4));
  ASSERT_TRUE(memory.read(found.data(), b, 16));
  EXPECT_EQ((std::vector<int>(found.begin(), found.begin() + 4)), (std::vector<int>{7, 7, 0, 4}));
  EXPECT_FALSE(memory.write(a + 4 * MiB - 2, numbers.data(), 4));
  EXPECT_FALSE(memory.read(found.data(), 0x1234, 4));
}

TEST_F(DeviceMemoryTest, KnowsWhatWasWrittenThroughAnotherAddress) {
  MemoryModel& model = memory.model();
  std::string misuse;
  MemHandle handle = 0;
  ASSERT_EQ(model.create(0, 2 * MiB, handle, misuse), DriverStatus::ok) << misuse;
  DeviceAddress both = 0;
  ASSERT_EQ(model.reserve(4 * MiB, 2 * MiB, both, misuse), DriverStatus::ok) << misuse;
  const DeviceAddress a = both;
  const DeviceAddress b = both + 2 * MiB;
  for (const DeviceAddress address : {a, b}) {
    ASSERT_EQ(model.map(address, 2 * MiB, handle, misuse), DriverStatus::ok) << misuse;
    ASSERT_EQ(model.set_access(address, 2 * MiB, 0, misuse), DriverStatus::ok) << misuse;
  }
  const std::vector<int> numbers{1, 2, 3};
  ASSERT_TRUE(memory.write(a + 100, numbers.data(), 12));
  EXPECT_TRUE(memory.knows(b + 100, 12));
  EXPECT_FALSE(memory.knows(b + 100, 16));
  std::vector<int> found(3);
  ASSERT_TRUE(memory.read(found.data(), b + 100, 12));
  EXPECT_EQ(found, numbers);
  ASSERT_TRUE(memory.copy(b + 4096, a + 100, 12));
  EXPECT_TRUE(memory.knows(a + 4096, 12));
  memory.weaken(b + 4096, 12, Knowledge::likely);
  EXPECT_EQ(memory.knowledge(a + 4096, 12), Knowledge::likely);
  memory.forget(b + 104, 4);
  EXPECT_TRUE(memory.knows(a + 100, 4));
  EXPECT_FALSE(memory.knows(a + 104, 4));
}

TEST_F(DeviceMemoryTest, KeepsOnlyTheHeadsOfLargeContentsWhenThereAreMany) {
  std::vector<unsigned char> large(48 * MiB, 1);
  DeviceAddress a = 0;
  ASSERT_EQ(memory.alloc(0, 512 * MiB, a), DriverStatus::ok);
  ASSERT_TRUE(memory.write(a, large.data(), large.size()));
  ASSERT_TRUE(memory.write(a + 100 * MiB, large.data(), large.size()));
  ASSERT_TRUE(memory.write(a + 200 * MiB, large.data(), 100));
  unsigned char found = 9;
  EXPECT_TRUE(memory.read(&found, a + 5, 1));
  EXPECT_EQ(found, 1);
  ASSERT_TRUE(memory.copy(a + 300 * MiB, a + 100 * MiB, large.size()));
  for (const DeviceAddress dropped : {a + 100 * MiB, a + 300 * MiB}) {
    EXPECT_TRUE(memory.knows(dropped, 4096));
    EXPECT_TRUE(memory.read(&found, dropped + 4095, 1));
    EXPECT_EQ(found, 1);
    EXPECT_FALSE(memory.knows(dropped + 4096, 1));
    EXPECT_TRUE(memory.read(&found, dropped + 4096, 1));
    EXPECT_EQ(found, 0);
  }
  EXPECT_TRUE(memory.read(&found, a + 200 * MiB, 1));
  EXPECT_EQ(found, 1);
  EXPECT_LE(memory.model().kept_bytes(), 49 * MiB);
  EXPECT_EQ(memory.free(a), DriverStatus::ok);
  EXPECT_EQ(memory.model().kept_bytes(), 0U);
}

TEST(Streams, CaptureFollowsEventsAcrossStreams) {
  Streams streams(1);
  Stream* a = streams.create(0, 0, 0);
  Stream* b = streams.create(0, 0, 0);
  Event* fork = streams.create_event(0, 0);
  int ran = 0;
  streams.begin_capture(*a, CaptureMode::global, nullptr, {});
  streams.submit(*a, NodeKind::kernel, [&] { ++ran; });
  streams.record(*fork, *a);
  ASSERT_TRUE(streams.wait(*b, *fork));
  EXPECT_EQ(b->capture, a->capture);
  streams.submit(*b, NodeKind::copy, [&] { ++ran; });
  streams.record(*fork, *b);
  ASSERT_TRUE(streams.wait(*a, *fork));
  EXPECT_EQ(a->last.size(), 2U);
  Graph* graph = streams.end_capture(*a);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(ran, 0);
  ASSERT_EQ(graph->nodes.size(), 2U);
  EXPECT_EQ(graph->nodes[1]->depends_on, std::vector<GraphNode*>{graph->nodes[0].get()});
  EXPECT_FALSE(b->capture);
  EXPECT_FALSE(streams.any_capture());
  delete graph;
  streams.submit(*a, NodeKind::kernel, [&] { ++ran; });
  EXPECT_EQ(ran, 1);
  streams.destroy_event(fork);
  streams.destroy(b);
  streams.destroy(a);
  EXPECT_FALSE(streams.known(a));
}

TEST(KernelShape, NoGpuTakesMoreThanThat) {
  EXPECT_TRUE(is_launchable({{INT32_MAX, 65535, 65535}, {1024, 1, 1}}));
  EXPECT_TRUE(is_launchable({{0, 1, 1}, {4, 4, 64}}));
  for (const ptx::Dim3 grid : {ptx::Dim3{1U << 31, 1, 1}, {1, 65536, 1}, {1, 1, 65536}}) {
    EXPECT_FALSE(is_launchable({grid, {1, 1, 1}}));
  }
  for (const ptx::Dim3 block :
       {ptx::Dim3{1025, 1, 1}, {1, 1, 65}, {32, 33, 1}, {1 << 16, 1 << 16, 1}}) {
    EXPECT_FALSE(is_launchable({{1, 1, 1}, block}));
  }
}

#if __has_include(<driver_types.h>)
TEST(RuntimeAbi, IsThatOfTheToolkit) {
#define SAME(ours, theirs, field)                                       \
  static_assert(offsetof(abi::ours, field) == offsetof(theirs, field)); \
  static_assert(sizeof(abi::ours::field) == sizeof(theirs::field))
  static_assert(sizeof(abi::DeviceProp) == sizeof(cudaDeviceProp));
  SAME(DeviceProp, cudaDeviceProp, totalGlobalMem);
  SAME(DeviceProp, cudaDeviceProp, multiProcessorCount);
  SAME(DeviceProp, cudaDeviceProp, surfaceAlignment);
  SAME(DeviceProp, cudaDeviceProp, l2CacheSize);
  SAME(DeviceProp, cudaDeviceProp, sharedMemPerBlockOptin);
  SAME(DeviceProp, cudaDeviceProp, clusterLaunch);
  SAME(DeviceProp, cudaDeviceProp, gpuPciSubsystemID);
  static_assert(sizeof(abi::PointerAttributes) == sizeof(cudaPointerAttributes));
  SAME(PointerAttributes, cudaPointerAttributes, hostPointer);
  static_assert(sizeof(abi::FuncAttributes) == sizeof(cudaFuncAttributes));
  SAME(FuncAttributes, cudaFuncAttributes, ptxVersion);
  SAME(FuncAttributes, cudaFuncAttributes, nonPortableClusterSizeAllowed);
  static_assert(sizeof(abi::LaunchConfig) == sizeof(cudaLaunchConfig_t));
  static_assert(sizeof(abi::KernelNodeParams) == sizeof(cudaKernelNodeParams));
#undef SAME
  EXPECT_EQ(int{abi::stream_capture_isolation}, int{cudaErrorStreamCaptureIsolation});
  EXPECT_EQ(int{abi::captured_event}, int{cudaErrorCapturedEvent});
  EXPECT_EQ(int{abi::host_memory_not_registered}, int{cudaErrorHostMemoryNotRegistered});
  EXPECT_EQ(int{abi::peer_access_not_enabled}, int{cudaErrorPeerAccessNotEnabled});
}
#endif

}  // namespace
}  // namespace gapless::simgpu
