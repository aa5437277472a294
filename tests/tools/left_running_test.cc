// What a command leaves running when it has ended.
#include "tools/left_running.h"

#include <chrono>
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/scratch_folder.h"
#include "tools/launch.h"

namespace gapless::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = LeftRunning::Clock;

void run_in_shell(const std::string& line) { (void)run_program({"sh", "-c", line}, {}); }

void wait_for(LeftRunning& left) {
  while (left.at_work(Clock::now())) usleep(10'000);
}

TEST(LeftRunning, NothingIsWaitedForWhereNothingIsLeft) {
  LeftRunning left;
  run_in_shell("true");
  EXPECT_FALSE(left.at_work(Clock::now()));
  EXPECT_THAT(left.told({}), IsEmpty());
}

TEST(LeftRunning, WhatWorksIsWaitedForToItsEnd) {
  const ScratchFolder folder;
  LeftRunning left;
  run_in_shell("(i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; echo done > '" +
               folder.file("end") + "') &");
  EXPECT_TRUE(left.at_work(Clock::now()));
  EXPECT_THAT(left.names(), HasSubstr("sh -c"));
  wait_for(left);
  std::string word;
  std::ifstream(folder.file("end")) >> word;
  EXPECT_EQ(word, "done");
  EXPECT_THAT(left.told({}), IsEmpty()) << "it ended well";
}

TEST(LeftRunning, WhatFailsIsToldUnlessItIsJudged) {
  LeftRunning left;
  run_in_shell("(i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; exit 3) &");
  wait_for(left);
  EXPECT_THAT(left.told({}),
              ElementsAre(HasSubstr("which the command left running, ended with status 3")));
}

TEST(LeftRunning, HelpersThatEndWithTheCommandAreNotTold) {
  LeftRunning left;
  // It waits for the shell that started it; the other is started as that ends.
  run_in_shell(
      "sh -c 'while kill -0 $0 2>/dev/null; do "
      "sleep 0.1; done; sleep 0.7; exit 1' $$ & sleep 4; (sleep 0.7; exit 2) &");
  wait_for(left);
  EXPECT_THAT(left.told({}), ElementsAre(HasSubstr("ended with status 2")));
}

TEST(LeftRunning, WhatDoesNothingIsWaitedForSomeSecondsAndEnded) {
  const ScratchFolder folder;
  pid_t sleeper = 0;
  {
    LeftRunning left;
    run_in_shell("sleep 1000 & echo $! > '" + folder.file("pid") + "'");
    std::ifstream(folder.file("pid")) >> sleeper;
    ASSERT_GT(sleeper, 0);
    const Clock::time_point now = Clock::now();
    EXPECT_TRUE(left.at_work(now));
    EXPECT_TRUE(left.at_work(now + std::chrono::seconds(8)));
    EXPECT_FALSE(left.at_work(now + std::chrono::seconds(12)));
    EXPECT_EQ(kill(sleeper, 0), 0) << "it is there until it is told";
    EXPECT_THAT(left.told({}), ElementsAre(HasSubstr("sleep 1000")));
    EXPECT_THAT(left.told({sleeper}), IsEmpty());
  }
  EXPECT_NE(kill(sleeper, 0), 0);
}

TEST(LeftRunning, WhatItsChildrenDoIsWork) {
  LeftRunning left;
  run_in_shell(
      "sh -c 'sh -c \"while :; do :; done\"; true' &");  // one that waits for one that works
  const Clock::time_point now = Clock::now();
  EXPECT_TRUE(left.at_work(now));
  usleep(3'000'000);
  EXPECT_TRUE(left.at_work(now + std::chrono::seconds(11)));
}

TEST(LeftRunning, WhatWasThereBeforeIsNot) {
  const pid_t mine = fork();
  if (mine == 0) {
    pause();
    _exit(0);
  }
  {
    LeftRunning left;
    run_in_shell("true");
    EXPECT_FALSE(left.at_work(Clock::now()));
  }
  EXPECT_EQ(kill(mine, 0), 0);
  kill(mine, SIGKILL);
}

}  // namespace
}  // namespace gapless::tools
