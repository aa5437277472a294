// Whether a process fits, by how it ended: the verdict, and the record it rests on.
#include "simgpu/verdict.h"

#include <csignal>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simgpu/process/read_watch.h"
#include "simgpu/process/recorder.h"
#include "tests/support/scratch_folder.h"

namespace gapless::simgpu {
namespace {

using ::testing::HasSubstr;
using Fits = Verdict::Fits;
using How = ProcessEnd::How;

const GpuProfile kGpu = parse_gpus("1GiB").front();

ProcessFacts ended(How how, int code, std::uint64_t out_of_memory = 0, std::uint64_t survived = 0) {
  ProcessFacts facts;
  facts.end = {how, code};
  facts.out_of_memory = out_of_memory;
  facts.survived = survived;
  return facts;
}

ProcessFacts raised(const std::string& type, bool is_out_of_memory, std::uint64_t out_of_memory = 0,
                    std::uint64_t survived = 0) {
  ProcessFacts facts = ended(How::exited, 1, out_of_memory, survived);
  facts.exception = {type, "words", is_out_of_memory};
  return facts;
}

TEST(Verdict, GarbageThatMayBeCollectedLaterIsNoYes) {
  ProcessFacts facts = ended(How::exited, 0);
  facts.collected = {3 << 20, 6 << 20};
  EXPECT_EQ(judge(facts).fits, Fits::yes);
  facts.collected = {5 << 20, 9 << 20};
  EXPECT_EQ(judge(facts).fits, Fits::not_known);
  EXPECT_THAT(judge(facts).reason,
              HasSubstr("freed 5.00 MiB at once, which reference cycles held; in another run it "
                        "may come later, and there was room for no more than 9.00 MiB"));

  facts = raised("OutOfMemoryError", true, 1);
  facts.waiting = {3 << 20, 4 << 20};
  EXPECT_EQ(judge(facts).fits, Fits::no);
  facts.waiting = {5 << 20, 4 << 20};
  EXPECT_EQ(judge(facts).fits, Fits::not_known);
  EXPECT_THAT(judge(facts).reason, HasSubstr("while 5.00 MiB were held by reference cycles"));
}

TEST(Verdict, PiecesThatLieWhereTheCollectorLeftThemAreNoNo) {
  ProcessFacts facts = raised("OutOfMemoryError", true, 1);
  facts.collected = {800 << 20, 0};
  EXPECT_EQ(judge(facts).fits, Fits::no);
  facts.in_pieces_after = 800 << 20;
  EXPECT_EQ(judge(facts).fits, Fits::not_known);
  EXPECT_TRUE(judge(facts).by_garbage);
  EXPECT_THAT(judge(facts).reason, HasSubstr("in pieces, and where those lie hangs on when"));
}

TEST(Verdict, StoppedBeforeAnOptimizerHadItsStatesIsNoYes) {
  ProcessFacts facts = ended(How::exited, 0);
  facts.without_step = 1;
  EXPECT_EQ(judge(facts).fits, Fits::not_known);
  EXPECT_THAT(judge(facts).reason, HasSubstr("(--steps) before an optimizer had made a step"));
  facts.without_step = 2;
  EXPECT_THAT(judge(facts).reason, HasSubstr("(--steps) before 2 optimizers had made a step"));
}

TEST(Verdict, WhatAHelperMetLastIsWhyItsCommandFailed) {
  ProcessFacts kernel = ended(How::exited, 0, 1, 0);
  EXPECT_EQ(judge(kernel).text(), "yes, after 1 out of memory");
  kernel.command_failed = true;
  EXPECT_EQ(judge(kernel).text(), "no");
  kernel = ended(How::exited, 0, 2, 2);  // it went on, and the command failed of something else
  kernel.command_failed = true;
  EXPECT_EQ(judge(kernel).text(), "yes, after 2 out of memory");
  kernel = ended(How::continued, 0, 1, 0);
  kernel.command_failed = true;
  EXPECT_EQ(judge(kernel).text(), "yes, after 1 out of memory");
}

TEST(Verdict, OnlyAGoodEndIsAYes) {
  EXPECT_EQ(judge(ended(How::exited, 0)).text(), "yes");
  EXPECT_EQ(judge(ended(How::continued, 0)).text(), "yes");
  for (const How how : {How::not_known, How::running, How::exited, How::signalled, How::replaced}) {
    for (const std::uint64_t refused : {0, 1, 5}) {
      for (std::uint64_t survived = 0; survived <= refused; ++survived) {
        const int code = how == How::signalled ? SIGSEGV : 1;
        EXPECT_NE(judge(ended(how, code, refused, survived)).fits, Fits::yes);
        ProcessFacts facts = ended(how, code, refused, survived);
        facts.exception = {"ValueError", "", false};
        EXPECT_NE(judge(facts).fits, Fits::yes);
      }
    }
  }
}

TEST(Verdict, WhatIsKilledAfterItsExceptionEndedByThat) {
  for (const How how : {How::not_known, How::running, How::signalled, How::stopped}) {
    ProcessFacts facts = raised("OutOfMemoryError", true, 1);
    facts.end = {how, SIGTERM};
    EXPECT_EQ(judge(facts).text(), "no");
    facts.exception->out_of_memory = false;
    EXPECT_EQ(judge(facts).text(), "not known");
    facts.exception.reset();
    EXPECT_EQ(judge(facts).text(), "not known");
  }
}

TEST(Verdict, WhatTheProgramItselfEndsMayHaveBeenDone) {
  ProcessFacts facts = ended(How::stopped, SIGKILL, 1, 1);
  EXPECT_EQ(judge(facts).text(), "yes, after 1 out of memory");
  facts.command_failed = true;
  EXPECT_EQ(judge(facts).reason, "the program itself ended it, by SIGKILL");
  // It was out of memory, and had no more since.
  facts.survived = 0;
  EXPECT_EQ(judge(facts).text(), "no");
  facts.command_failed = false;
  EXPECT_EQ(judge(facts).text(), "not known");
  facts = raised("ValueError", false);
  facts.end = {How::stopped, SIGTERM};
  EXPECT_EQ(judge(facts).reason, "the program itself ended it, by SIGTERM (ValueError: words)");
}

TEST(Verdict, OutOfMemoryThatWasCaughtIsCounted) {
  EXPECT_EQ(judge(ended(How::exited, 0, 1, 1)).text(), "yes, after 1 out of memory");
  EXPECT_EQ(judge(ended(How::exited, 0, 3, 2)).text(), "yes, after 3 out of memory");
  // What is raised in a program that ends well was caught.
  ProcessFacts facts = ended(How::exited, 0, 1, 0);
  facts.exception = {"OutOfMemoryError", "", true};
  EXPECT_EQ(judge(facts).text(), "yes, after 1 out of memory");
}

TEST(Verdict, NoIsAnEndByOutOfMemory) {
  EXPECT_EQ(judge(raised("OutOfMemoryError", true, 1)).text(), "no");
  // Others of its threads were given memory before it came to its end.
  EXPECT_EQ(judge(raised("OutOfMemoryError", true, 2, 2)).fits, Fits::no);
  // It was told by an error only that is none of the allocator's.
  EXPECT_EQ(judge(raised("AcceleratorError", true)).fits, Fits::no);
  // Who gives up in the same breath does so because of it.
  EXPECT_EQ(judge(raised("RuntimeError", false, 1)).fits, Fits::no);
  EXPECT_EQ(judge(ended(How::exited, 1, 1)).fits, Fits::no);
  EXPECT_EQ(judge(ended(How::signalled, SIGABRT, 1)).fits, Fits::no);
  const Verdict later = judge(ended(How::exited, 1, 4, 3));
  EXPECT_EQ(later.fits, Fits::no);
  EXPECT_EQ(later.caught, 3U);
}

TEST(Verdict, AThreadThatEndedByItIsANo) {
  ProcessFacts facts = ended(How::exited, 0, 1, 1);
  facts.thread_ended = true;
  EXPECT_EQ(judge(facts).fits, Fits::no);
  facts.end = {How::signalled, SIGKILL};
  EXPECT_EQ(judge(facts).fits, Fits::not_known);
}

TEST(Verdict, OtherErrorsLeaveItOpenAndSayWhich) {
  const Verdict failed = judge(raised("ValueError", false, 2, 2));
  EXPECT_EQ(failed.text(), "not known");
  EXPECT_EQ(failed.reason, "it ended with status 1 (ValueError: words)");
  EXPECT_EQ(failed.caught, 2U);
  EXPECT_EQ(judge(ended(How::exited, 7, 1, 1)).reason, "it ended with status 7");
  ProcessFacts missed = ended(How::exited, 7);
  missed.not_simulated = {"cuFoo", "the CUDA runtime linked into libfoo.so"};
  EXPECT_EQ(judge(missed).reason,
            "it ended with status 7; it had asked for what is not simulated: cuFoo, the CUDA "
            "runtime linked into libfoo.so");
  EXPECT_EQ(judge(ended(How::signalled, SIGKILL, 1)).reason, "it was ended by SIGKILL");
  EXPECT_EQ(judge(ended(How::signalled, SIGABRT)).reason, "it was ended by SIGABRT");
  EXPECT_THAT(judge(ended(How::not_known, 0, 1)).reason, HasSubstr("no word of its end"));
  ProcessFacts met = raised("ValueError", false);
  met.end = {How::not_known, 0};
  EXPECT_EQ(judge(met).reason, "it was ended by others on its way out (ValueError: words)");
  EXPECT_THAT(judge(ended(How::running, 0)).reason, HasSubstr("still running"));
}

// The program did nothing wrong, and its GPU had room: where to look is this machine.
TEST(Verdict, ThatTheHostsMemoryRanOutIsSaid) {
  ProcessFacts killed = ended(How::signalled, SIGKILL);
  killed.host_memory_ran_out = true;
  EXPECT_EQ(judge(killed).reason,
            "it was ended by SIGKILL when this machine's own memory had run out");
  killed.end = {How::not_known, 0};  // a rank's
  EXPECT_THAT(judge(killed).reason, HasSubstr("since this machine's own memory had run out"));
  killed.end = {How::signalled, SIGTERM};
  EXPECT_EQ(judge(killed).reason, "it was ended by SIGTERM");
}

TEST(Verdict, WhoPassesOverAnAssertionOfAKernelFitsNowhere) {
  ProcessFacts caught = ended(How::exited, 0);
  caught.asserted = true;
  EXPECT_EQ(judge(caught).fits, Verdict::Fits::not_known);
  EXPECT_THAT(judge(caught).reason, HasSubstr("assertion does not hold"));
}

TEST(Verdict, ThatThereAreTooFewGpusIsSaid) {
  ProcessFacts rank = ended(How::exited, 1);
  rank.too_few_gpus = "GPU 1 was asked for";
  EXPECT_EQ(judge(rank).reason, "it ended with status 1; GPU 1 was asked for");
  rank.end = {How::exited, 0};
  EXPECT_EQ(judge(rank).fits, Verdict::Fits::yes);  // it may have looked how many there are
}

TEST(Verdict, WhatFoundNoGpuIsNotCounted) {
  ProcessFacts facts = ended(How::exited, 0);
  facts.not_simulated = {"cuFoo"};
  EXPECT_EQ(judge(facts).fits, Fits::yes);
  facts.not_simulated.push_back(std::string(kLinkedRuntime) + "libspeech.so");
  EXPECT_EQ(judge(facts).text(), "not known");
  EXPECT_THAT(judge(facts).reason,
              HasSubstr("the CUDA runtime linked into libspeech.so cannot run"));
}

TEST(Recorder, KeepsNothingBeforeAGpuIsUsed) {
  const ScratchFolder folder;
  Recorder recorder(folder.path());
  recorder.count(DriverCall::mem_alloc);
  recorder.end(ProcessRecord::End::exited, 0);
  EXPECT_FALSE(recorder.kept());
  EXPECT_EQ(recorder.stem(), "");
  recorder.used(1, 1, kGpu, 5000);
  const auto record = read_record(recorder.stem() + ".gpu");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->calls[static_cast<std::size_t>(DriverCall::mem_alloc)], 1U);
  EXPECT_EQ(record->devices[0].total_bytes, 0U);
  EXPECT_EQ(record->devices[1].total_bytes, 1U << 30);
  EXPECT_EQ(record->end, ProcessRecord::End::none);
}

TEST(Recorder, WhatIsKnownIsInTheFileAtOnce) {
  const ScratchFolder folder;
  Recorder recorder(folder.path());
  recorder.used(0, 0, kGpu, 5000);
  recorder.used(0, 0, kGpu, 4000);
  recorder.allocated(0, 300, 400);
  recorder.allocated(0, 200, 500);
  recorder.ran_out({0, 900, 200, 500});
  recorder.ran_out({1, 800, 200, 500});
  for (int i = 0; i < 2; ++i) {
    recorder.guessed("libcudnn.so.9");
    recorder.missed("cuFoo");
  }
  recorder.missed("the CUDA runtime linked into " + std::string(1000, 'x'));  // too long to keep
  recorder.missed("cuFooBar");
  auto record = read_record(recorder.stem() + ".gpu").value();
  EXPECT_EQ(record.devices[0].peak_used_bytes, 5000U);
  EXPECT_EQ(record.devices[0].peak_allocated_bytes, 300U);
  EXPECT_EQ(record.devices[0].peak_reserved_bytes, 500U);
  EXPECT_EQ(record.first.asked_bytes, 900U);
  EXPECT_EQ(record.last.device, 1);
  EXPECT_EQ(record.out_of_memory, 2U);
  EXPECT_EQ(record.survived, 0U);
  EXPECT_STREQ(record.unknown_workspaces, "libcudnn.so.9 ");
  EXPECT_STREQ(record.not_simulated, "cuFoo\ncuFooBar\n");
  recorder.allocated(0, 100, 500);
  recorder.end(ProcessRecord::End::exited, 3);
  record = read_record(recorder.stem() + ".gpu").value();
  EXPECT_EQ(record.survived, 2U);
  EXPECT_EQ(record.end_status, 3);
}

TEST(Recorder, ARefusalIsForGoodWhereNobodyTriesAgain) {
  Recorder recorder("");
  recorder.refused(0, 900, 100, /*by_driver=*/true);
  recorder.refused(0, 900, 100, /*by_driver=*/false);
  EXPECT_EQ(recorder.record().out_of_memory, 2U);
  recorder.allocated(0, 100, 100);  // only PyTorch says so
  recorder.refused(0, 900, 100, /*by_driver=*/false);
  EXPECT_EQ(recorder.record().out_of_memory, 2U);
}

TEST(Recorder, TheNextProgramInAProcessHasARecordOfItsOwn) {
  const ScratchFolder folder;
  Recorder first(folder.path());
  Recorder second(folder.path());
  first.used(0, 0, kGpu, 5000);
  second.used(0, 0, kGpu, 6000);
  EXPECT_THAT(first.stem(), ::testing::EndsWith(std::to_string(getpid()) + ".0"));
  EXPECT_THAT(second.stem(), ::testing::EndsWith(std::to_string(getpid()) + ".1"));
}

TEST(Recorder, AChildHasNothingOfItsParents) {
  const ScratchFolder folder;
  Recorder used(folder.path());
  used.used(0, 0, kGpu, 5000);
  Recorder fresh(folder.path());
  const auto in_child = [](auto&& check) {
    const pid_t child = fork();
    if (child == 0) _exit(check() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  // It cannot use what its parent had begun with; what it says is not the parent's end.
  EXPECT_EQ(in_child([&] {
              used.end(ProcessRecord::End::exited, 9);
              used.forget();
              used.used(0, 0, kGpu, 9000);
              return !used.kept();
            }),
            0);
  const auto record = read_record(used.stem() + ".gpu").value();
  EXPECT_EQ(record.end, ProcessRecord::End::none);
  EXPECT_EQ(record.devices[0].peak_used_bytes, 5000U);
  EXPECT_EQ(in_child([&] {
              fresh.forget();
              fresh.used(0, 0, kGpu, 9000);
              return fresh.kept() && fresh.stem().ends_with(std::to_string(getpid()) + ".0") &&
                     read_record(fresh.stem() + ".gpu")->devices[0].peak_used_bytes == 9000;
            }),
            0);
  EXPECT_FALSE(fresh.kept());
}

TEST(Recorder, OtherFilesAreNoRecords) {
  const ScratchFolder folder;
  EXPECT_FALSE(read_record(folder.file("none")));
  std::ofstream(folder.file("short.gpu")) << "gpu";
  EXPECT_FALSE(read_record(folder.file("short.gpu")));
  std::ofstream(folder.file("long.gpu")) << std::string(2 * sizeof(ProcessRecord), 'x');
  EXPECT_FALSE(read_record(folder.file("long.gpu")));
}

TEST(ReadWatch, TellsOfALoopButNotOfACheckpoint) {
  ReadWatch loop;
  std::vector<std::uint64_t> told;
  for (int i = 0; i < 12'000; ++i) {
    // A loop's value comes to lie in one of two places.
    if (const std::uint64_t times = loop.read(4096 + 512 * (i % 2), 4)) told.push_back(times);
  }
  EXPECT_THAT(told, ::testing::ElementsAre(1000));
  for (int i = 0; i < 8'000; ++i) (void)loop.read(4096, 4);
  EXPECT_EQ(loop.read(4096, 4), 0U);
  ReadWatch checkpoint;
  for (int save = 0; save < 10; ++save) {
    for (std::uint64_t tensor = 0; tensor < 5'000; ++tensor) {
      EXPECT_EQ(checkpoint.read(512 * tensor, 4), 0U);
    }
  }
  for (int i = 0; i < 5'000; ++i) EXPECT_EQ(checkpoint.read(0, ReadWatch::kLargest + 1), 0U);
}

}  // namespace
}  // namespace gapless::simgpu
