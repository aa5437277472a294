// A file's bytes, piece by piece, while the next piece is read by another thread.
#include "allocator/base/byte_source.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

using ::testing::HasSubstr;

std::string any_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string rest_of(ByteSource& source) {
  std::string all;
  for (std::string_view piece = source.next(); !piece.empty(); piece = source.next()) all += piece;
  return all;
}

class FileSource : public ::testing::Test {
 protected:
  std::unique_ptr<ByteSource> opened(const std::string& bytes) {
    std::ofstream(folder.file("bytes"), std::ios::binary) << bytes;
    return open_bytes(folder.file("bytes"));
  }

  ScratchFolder folder;
};

TEST_F(FileSource, GivesAllOfItAsOftenAsItIsRead) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{MiB - 1}, std::size_t{MiB},
                                  std::size_t{MiB + 1}, std::size_t{5 * MiB / 2}}) {
    const std::string bytes = any_bytes(count);
    const std::unique_ptr<ByteSource> source = opened(bytes);
    EXPECT_EQ(source->size(), count);
    EXPECT_TRUE(rest_of(*source) == bytes) << count;
    EXPECT_TRUE(source->next().empty());
    source->rewind();
    EXPECT_TRUE(rest_of(*source) == bytes) << count;
  }
}

TEST_F(FileSource, BeginsAnewWhileTheNextPieceIsRead) {
  const std::string bytes = any_bytes(4 * MiB);
  const std::unique_ptr<ByteSource> source = opened(bytes);
  for (int pieces = 0; pieces < 4; ++pieces) {
    for (int i = 0; i < pieces; ++i) (void)source->next();
    source->rewind();
    const std::string_view piece = source->next();
    EXPECT_TRUE(bytes.starts_with(piece)) << pieces;
    source->rewind();
  }
  EXPECT_LE(source->held_bytes(), 2 * MiB);
  (void)source->next();  // and is let go of while the next is read
}

TEST_F(FileSource, WhatBecomesShorterMeanwhileIsAnError) {
  const std::unique_ptr<ByteSource> source = opened(any_bytes(4 * MiB));
  (void)source->next();
  (void)source->next();
  std::filesystem::resize_file(folder.file("bytes"), 3 * MiB);
  // The third piece may have been read before; the fourth is not there.
  try {
    (void)rest_of(*source);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bytes: the file changed while it was read"));
  }
  source->rewind();
  EXPECT_EQ(source->next().size(), MiB);
}

// As a process of its own: of root's threads there is no limit, so it becomes somebody else.
void read_without_threads(ByteSource& source, const std::string& bytes) {
  constexpr uid_t kNobody = 65534;
  const rlimit none{0, 0};
  if ((geteuid() == 0 && setuid(kNobody) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
  pthread_t thread{};
  const auto nothing = [](void*) -> void* { return nullptr; };
  if (pthread_create(&thread, nullptr, nothing, nullptr) == 0) _exit(3);
  _exit(rest_of(source) == bytes ? 0 : 1);
}

TEST_F(FileSource, IsReadWithoutThreadsWhereThereAreNoMore) {
  const std::string bytes = any_bytes(3 * MiB);
  const std::unique_ptr<ByteSource> source = opened(bytes);
  EXPECT_EXIT(read_without_threads(*source, bytes), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gapless
