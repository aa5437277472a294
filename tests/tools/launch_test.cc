// Programs that the command starts: with gapless or the simulated GPU in front of them, from
// wherever it lies, or not at all.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "allocator/base/error.h"
#include "simgpu/preload_path.h"
#include "tests/support/scratch_folder.h"

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

struct Output {
  int status = -1;
  std::string text;  // standard output and error together
};

Output shell(const std::string& line) {
  Output output;
  FILE* pipe = popen((line + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.text.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

class Launch : public ::testing::Test {
 protected:
  Launch() {
    setenv("XDG_CACHE_HOME", folder.file("cache").c_str(), 1);
    fs::create_directories(folder.file("temporary"));
    setenv("TMPDIR", folder.file("temporary").c_str(), 1);
    unsetenv("GAPLESS_CONF");
  }
  ~Launch() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TMPDIR");
  }

  // All of gapless, installed in a folder of that name; the command, quoted.
  std::string installed_in(const std::string& title) const {
    const fs::path there = folder.file(title);
    fs::create_directories(there / "bin");
    fs::copy_file(GAPLESS_COMMAND, there / "bin" / "gapless");
    fs::create_directories(there / "lib" / "simgpu");
    for (const fs::path part : {"", "simgpu"}) {
      for (const auto& entry : fs::directory_iterator(GAPLESS_LIBRARIES / part)) {
        const fs::path name = there / "lib" / part / entry.path().filename();
        if (!fs::exists(name)) fs::create_symlink(entry.path(), name);
      }
    }
    return "'" + (there / "bin" / "gapless").string() + "'";
  }

  gapless::ScratchFolder folder;
};

// Which libraries of gapless a program's child has been given.
const std::string kWhich =
    " -- sh -c 'grep -o \"libgapless_preload.so\\|libsimgpu.so\" /proc/self/maps | sort -u'";

class LaunchFrom : public Launch, public ::testing::WithParamInterface<const char*> {};

TEST_P(LaunchFrom, RunAndDryrunReachThePrograms) {
  const std::string command = installed_in(GetParam());
  const Output run = shell(command + " run" + kWhich);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.text, "libgapless_preload.so\n");
  const Output dryrun = shell(command + " dryrun --gpu 1GiB --allocator gapless" + kWhich);
  EXPECT_EQ(dryrun.status, 0);
  EXPECT_THAT(dryrun.text, HasSubstr("libgapless_preload.so\nlibsimgpu.so\n"));
  EXPECT_THAT(dryrun.text, Not(HasSubstr("ERROR")));
}

INSTANTIATE_TEST_SUITE_P(AnyFolder, LaunchFrom,
                         ::testing::Values("plain", "with space", "with:colon", "with$LIB",
                                           "all of : $them"));

TEST_F(Launch, EachRunReadsTheWholeFileThatItIsGiven) {
  const std::string lines = folder.file("lines");
  std::ofstream(lines) << "one\ntwo\nthree\n";
  const std::string program = " -- sh -c 'read a; read b; echo \"<$a $b>\"; exit 1'";
  const std::string fits = std::string(GAPLESS_COMMAND) + " fits --allocator native,expandable";
  // What has been read of it before is not read again, and what follows can read on.
  const Output shown = shell("{ read first; " + fits + " --show-output" + program +
                             "; read next; echo next=$next; } < " + lines);
  EXPECT_THAT(shown.text, HasSubstr("<two three>")) << shown.text;
  EXPECT_THAT(shown.text, HasSubstr("next=two")) << shown.text;
  const Output kept = shell(fits + program + " < " + lines);
  EXPECT_THAT(kept.text, HasSubstr("<one two>")) << kept.text;
  EXPECT_THAT(shell("cat " + lines + " | " + fits + program).text, HasSubstr("< >"));
  // A pipe is read to its end where the command says that it is for the program.
  const std::string dryrun = std::string(GAPLESS_COMMAND) + " dryrun --allocator native,expandable";
  const Output piped = shell("echo 'echo said' | " + dryrun + " -- sh -s -");
  EXPECT_NE(piped.text.find("said"), piped.text.rfind("said")) << piped.text;
  const Output twice = shell(std::string(GAPLESS_COMMAND) +
                             " dryrun --allocator native,expandable" + program + " < " + lines);
  EXPECT_THAT(twice.text, HasSubstr("<one two>")) << twice.text;
}

TEST_F(Launch, WhereNoLinkCanBeMadeNothingIsStarted) {
  const std::string command = installed_in("with space");
  const std::string no_place =
      "HOME='/no where' XDG_CACHE_HOME='/no where' TMPDIR='" + folder.file("with space") + "' ";
  const Output refused = shell(no_place + command + " run -- echo started");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.text, HasSubstr("no place for a link to it"));
  EXPECT_THAT(refused.text, Not(HasSubstr("started")));
}

TEST_F(Launch, LinksLieWhereOnlyTheUserCanChangeThem) {
  fs::create_directories(folder.file("a b"));
  const fs::path link = gapless::simgpu::preloadable(folder.file("a b"));
  EXPECT_EQ(link.parent_path(), folder.file("cache/gapless/links"));
  EXPECT_TRUE(fs::equivalent(link, folder.file("a b")));
  EXPECT_EQ(gapless::simgpu::preloadable(folder.file("a b")), link);  // one for each folder
  // Somebody else has put another there, or could: it is not used.
  fs::remove(link);
  fs::create_directory_symlink("/", link);
  EXPECT_NE(gapless::simgpu::preloadable(folder.file("a b")), link);
  fs::remove(link);
  ASSERT_EQ(chmod(folder.file("cache/gapless").c_str(), 0777), 0);
  EXPECT_NE(gapless::simgpu::preloadable(folder.file("a b")), link);
  EXPECT_FALSE(fs::exists(link));
  // What LD_PRELOAD can hold needs no link; what is not there is said.
  fs::create_directories(folder.file("plain"));
  EXPECT_EQ(gapless::simgpu::preloadable(folder.file("plain")),
            fs::canonical(folder.file("plain")));
  EXPECT_THROW(gapless::simgpu::preloadable(folder.file("absent")), gapless::InputError);
}

TEST_F(Launch, OptionsThatCannotBeUnderstoodStopItBefore) {
  const std::string command = GAPLESS_COMMAND;
  const std::string echo = " -- echo started";
  for (const std::string& line :
       {command + " run --conf limit:14XiB" + echo,
        "GAPLESS_CONF=limit:14XiB " + command + " run" + echo,
        command + " dryrun --allocator gapless --conf limit:14XiB" + echo,
        "GAPLESS_CONF=limit:14XiB " + command + " dryrun --allocator native,gapless" + echo}) {
    const Output refused = shell(line);
    EXPECT_EQ(refused.status, 2) << line;
    EXPECT_THAT(refused.text, HasSubstr("option limit: \"14XiB\": expected a size")) << line;
    EXPECT_THAT(refused.text, Not(HasSubstr("started"))) << line;
  }
  // What is given with the command counts, not the variable.
  const Output good =
      shell("GAPLESS_CONF=limit:14XiB " + command + " run --conf limit:14GiB" + echo);
  EXPECT_EQ(good.text, "started\n");
  EXPECT_THAT(shell(command + " run --conf limt:1GiB" + echo).text, HasSubstr("\"limit\""));
}

}  // namespace
