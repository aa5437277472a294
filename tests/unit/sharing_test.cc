// Memory that others use: pins, and blocks of one process opened by another.
#include <cstring>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/on_device.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

class Sharing : public testing::OnDevice {
 protected:
  // What another process would see at `offset` of a block.
  std::uint32_t word_at(DeviceAddress address, std::uint64_t offset) {
    std::uint32_t word = 0;
    EXPECT_EQ(gpu->copy_to_host(0, &word, address + offset, sizeof word, 0), DriverStatus::ok);
    return word;
  }
};

TEST_F(Sharing, APinnedBlockThatIsFreedIsHeld) {
  start({.capacity = 8 * MiB});
  const DeviceAddress a = alloc(4 * MiB);
  EXPECT_EQ(allocator->pin(a), Status::ok);
  EXPECT_EQ(allocator->pin(a), Status::ok);
  free(a);
  EXPECT_EQ(allocator->free(a), Status::invalid_argument);
  EXPECT_FALSE(allocator->size_of(a));
  DeviceStatistics found = allocator->statistics();
  EXPECT_EQ(found.allocated_bytes.all.current, 0);
  EXPECT_EQ(found.active_bytes.all.current, 4 * MiB);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(reserved(), 4 * MiB);
  const DeviceAddress b = alloc(4 * MiB);
  EXPECT_NE(a, b);
  EXPECT_EQ(try_alloc(MiB), Status::out_of_memory);
  EXPECT_EQ(allocator->unpin(a), Status::ok);
  EXPECT_EQ(try_alloc(MiB), Status::out_of_memory);
  EXPECT_EQ(allocator->unpin(a), Status::ok);
  found = allocator->statistics();
  EXPECT_EQ(found.active_bytes.all.current, 4 * MiB);
  EXPECT_EQ(found.active_bytes.all.peak, 8 * MiB);
  EXPECT_EQ(try_alloc(4 * MiB), Status::ok);
  EXPECT_EQ(allocator->unpin(a), Status::invalid_argument);
  EXPECT_EQ(allocator->pin(a), Status::invalid_argument);
  free(b);
}

// A window's places are not given to another request, nor its pages to the device.
TEST_F(Sharing, APinnedWindowBlockStaysWhereItIs) {
  start({.capacity = 16 * MiB});
  std::vector<DeviceAddress> pages;
  for (int i = 0; i < 8; ++i) pages.push_back(alloc(2 * MiB));
  for (int i = 0; i < 8; i += 2) free(pages[i]);
  const DeviceAddress wide = alloc(8 * MiB);  // four scattered pages side by side
  EXPECT_EQ(allocator->counters().windows.made, 1U);
  EXPECT_EQ(allocator->pin(wide), Status::ok);
  const auto before = gpu->resolve(0, wide, 8 * MiB);
  free(wide);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(try_alloc(2 * MiB), Status::out_of_memory);
  const auto after = gpu->resolve(0, wide, 8 * MiB);
  ASSERT_TRUE(after);
  for (std::size_t i = 0; i < after->size(); ++i) {
    EXPECT_EQ((*after)[i].handle, (*before)[i].handle);
  }
  EXPECT_EQ(allocator->unpin(wide), Status::ok);
  EXPECT_EQ(try_alloc(8 * MiB), Status::ok);
  for (int i = 1; i < 8; i += 2) free(pages[i]);
}

TEST_F(Sharing, AnotherProcessOpensABlockOfSeveralPieces) {
  for (const bool fabric : {false, true}) {
    start({.capacity = 32 * MiB,
           .settings = fabric ? "share:fabric" : "",
           .keep_contents = true,
           .has_fabric = fabric});
    std::vector<DeviceAddress> small;
    for (int i = 0; i < 16; ++i) small.push_back(alloc(2 * MiB));
    for (int i = 0; i < 16; i += 2) free(small[i]);
    const DeviceAddress wide = alloc(14 * MiB + 4096);  // of scattered pages
    for (std::uint64_t i = 0; i < 14; ++i) gpu->memset_d32(0, wide + i * MiB, 100 + i, 1, 0);
    SharedBlock shared;
    ASSERT_EQ(allocator->share(wide, shared), Status::ok);
    EXPECT_EQ(shared.pieces.size(), 8U);
    EXPECT_EQ(shared.bytes, 14 * MiB + 4096);
    const std::string message = to_message(shared);

    SharedBlock told;
    std::string error;
    ASSERT_TRUE(from_message(message, told, error)) << error;
    ImportedBlock imported(*counting, 0);
    ASSERT_EQ(imported.open(told), DriverStatus::ok);
    close_descriptors(told);
    for (std::uint64_t i = 0; i < 14; ++i) {
      EXPECT_EQ(word_at(imported.address(), i * MiB), 100 + i);
    }
    // The owner frees it; it is nobody else's while the other uses it.
    free(wide);
    EXPECT_EQ(try_alloc(2 * MiB), Status::out_of_memory);
    gpu->memset_d32(0, imported.address() + 3 * MiB, 7, 1, 0);
    EXPECT_EQ(word_at(imported.address(), 3 * MiB), 7U);
    EXPECT_EQ(imported.close(), DriverStatus::ok);
    EXPECT_EQ(allocator->unshare(wide), Status::ok);
    EXPECT_EQ(allocator->unshare(wide), Status::invalid_argument);
    EXPECT_EQ(try_alloc(14 * MiB), Status::ok);
    for (int i = 1; i < 16; i += 2) free(small[i]);
    allocator.reset();
    EXPECT_EQ(gpu->leaks(), "");
  }
}

TEST_F(Sharing, PiecesMayBeOfTwoSizes) {
  start({.capacity = 32 * MiB, .settings = "handle_parts:6", .keep_contents = true});
  const DeviceAddress a = alloc(3 * MiB);  // two single pages
  const DeviceAddress b = alloc(9 * MiB);  // the rest of the second, one of two and one of four
  for (std::uint64_t i = 0; i < 9; ++i) gpu->memset_d32(0, b + i * MiB, 100 + i, 1, 0);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(b, shared), Status::ok);
  std::vector<std::uint64_t> bytes;
  for (const SharedPiece& piece : shared.pieces) bytes.push_back(piece.bytes);
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{2 * MiB, 4 * MiB, 8 * MiB}));
  EXPECT_EQ(shared.offset_bytes, MiB);
  SharedBlock told;
  std::string error;
  ASSERT_TRUE(from_message(to_message(shared), told, error)) << error;
  ImportedBlock imported(*gpu, 0);
  ASSERT_EQ(imported.open(told), DriverStatus::ok);
  close_descriptors(told);
  for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(word_at(imported.address(), i * MiB), 100 + i);
  EXPECT_EQ(imported.close(), DriverStatus::ok);
  EXPECT_EQ(allocator->unshare(b), Status::ok);
  free(a);
  free(b);
}

// A real second process, with a simulated GPU of its own over the same memory.
TEST_F(Sharing, DescriptorsAreTakenOutOfTheOwnersProcess) {
  start({.capacity = 32 * MiB, .keep_contents = true});
  const DeviceAddress a = alloc(3 * MiB);
  const DeviceAddress b = alloc(4 * MiB - 512);  // begins inside a page
  gpu->memset_d32(0, b + MiB, 4711, 1, 0);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(b, shared), Status::ok);
  EXPECT_EQ(shared.offset_bytes, MiB);
  const std::string message = to_message(shared);
  const pid_t child = fork();
  if (child == 0) {
    // Descriptors are numbers of the parent's: those the child inherited are not used.
    for (SharedPiece& piece : shared.pieces) close(piece.handle.fd);
    simgpu::SimDriver own({.devices = {{.total_bytes = 32 * MiB}}, .keep_contents = true});
    SharedBlock told;
    std::string error;
    if (!from_message(message, told, error)) _exit(error.find("SYS_PTRACE") != error.npos ? 9 : 1);
    ImportedBlock imported(own, 0);
    if (imported.open(told) != DriverStatus::ok) _exit(2);
    std::uint32_t word = 0;
    own.copy_to_host(0, &word, imported.address() + MiB, sizeof word, 0);
    if (word != 4711) _exit(3);
    own.memset_d32(0, imported.address(), 42, 1, 0);
    _exit(own.violations().empty() ? 0 : 4);
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  if (WEXITSTATUS(ended) == 9) {
    GTEST_SKIP() << "this system lets no process take another's descriptors";
  }
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  EXPECT_EQ(word_at(b, 0), 42U);
  EXPECT_EQ(allocator->unshare(b), Status::ok);
  free(a);
  free(b);
}

TEST_F(Sharing, BadMessagesAreRefused) {
  start();
  const DeviceAddress a = alloc(4 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  const std::string message = to_message(shared);
  SharedBlock told;
  std::string error;
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_FALSE(from_message(message.substr(0, size), told, error)) << size;
  }
  EXPECT_FALSE(from_message(message + "x", told, error));
  EXPECT_THAT(error, HasSubstr("contradicts itself"));
  EXPECT_FALSE(from_message("hello", told, error));
  EXPECT_THAT(error, HasSubstr("no message about a block"));
  std::string gone = message;
  const std::uint64_t nobody = 4194304 + 5;  // above the largest process number
  std::memcpy(gone.data() + 16, &nobody, sizeof nobody);
  EXPECT_FALSE(from_message(gone, told, error));
  EXPECT_THAT(error, HasSubstr("cannot be had: it has ended"));
  EXPECT_TRUE(told.pieces.empty());
  SharedBlock wrong = shared;
  wrong.pieces.pop_back();
  ImportedBlock imported(*gpu, 0);
  EXPECT_EQ(imported.open(wrong), DriverStatus::invalid_value);
  EXPECT_FALSE(imported.is_open());
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

TEST_F(Sharing, AProcessThatHasTheNumberOfOneThatEndedIsNotTakenForIt) {
  start();
  const DeviceAddress a = alloc(4 * MiB);
  SharedBlock shared;
  ASSERT_EQ(allocator->share(a, shared), Status::ok);
  const std::string message = to_message(shared);
  SharedBlock told;
  std::string error;
  ASSERT_TRUE(from_message(message, told, error)) << error;
  close_descriptors(told);
  // The same descriptors of a process with this one's number that began earlier.
  std::string earlier = message;
  std::uint64_t began = 0;
  std::memcpy(&began, message.data() + 24, sizeof began);
  EXPECT_GT(began, 0U);
  --began;
  std::memcpy(earlier.data() + 24, &began, sizeof began);
  EXPECT_FALSE(from_message(earlier, told, error));
  EXPECT_THAT(error, HasSubstr("it has ended, and another process has that number now"));
  const pid_t child = fork();
  if (child == 0) {
    const bool taken = from_message(earlier, told, error);
    _exit(!taken && error.find("another process has that number") != error.npos ? 0 : 1);
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  std::string old = message;
  old[14] = '2';
  EXPECT_FALSE(from_message(old, told, error));
  EXPECT_THAT(error, HasSubstr("another version's"));
  EXPECT_EQ(allocator->unshare(a), Status::ok);
  free(a);
}

TEST_F(Sharing, IsRefusedWhereMemoryIsNotMadeForIt) {
  start({.settings = "share:none"});
  const DeviceAddress a = alloc(4 * MiB);
  SharedBlock shared;
  EXPECT_EQ(allocator->share(a, shared), Status::invalid_argument);
  EXPECT_EQ(allocator->share(a + 512, shared), Status::invalid_argument);
  free(a);
  allocator.reset();
  start({.settings = "share:fabric"});  // on a device that has none
  const DeviceAddress b = alloc(4 * MiB);
  EXPECT_EQ(allocator->share(b, shared), Status::invalid_argument);
  free(b);
}

TEST_F(Sharing, AnyCallMayFail) {
  start({.capacity = 32 * MiB});
  const DeviceAddress a = alloc(9 * MiB);
  for (std::uint64_t nth = 1;; ++nth) {
    SCOPED_TRACE(nth);
    faults->fail({.kind = {}, .nth = nth, .status = DriverStatus::unknown, .persistent = false});
    SharedBlock shared;
    const Status status = allocator->share(a, shared);
    ImportedBlock imported(*faults, 0);
    if (status == Status::ok) (void)imported.open(shared);
    const bool fired = faults->fired() != 0;
    faults->heal();
    EXPECT_EQ(imported.close(), DriverStatus::ok);
    EXPECT_EQ(allocator->unshare(a), status == Status::ok ? Status::ok : Status::invalid_argument);
    allocator->validate();
    if (!fired) break;
  }
  free(a);
  EXPECT_EQ(allocator->trim(), Status::ok);
  EXPECT_EQ(gpu->used_bytes(0), 0U);
}

TEST_F(Sharing, APoolWithPinsDoesNotSleep) {
  start();
  begin({0, 1});
  const DeviceAddress a = alloc(4 * MiB);
  end({0, 1});
  ASSERT_EQ(allocator->pin(a), Status::ok);
  EXPECT_EQ(allocator->sleep_pool({0, 1}, false), Status::invalid_argument);
  free(a);
  EXPECT_EQ(allocator->sleep_pool({0, 1}, false), Status::invalid_argument);
  release({0, 1});
  EXPECT_EQ(allocator->pool_live_bytes({0, 1}), 4 * MiB);  // the pool stays for it
  EXPECT_EQ(allocator->unpin(a), Status::ok);
  EXPECT_EQ(allocator->pool_live_bytes({0, 1}), 0U);
  EXPECT_EQ(try_alloc(4 * MiB), Status::ok);
  EXPECT_EQ(reserved(), 4 * MiB);
}

}  // namespace
}  // namespace gapless
