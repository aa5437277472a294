// Descriptors of shared memory: each is closed once nobody needs it, whatever happened in between.
#include <filesystem>
#include <iterator>
#include <string>

#include "allocator/c_api.h"
#include "allocator/gapless.h"
#include "tests/support/on_device.h"

namespace gapless {
namespace {

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class Descriptors : public testing::OnDevice {
 protected:
  // A simulated GPU keeps one of its own for each handle that was ever exported.
  void have_exported(DeviceAddress address) {
    SharedBlock shared;
    ASSERT_EQ(allocator->share(address, shared), Status::ok);
    ASSERT_EQ(allocator->unshare(address), Status::ok);
  }
};

TEST_F(Descriptors, SharesThatEndedKeepNone) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(9 * MiB);
  have_exported(a);
  const std::size_t before = open_descriptors();
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  EXPECT_EQ(shared.pieces.size(), 5U);
  EXPECT_EQ(open_descriptors(), before + 5);  // once for all shares
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  EXPECT_EQ(open_descriptors(), before + 5);
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  EXPECT_EQ(open_descriptors(), before);
  free(a);
}

TEST_F(Descriptors, SharesThatFailedKeepNone) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(9 * MiB);
  have_exported(a);
  const std::size_t before = open_descriptors();
  for (std::uint64_t nth = 1; nth <= 5; ++nth) {
    faults->fail({.kind = DriverCall::mem_export, .nth = nth});
    SharedBlock shared;
    EXPECT_EQ(allocator->share(a, shared), Status::driver_error);
    EXPECT_TRUE(shared.pieces.empty());
    EXPECT_EQ(open_descriptors(), before) << nth;
  }
  faults->heal();
  free(a);
  free(alloc(32 * MiB));  // nor is it held
}

TEST_F(Descriptors, MessagesThatCannotBeReadKeepNone) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(9 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  std::string message = to_message(shared);
  // The last descriptor is one that nobody has.
  const std::uint64_t none = 1'000'000;
  message.replace(message.size() - sizeof none, sizeof none, reinterpret_cast<const char*>(&none),
                  sizeof none);
  const std::size_t before = open_descriptors();
  SharedBlock told;
  std::string error;
  EXPECT_FALSE(from_message(message, told, error));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

TEST_F(Descriptors, BlocksThatDoNotComeToTheirLastPieceAreNone) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(9 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  std::uint64_t total = 0;
  for (const SharedPiece& piece : shared.pieces) total += piece.bytes;
  SharedBlock told;
  std::string error;
  shared.bytes = total - shared.pieces.back().bytes - shared.offset_bytes;
  EXPECT_FALSE(from_message(to_message(shared), told, error));
  ++shared.bytes;
  EXPECT_TRUE(from_message(to_message(shared), told, error)) << error;
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

TEST_F(Descriptors, OpenedBlocksKeepNone) {
  auto driver = std::make_unique<simgpu::SimDriver>(
      simgpu::SimOptions{.devices = {{.total_bytes = 16 * MiB}}});
  gapless_allocator* owner = nullptr;
  ASSERT_EQ(create_over(std::move(driver), {}, &owner), GAPLESS_OK);
  void* memory = nullptr;
  ASSERT_EQ(gapless_alloc(owner, 0, 5 << 20, nullptr, &memory), GAPLESS_OK);
  std::string message(1000, ' ');
  std::size_t size = message.size();
  ASSERT_EQ(gapless_share(owner, memory, message.data(), &size), GAPLESS_OK);
  ASSERT_EQ(gapless_unshare(owner, memory), GAPLESS_OK);
  const std::size_t before = open_descriptors();
  size = message.size();
  ASSERT_EQ(gapless_share(owner, memory, message.data(), &size), GAPLESS_OK);
  const std::size_t shared = open_descriptors();
  void* opened = nullptr;
  ASSERT_EQ(gapless_open(owner, 0, message.data(), size, &opened), GAPLESS_OK);
  EXPECT_EQ(open_descriptors(), shared);  // the mapping keeps the memory
  EXPECT_EQ(gapless_close(owner, opened), GAPLESS_OK);
  EXPECT_EQ(gapless_unshare(owner, memory), GAPLESS_OK);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(gapless_free(owner, memory), GAPLESS_OK);
  EXPECT_EQ(gapless_destroy(owner), GAPLESS_OK);
}

}  // namespace
}  // namespace gapless
