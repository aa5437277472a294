// Mistakes in the use of memory, planted, and what poison, bands and fences say of them.
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allocator/base/bytes.h"
#include "allocator/base/range_set.h"
#include "allocator/device/device_allocator.h"
#include "allocator/device/options.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"

namespace gapless {

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << to_text(mistake); }

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Mistake::Kind;
using Found = Mistake::Found;

constexpr std::uint64_t kPage = 2 * MiB;

// A device of 64 MiB, and an allocator with those options over it.
class Checked {
 public:
  explicit Checked(const std::string& conf, bool vmm = true)
      : gpu_({.devices = {{.total_bytes = 64 * MiB, .has_vmm = vmm, .host_bytes = 64 * MiB}},
              .keep_contents = true}),
        faults_(gpu_) {
    gpu_.stream_create(0, side);
    DeviceProperties properties;
    gpu_.device_properties(0, properties);
    allocator_ = std::make_unique<DeviceAllocator>(faults_, 0, properties, read_options(conf));
  }
  ~Checked() {
    EXPECT_THAT(gpu_.violations(), IsEmpty());
    allocator_.reset();
    EXPECT_EQ(gpu_.leaks(), "");
  }

  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream = 0) {
    DeviceAddress address = 0;
    EXPECT_EQ(allocator_->alloc(bytes, stream, address), Status::ok);
    allocator_->validate();
    return address;
  }
  void free(DeviceAddress address) {
    EXPECT_EQ(allocator_->free(address), Status::ok);
    allocator_->validate();
  }
  // The program's work: bytes there become 0x55.
  bool write(DeviceAddress address, std::uint64_t bytes, StreamHandle stream = 0) {
    const std::vector<unsigned char> source(bytes, 0x55);
    return gpu_.copy_to_device(0, address, source.data(), bytes, stream) == DriverStatus::ok;
  }
  std::uint32_t word_at(DeviceAddress address) {
    std::uint32_t word = 0;
    EXPECT_EQ(gpu_.copy_to_host(0, &word, address, sizeof word, 0), DriverStatus::ok);
    return word;
  }
  std::vector<Mistake> mistakes() const { return allocator_->mistakes(); }
  DeviceAllocator& allocator() { return *allocator_; }
  simgpu::SimDriver& gpu() { return gpu_; }
  FaultyDriver& faults() { return faults_; }

  StreamHandle side = 0;

 private:
  simgpu::SimDriver gpu_;
  FaultyDriver faults_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

// --- parts ---------------------------------------------------------------------------------------

TEST(RangeSet, IsASetOfBytes) {
  std::mt19937 random(7);
  RangeSet ranges;
  std::vector<bool> model(64);
  for (int i = 0; i < 2000; ++i) {
    std::uint64_t begin = random() % 64;
    std::uint64_t end = random() % 65;
    if (random() % 8 != 0 && end < begin) std::swap(begin, end);
    const bool adds = random() % 2 == 0;
    adds ? ranges.add(begin, end) : ranges.remove(begin, end);
    for (std::uint64_t at = begin; at < end; ++at) model[at] = adds;
    const std::uint64_t from = random() % 64;
    const std::uint64_t to = from + random() % (65 - from);
    std::vector<bool> found(64);
    std::uint64_t last = 0;
    for (const RangeSet::Range& range : ranges.inside(from, to)) {
      ASSERT_LT(range.begin, range.end);
      ASSERT_TRUE(last == 0 || range.begin > last) << "ranges that touch are one";
      last = range.end;
      for (std::uint64_t at = range.begin; at < range.end; ++at) found[at] = true;
    }
    for (std::uint64_t at = 0; at < 64; ++at) {
      ASSERT_EQ(found[at], model[at] && from <= at && at < to) << at;
    }
  }
}

TEST(Checks, AreAskedForInWords) {
  RequestedChecks checks;
  FencedRequests fenced;
  std::string cause;
  EXPECT_TRUE(read_checks("poison+fence", checks, cause));
  EXPECT_EQ(checks, (RequestedChecks{.poison = true, .fence = true}));
  EXPECT_EQ(text_of(checks), "poison+fence");
  EXPECT_TRUE(read_checks("none", checks, cause));
  EXPECT_EQ(checks, RequestedChecks{});
  EXPECT_FALSE(read_checks("poison,redzones", checks, cause));
  EXPECT_FALSE(read_checks("", checks, cause));
  EXPECT_THAT(cause, HasSubstr("poison, redzones, fence"));
  EXPECT_TRUE(read_fenced("1/1000", fenced, cause));
  EXPECT_EQ(fenced, FencedRequests{.one_of = 1000});
  EXPECT_TRUE(read_fenced("train.py:42+4MiB-1GiB+1/3", fenced, cause));
  EXPECT_EQ(fenced, (FencedRequests{3, 4 * MiB, GiB, "train.py:42"}));
  FencedRequests again;
  EXPECT_TRUE(read_fenced(text_of(fenced), again, cause));
  EXPECT_EQ(again, fenced);
  for (const char* const wrong : {"", "1/0", "2/3", "1/x", "4MiB", "2GiB-1GiB", "train.py", ":4",
                                  "train.py:", "1/2+", "4-5"}) {
    EXPECT_FALSE(read_fenced(wrong, fenced, cause)) << wrong;
  }
  EXPECT_EQ(fenced, again) << "what is wrong changes nothing";
}

// --- bands ---------------------------------------------------------------------------------------

TEST(RedZones, SayNothingOfGoodPrograms) {
  Checked device("check:redzones+poison");
  std::mt19937 random(3);
  std::vector<std::pair<DeviceAddress, std::uint64_t>> live;
  for (int i = 0; i < 400; ++i) {
    if (live.size() > 20 || (random() % 3 == 0 && !live.empty())) {
      std::swap(live[random() % live.size()], live.back());
      device.free(live.back().first);
      live.pop_back();
      continue;
    }
    const std::uint64_t bytes = 1 + random() % (random() % 2 == 0 ? 3 * MiB : 3000);
    live.emplace_back(device.alloc(bytes), bytes);
    EXPECT_EQ(live.back().first % 512, 0U);
    EXPECT_TRUE(device.write(live.back().first, bytes));
  }
  device.allocator().check_now();
  for (const auto& [address, bytes] : live) device.free(address);
  EXPECT_THAT(device.mistakes(), IsEmpty());
}

TEST(RedZones, FindAByteOnEitherSide) {
  for (const std::uint64_t bytes : {1UL, 511UL, 512UL, 1000UL, 5 * MiB, 2 * MiB + 1}) {
    Checked device("check:redzones");
    const DeviceAddress block = device.alloc(bytes);
    device.write(block, bytes);
    EXPECT_TRUE(device.write(block + bytes, 1));
    EXPECT_TRUE(device.write(block - 1, 1));
    device.free(block);
    EXPECT_THAT(
        device.mistakes(),
        ElementsAre(
            AllOf(Field(&Mistake::kind, Kind::before), Field(&Mistake::first_offset, -1),
                  Field(&Mistake::wrong_bytes, 1)),
            AllOf(Field(&Mistake::kind, Kind::behind), Field(&Mistake::first_offset, bytes),
                  Field(&Mistake::wrong_bytes, 1), Field(&Mistake::found, Found::when_freed))))
        << bytes;
  }
}

TEST(RedZones, FindWhatGoesFarTooFar) {
  Checked device("check:redzones");
  const DeviceAddress first = device.alloc(4096);
  const DeviceAddress second = device.alloc(4096);
  ASSERT_EQ(second, first + 4096 + 1024);
  device.write(first, 4096 + 1024);  // both bands between, but nothing of the other block
  device.free(second);
  device.free(first);
  EXPECT_THAT(device.mistakes(), ElementsAre(Field(&Mistake::kind, Kind::before),
                                             Field(&Mistake::kind, Kind::behind)));
}

TEST(RedZones, AreLookedAtOnDemand) {
  Checked device("check:redzones");
  const DeviceAddress block = device.alloc(100);
  device.allocator().check_now();
  EXPECT_THAT(device.mistakes(), IsEmpty());
  device.write(block + 104, 8);
  device.allocator().check_now();
  EXPECT_THAT(device.mistakes(), ElementsAre(AllOf(Field(&Mistake::found, Found::on_demand),
                                                   Field(&Mistake::first_offset, 104),
                                                   Field(&Mistake::wrong_bytes, 8))));
  device.free(block);
}

TEST(RedZones, KnowTheCallSite) {
  Checked device("check:redzones");
  device.allocator().set_call_site_source([] { return std::string("train.py:42 (step)"); });
  const DeviceAddress block = device.alloc(100);
  device.write(block + 100, 3);
  ::testing::internal::CaptureStderr();
  device.free(block);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("gapless: check: 3 bytes were written behind the end of a block of "
                              "100 bytes, the first 0 bytes behind it"),
                    HasSubstr("allocated at train.py:42 (step)"), HasSubstr("when it was freed")));
}

TEST(RedZones, HoldInWindowsAndForOtherStreams) {
  Checked device("check:redzones+poison");
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 14; ++i) blocks.push_back(device.alloc(4 * MiB - 1024));
  for (std::size_t i = 0; i < blocks.size(); i += 2) device.free(blocks[i]);
  const DeviceAddress window = device.alloc(20 * MiB);
  EXPECT_GT(device.allocator().counters().windows.made, 0U);
  EXPECT_TRUE(device.write(window, 20 * MiB));
  EXPECT_EQ(device.allocator().record_stream(window, device.side), Status::ok);
  EXPECT_TRUE(device.write(window, 20 * MiB, device.side));
  device.write(window + 20 * MiB + 5, 1);
  device.free(window);
  EXPECT_THAT(device.mistakes(), ElementsAre(Field(&Mistake::first_offset, 20 * MiB + 5)));
  const DeviceAddress again = device.alloc(20 * MiB, device.side);
  for (std::size_t i = 1; i < blocks.size(); i += 2) device.free(blocks[i]);
  device.free(again);
  EXPECT_THAT(device.mistakes(), SizeIs(1));
}

TEST(RedZones, DoWithoutVirtualMemoryManagement) {
  Checked device("check:redzones+poison+fence", false);
  const DeviceAddress block = device.alloc(1000);
  device.write(block + 1000, 1);
  device.free(block);
  EXPECT_THAT(device.mistakes(), SizeIs(1));
}

TEST(RedZones, LeavePrivatePoolsAlone) {
  Checked device("check:redzones+poison+fence");
  const PoolId pool{0, 1};
  ASSERT_EQ(device.allocator().begin_pool(pool, [](StreamHandle) { return true; }), Status::ok);
  EXPECT_EQ(device.allocator().set_pool_no_split(pool, true), Status::ok);
  const DeviceAddress block = device.alloc(kPage);
  EXPECT_EQ(device.allocator().size_of(block), kPage);
  ASSERT_EQ(device.allocator().end_pool(pool), Status::ok);
  device.free(block);
  ASSERT_EQ(device.allocator().release_pool(pool), Status::ok);
  EXPECT_THAT(device.mistakes(), IsEmpty());
}

TEST(RedZones, SharedBlocksBeginWhereTheyBegin) {
  Checked device("check:redzones");
  const DeviceAddress block = device.alloc(3000);
  device.write(block, 3000);
  SharedBlock shared;
  ASSERT_EQ(device.allocator().share(block, shared), Status::ok);
  ImportedBlock opened(device.gpu(), 0);
  ASSERT_EQ(opened.open(shared), DriverStatus::ok);
  EXPECT_EQ(device.word_at(opened.address()), 0x55555555U);
  EXPECT_EQ(device.word_at(opened.address() - 4), RedZones::kWord);
  ASSERT_EQ(opened.close(), DriverStatus::ok);
  ASSERT_EQ(device.allocator().unshare(block), Status::ok);
  device.free(block);
}

TEST(RedZones, BlocksComeBackAtTheirAddress) {
  Checked device("check:redzones");
  const DeviceAddress keeps = device.alloc(4096);
  const DeviceAddress block = device.alloc(4096);
  device.free(block);
  EXPECT_EQ(device.allocator().alloc_at(4096, 0, block), Status::ok);
  EXPECT_EQ(device.allocator().size_of(block), 4096U + 512);
  device.free(block);
  device.free(keeps);
  EXPECT_THAT(device.mistakes(), IsEmpty());
}

TEST(RedZones, DoNotMakeSmallWhatNobodyHas) {
  for (const char* const conf : {"check:redzones", "check:fence", "check:poison+redzones+fence"}) {
    Checked device(conf);
    for (const std::uint64_t bytes : {UINT64_MAX, UINT64_MAX - 600, std::uint64_t{1} << 63}) {
      DeviceAddress address = 0;
      EXPECT_EQ(device.allocator().alloc(bytes, 0, address), Status::out_of_memory) << conf;
    }
    device.allocator().validate();
  }
}

// --- poison --------------------------------------------------------------------------------------

TEST(Poison, IsWhatNewAndFreedMemoryHolds) {
  Checked device("check:poison");
  const DeviceAddress keeps = device.alloc(4096);
  const DeviceAddress block = device.alloc(1 * MiB);
  EXPECT_EQ(device.word_at(block), Poison::kNew);
  EXPECT_EQ(device.word_at(block + MiB - 4), Poison::kNew);
  device.write(block, MiB);
  device.free(block);
  EXPECT_EQ(device.word_at(block), Poison::kFreed);
  EXPECT_EQ(device.word_at(block + MiB - 4), Poison::kFreed);
  EXPECT_EQ(device.word_at(keeps), Poison::kNew);
  device.free(keeps);
}

// Whose blocks these are is a matter of their own heap: numbers of streams and pools there mean
// others in the device's.
TEST(Poison, LeavesMemoryOfTheUsersOwnAllocatorAlone) {
  Checked device("check:poison");
  const DeviceAddress keeps = device.alloc(4096);
  const DeviceAddress others = device.alloc(4096, device.side);
  const PoolId pool{0, 1};
  ASSERT_EQ(device.allocator().retain_pool(pool), Status::ok);
  const auto take = [&](std::uint64_t bytes) {
    DeviceAddress address = 0;
    device.gpu().mem_alloc(0, bytes, address);
    device.gpu().memset_d32(0, address, 7, bytes / 4, 0);
    return address;
  };
  const auto give = [&](DeviceAddress address, std::uint64_t /*bytes*/) {
    device.gpu().mem_free(0, address);
  };
  ASSERT_EQ(device.allocator().set_pool_source(pool, {take, give}), Status::ok);
  ASSERT_EQ(device.allocator().begin_pool(pool, [](StreamHandle) { return true; }), Status::ok);
  const DeviceAddress block = device.alloc(4096);
  ASSERT_EQ(device.allocator().end_pool(pool), Status::ok);
  EXPECT_EQ(device.word_at(block), 7U);
  device.free(block);
  EXPECT_EQ(device.word_at(block), 7U);
  ASSERT_EQ(device.allocator().release_pool(pool), Status::ok);
  ASSERT_EQ(device.allocator().release_pool(pool), Status::ok);
  device.free(keeps);
  device.free(others);
}

TEST(Poison, TellsOfWhatIsWrittenAfterItsFree) {
  Checked device("check:poison");
  const DeviceAddress keeps = device.alloc(4096);
  const DeviceAddress block = device.alloc(100000);
  device.write(block, 100000);
  device.free(block);
  device.write(block + 70000, 16);
  EXPECT_THAT(device.mistakes(), IsEmpty());
  const DeviceAddress smaller = device.alloc(50000);  // the mistake is not in its memory
  EXPECT_THAT(device.mistakes(), IsEmpty());
  const DeviceAddress rest = device.alloc(50000);
  EXPECT_THAT(
      device.mistakes(),
      ElementsAre(AllOf(Field(&Mistake::kind, Kind::after_free),
                        Field(&Mistake::found, Found::when_given_out),
                        Field(&Mistake::first_offset, 70000), Field(&Mistake::wrong_bytes, 16),
                        Field(&Mistake::block, Field(&CheckedBlock::requested_bytes, 100000)))));
  device.free(rest);
  device.free(smaller);
  device.free(keeps);
}

TEST(Poison, FollowsMemoryThroughWindows) {
  Checked device("check:poison");
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 14; ++i) blocks.push_back(device.alloc(4 * MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2) device.free(blocks[i]);
  device.write(blocks[4] + 12, 4);
  const DeviceAddress window = device.alloc(28 * MiB);
  ASSERT_GT(device.allocator().counters().windows.made, 0U);
  ASSERT_THAT(device.mistakes(), ElementsAre(AllOf(Field(&Mistake::first_offset, 12),
                                                   Field(&Mistake::wrong_bytes, 4))));
  EXPECT_EQ(device.mistakes()[0].block.address, blocks[4]);
  device.free(window);
  device.write(window + 9 * MiB, 4);  // the window is still mapped
  const DeviceAddress again = device.alloc(28 * MiB);
  ASSERT_THAT(device.mistakes(), SizeIs(2));
  EXPECT_EQ(device.mistakes()[1].block.address, window);
  EXPECT_EQ(device.mistakes()[1].first_offset, static_cast<std::int64_t>(9 * MiB));
  device.free(again);
  for (std::size_t i = 1; i < blocks.size(); i += 2) device.free(blocks[i]);
}

TEST(Poison, DoesNotMistakeOtherMemoryForWhatWasThere) {
  Checked device("check:poison");
  const DeviceAddress block = device.alloc(8 * MiB);
  device.free(block);
  ASSERT_EQ(device.allocator().trim(), Status::ok);
  const DeviceAddress again = device.alloc(8 * MiB);  // other pages, which hold anything
  EXPECT_THAT(device.mistakes(), IsEmpty());
  device.free(again);
}

// --- fences --------------------------------------------------------------------------------------

TEST(Fence, EndsWhereNothingIsMapped) {
  Checked device("check:fence");
  for (const std::uint64_t bytes : {1UL, 512UL, 4 * MiB, 3 * MiB + 5}) {
    const DeviceAddress block = device.alloc(bytes);
    const std::uint64_t room = align_up(bytes, 512);
    EXPECT_EQ(block % 512, 0U);
    EXPECT_TRUE(device.gpu().resolve(0, block, room));
    EXPECT_FALSE(device.gpu().resolve(0, block, room + 1));
    EXPECT_TRUE(device.write(block, bytes));
    const std::uint64_t used = device.gpu().used_bytes(0);
    EXPECT_EQ(used, align_up(room, kPage));
    EXPECT_EQ(device.allocator().statistics().reserved_bytes.all.current,
              static_cast<std::int64_t>(used));
    device.free(block);
    EXPECT_FALSE(device.gpu().resolve(0, block, 1)) << "use after free faults";
    EXPECT_EQ(device.gpu().used_bytes(0), 0U);
  }
  EXPECT_THAT(device.mistakes(), IsEmpty());
}

TEST(Fence, KeepsAddressesUnmappedForAWhile) {
  Checked device("check:fence");
  std::vector<DeviceAddress> freed;
  for (int i = 0; i < 500; ++i) {
    const DeviceAddress block = device.alloc(3 * MiB);
    for (const DeviceAddress other : freed)
      ASSERT_GE(block > other ? block - other : other - block, 4 * MiB);
    device.free(block);
    freed.push_back(block);
  }
}

TEST(Fence, HasBandsWhereItsPagesGoOn) {
  Checked device("check:fence");
  const DeviceAddress block = device.alloc(1000);
  device.write(block - 8, 8);
  device.write(block + 1000, 4);
  device.free(block);
  EXPECT_THAT(
      device.mistakes(),
      ElementsAre(AllOf(Field(&Mistake::kind, Kind::before), Field(&Mistake::first_offset, -8)),
                  AllOf(Field(&Mistake::kind, Kind::behind), Field(&Mistake::first_offset, 1000))));
}

TEST(Fence, IsForTheRequestsAskedFor) {
  Checked sampled("fence:1/10");
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(sampled.alloc(600));
  std::size_t fenced = 0;
  for (const WindowBlockReport& block : sampled.allocator().report().window_blocks) {
    fenced += block.fenced ? 1 : 0;
  }
  // No more than there is memory for, of about a hundred.
  EXPECT_GT(fenced, 20U);
  EXPECT_LT(fenced, 31U);
  for (const DeviceAddress block : blocks) sampled.free(block);

  Checked sized("fence:1MiB-2MiB");
  const DeviceAddress small = sized.alloc(MiB - 1);
  const DeviceAddress within = sized.alloc(MiB);
  EXPECT_TRUE(sized.gpu().resolve(0, small, MiB + 1));
  EXPECT_FALSE(sized.gpu().resolve(0, within, MiB + 1));
  sized.free(small);
  sized.free(within);

  Checked placed("fence:train.py:42");
  std::string place = "/home/me/train.py:42 (step)";
  placed.allocator().set_call_site_source([&] { return place; });
  const DeviceAddress there = placed.alloc(512);
  place = "/home/me/retrain.py:42 (step)";
  const DeviceAddress elsewhere = placed.alloc(512);
  EXPECT_FALSE(placed.gpu().resolve(0, there, 513));
  EXPECT_TRUE(placed.gpu().resolve(0, elsewhere, 513));
  placed.free(there);
  placed.free(elsewhere);
}

// How many of a hundred small blocks are fenced.
std::size_t fenced_of_many(Checked& device) {
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(device.alloc(512));
  std::size_t fenced = 0;
  for (const DeviceAddress block : blocks) fenced += device.allocator().find_block(block)->fenced;
  for (const DeviceAddress block : blocks) device.free(block);
  return fenced;
}

TEST(Fence, LeavesMemoryToTheProgram) {
  Checked device("check:fence");
  EXPECT_EQ(fenced_of_many(device), 31U);  // of 32 pages, one after the other while two are left
  EXPECT_EQ(device.allocator().statistics().allocated_bytes.all.current, 0);
}

TEST(Fence, KeepsToTheLimit) {
  Checked device("check:fence,limit:16MiB");
  EXPECT_EQ(fenced_of_many(device), 7U);  // of 8 pages
  EXPECT_LE(device.allocator().statistics().reserved_bytes.all.peak, 16 * MiB);
}

TEST(Fence, WaitsForWorkBeforeItTakesMemoryAway) {
  Checked device("check:fence");
  const DeviceAddress block = device.alloc(4 * MiB);
  const simgpu::Access access{block, 4 * MiB, true};
  EXPECT_EQ(device.gpu().launch(0, 0, 1000000, {&access, 1}), DriverStatus::ok);
  device.free(block);  // the judge tells of work in flight at an unmap
}

TEST(Fence, BlocksThatOthersKnowStay) {
  Checked device("check:fence");
  const DeviceAddress block = device.alloc(MiB);
  SharedBlock shared;
  ASSERT_EQ(device.allocator().share(block, shared), Status::ok);
  EXPECT_EQ(device.allocator().pin(block), Status::ok);
  device.free(block);
  EXPECT_TRUE(device.gpu().resolve(0, block, MiB));
  EXPECT_EQ(device.allocator().unshare(block), Status::ok);
  EXPECT_EQ(device.allocator().unshare(block), Status::invalid_argument);
  EXPECT_TRUE(device.gpu().resolve(0, block, MiB));
  EXPECT_EQ(device.allocator().unpin(block), Status::ok);
  EXPECT_FALSE(device.gpu().resolve(0, block, 1));
}

// --- a driver that refuses -----------------------------------------------------------------------

TEST(Checks, OutliveEveryDriverCallThatFails) {
  const auto program = [](Checked& device) {
    std::vector<DeviceAddress> blocks;
    for (int i = 0; i < 6; ++i) {
      DeviceAddress block = 0;
      if (device.allocator().alloc(i % 2 == 0 ? 3 * MiB : 700, i == 3 ? device.side : 0, block) ==
          Status::ok) {
        blocks.push_back(block);
      }
      device.allocator().validate();
    }
    if (!blocks.empty()) (void)device.allocator().record_stream(blocks.back(), device.side);
    device.allocator().check_now();
    for (const DeviceAddress block : blocks) device.free(block);
    DeviceAddress again = 0;
    if (device.allocator().alloc(5 * MiB, 0, again) == Status::ok) device.free(again);
  };
  for (std::uint64_t n = 1;; ++n) {
    Checked device("check:redzones+poison,fence:1/2");
    device.faults().fail({.nth = n, .status = DriverStatus::unknown});
    ::testing::internal::CaptureStderr();
    program(device);
    (void)::testing::internal::GetCapturedStderr();
    const bool failed = device.faults().fired() != 0;
    EXPECT_THAT(device.mistakes(), IsEmpty()) << "call " << n;
    device.faults().heal();
    (void)device.allocator().trim();
    EXPECT_EQ(device.allocator().statistics().allocated_bytes.all.current, 0) << "call " << n;
    EXPECT_EQ(device.gpu().used_bytes(0), 0U) << "call " << n;
    if (!failed) {
      EXPECT_GT(n, 40U);
      return;
    }
  }
}

}  // namespace
}  // namespace gapless
