// Whole files in and out: what is replaced, what is written to, and what stays as it was.
#include "allocator/base/files.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/text_of_file.h"
#include "tests/support/scratch_folder.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Files : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& bytes) {
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
    return folder.file(name);
  }
  std::string error_of_write(const std::string& path, const std::string& bytes = "new") {
    try {
      write_file(path, bytes);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }
  static mode_t mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0);
    return facts.st_mode & 07777;
  }
  ScratchFolder folder;
};

TEST_F(Files, AreReadToTheirEnd) {
  std::string bytes(300000, 'a');
  bytes[150000] = '\0';
  EXPECT_EQ(read_file(make("file", bytes)), bytes);
  EXPECT_EQ(read_file(make("empty", "")), "");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << bytes; });
  EXPECT_EQ(read_file(pipe), bytes);
  writer.join();
  EXPECT_THROW(read_file(folder.path()), InputError);
  EXPECT_THROW(read_file(folder.file("absent")), InputError);
  EXPECT_THROW(read_file("/dev/zero"), InputError);  // which has no end
}

TEST_F(Files, AreReplacedWholeAndKeepTheirPermissions) {
  const std::string path = make("out", "old");
  chmod(path.c_str(), 0640);
  write_file(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(mode_of(path), 0640U);
  const mode_t before = umask(027);
  write_file(folder.file("fresh"), "1");
  umask(before);
  EXPECT_EQ(mode_of(folder.file("fresh")), 0640U);
  EXPECT_THAT(names(), UnorderedElementsAre("out", "fresh"));
}

TEST_F(Files, NoNameThatCanBeGuessedIsWrittenTo) {
  const std::string victim = make("victim", "precious");
  const std::string out = folder.file("out");
  for (const char* ending : {".part", ".tmp", "~"}) fs::create_symlink(victim, out + ending);
  write_file(out, "new");
  EXPECT_EQ(read_file(victim), "precious");
  EXPECT_EQ(read_file(out), "new");
  EXPECT_TRUE(fs::is_symlink(out + ".part"));
}

TEST_F(Files, OfTwoWritersOneWinsWhole) {
  const std::string out = folder.file("out");
  std::atomic<int> failures{0};
  const auto write_often = [&](char letter) {
    const std::string bytes(200000, letter);
    for (int i = 0; i < 200; ++i) {
      if (!error_of_write(out, bytes).empty()) ++failures;
    }
  };
  std::thread other(write_often, 'b');
  write_often('a');
  other.join();
  EXPECT_EQ(failures, 0);
  const std::string left = read_file(out);
  EXPECT_EQ(left, std::string(200000, left[0]));
  EXPECT_THAT(names(), ElementsAre("out"));
}

TEST_F(Files, ALinkStaysAndWhatItNamesIsReplaced) {
  fs::create_directory(folder.file("disk"));
  const std::string target = make("disk/run", "old");
  fs::create_symlink("disk/run", folder.file("latest"));
  write_file(folder.file("latest"), "new");
  EXPECT_TRUE(fs::is_symlink(folder.file("latest")));
  EXPECT_FALSE(fs::is_symlink(target));
  EXPECT_EQ(read_file(target), "new");
  fs::create_symlink("nowhere", folder.file("broken"));
  EXPECT_THAT(error_of_write(folder.file("broken")), HasSubstr("broken: is a link to what cannot"));
  EXPECT_FALSE(fs::exists(folder.file("nowhere")));
  fs::create_symlink("loop", folder.file("loop"));
  EXPECT_NE(error_of_write(folder.file("loop")), "");
}

TEST_F(Files, PipesAreWrittenToAndStay) {
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("pipe", folder.file("link"));
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  for (const char* name : {"pipe", "link"}) {
    write_file(folder.file(name), "through");
    char got[16] = "";
    EXPECT_EQ(read(reader, got, sizeof got), 7);
    EXPECT_STREQ(got, "through");
  }
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_THAT(names(), UnorderedElementsAre("pipe", "link"));
}

TEST_F(Files, DevicesAreWrittenToAndStay) {
  const std::string null = folder.device(3);
  const std::string full = folder.device(7);
  if (null.empty() || full.empty()) GTEST_SKIP() << "only root makes devices";
  fs::create_symlink(null, folder.file("link"));
  write_file(null, "gone");
  write_file(folder.file("link"), "gone");
  EXPECT_TRUE(fs::is_character_file(null));
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_THAT(error_of_write(full), HasSubstr(": No space left on device"));
  EXPECT_TRUE(fs::is_character_file(full));
}

TEST_F(Files, WhatCannotBeWrittenIsKnownBefore) {
  EXPECT_EQ(cannot_write(make("there", "")), "");
  EXPECT_EQ(cannot_write(folder.file("fresh")), "");
  EXPECT_EQ(cannot_write("fresh"), "");
  EXPECT_EQ(cannot_write(folder.path()), "Is a directory");
  EXPECT_EQ(cannot_write(folder.file("no/such")), "No such file or directory");
  fs::create_symlink("nowhere", folder.file("broken"));
  EXPECT_EQ(cannot_write(folder.file("broken")), "No such file or directory");
  EXPECT_EQ(cannot_write("/dev/null"), "");
  EXPECT_THAT(names(), UnorderedElementsAre("there", "broken"));
}

TEST_F(Files, AFolderIsNoFile) {
  EXPECT_THAT(error_of_write(folder.path()), HasSubstr(": is a folder"));
  EXPECT_THAT(error_of_write(folder.file("no/such")), HasSubstr("no/such: "));
  EXPECT_THAT(error_of_write(make("file", "") + "/below"), HasSubstr("Not a directory"));
}

TEST_F(Files, AFullDiskLeavesWhatWasThere) {
  const std::string path = make("out", "old");
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 100000, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string replaced = error_of_write(path, std::string(200000, 'a'));
  const std::string fresh = error_of_write(folder.file("fresh"), std::string(200000, 'a'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(replaced, HasSubstr("out: File too large"));
  EXPECT_THAT(fresh, HasSubstr("fresh: File too large"));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), ElementsAre("out"));
}

// As a user who may not: root may always.
class ForbiddenFiles : public Files {
 protected:
  ForbiddenFiles() {
    chmod(folder.path().c_str(), 0777);
    if (geteuid() == 0 && seteuid(65534) != 0) ADD_FAILURE() << "cannot become nobody";
  }
  ~ForbiddenFiles() override {
    if (getuid() == 0 && seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }
};

TEST_F(ForbiddenFiles, AreNamedWithTheCause) {
  fs::create_directory(folder.file("closed"));
  const std::string inside = make("closed/out", "old");
  chmod(folder.file("closed").c_str(), 0555);
  EXPECT_THAT(error_of_write(folder.file("closed/fresh")),
              HasSubstr("closed/fresh: no file can be made in its folder: Permission denied"));
  EXPECT_THAT(error_of_write(inside), HasSubstr("no file can be made in its folder"));
  for (const char* name : {"closed/fresh", "closed/out"}) {
    EXPECT_EQ(cannot_write(folder.file(name)), "Permission denied");
  }
  EXPECT_EQ(read_file(inside), "old");
  chmod(folder.file("closed").c_str(), 0755);
  const std::string kept = make("kept", "old");
  chmod(kept.c_str(), 0444);  // whose owner said that it is not to be written
  EXPECT_THAT(error_of_write(kept), HasSubstr("kept: Permission denied"));
  EXPECT_EQ(read_file(kept), "old");
}

// As a file of /proc is whose process ends between its opening and its reading.
TEST_F(Files, WhatCannotBeReadHasNoText) {
  EXPECT_EQ(text_of_file(make("some", "some\n")), "some\n");
  EXPECT_EQ(text_of_file(make("none", "")), "");
  EXPECT_EQ(text_of_file(folder.file("absent")), "");
  EXPECT_EQ(text_of_file("/proc/self"), "");
  EXPECT_EQ(text_of_file("/proc/self/mem"), "");
}

}  // namespace
}  // namespace gapless
