// Kernels as a whole: divergence, barriers, blocks that wait for each other, and what is judged.
#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simgpu/ptx/error.h"
#include "tests/support/ptx_machine.h"

namespace gapless::simgpu::ptx {
namespace {

using testing::AllOf;
using testing::Field;
using testing::HasSubstr;
using U32 = std::uint32_t;

// 64 threads write one number each: body leaves it in %r0, with %r1 = %tid.x.
constexpr const char* kBefore =
    ".reg .b32 %r<20>; .reg .b64 %o, %a<4>; .reg .pred %p<4>;\n"
    ".shared .align 4 .b8 tile[256];\n"
    "ld.param.u64 %o, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %o, %r1, 4, %o;\n";
constexpr const char* kAfter = "\nst.global.u32 [%o], %r0;";

struct Ran {
  LaunchResult result;
  std::vector<U32> values;
};
Ran run_body(const std::string& body, unsigned threads = 64, unsigned blocks = 1,
             bool with_ends = true) {
  HostedMemory memory;
  const Module module =
      parsed(kernel_text(with_ends ? kBefore + body + kAfter : body, ".param .u64 out"), memory);
  const std::uint64_t out = memory.alloc(std::uint64_t{threads} * 4);
  LaunchSettings settings;
  settings.block = {threads, 1, 1};
  settings.grid = {blocks, 1, 1};
  settings.most_instructions = 1'000'000;
  Ran ran{run(module, "k", settings, {out}, memory), {}};
  ran.values = memory.values<U32>(out);
  return ran;
}
std::vector<U32> each(unsigned threads, U32 (*f)(U32)) {
  std::vector<U32> made(threads);
  for (U32 i = 0; i < threads; ++i) made[i] = f(i);
  return made;
}

TEST(PtxKernel, LanesGoApartAndMeetAgain) {
  const Ran ran = run_body(R"(
    and.b32 %r2, %r1, 3; setp.eq.s32 %p1, %r2, 0; mov.u32 %r0, 0; mov.u32 %r3, 0;
    @%p1 bra Skip;
  Loop:
    add.s32 %r0, %r0, %r1; add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r2;
    @%p2 bra Loop;
  Skip:
    activemask.b32 %r4; popc.b32 %r4, %r4; add.s32 %r0, %r0, %r4;)");
  EXPECT_TRUE(ran.result.completed);
  EXPECT_EQ(ran.values, each(64, [](U32 i) { return i * (i % 4) + 32; }));
}

TEST(PtxKernel, PredicatesAreSetWithAnyNumber) {
  const Ran ran = run_body("mov.pred %p1, -1; not.pred %p2, %p1; selp.u32 %r0, 1, 2, %p2;");
  EXPECT_EQ(ran.values, each(64, [](U32) { return 2U; }));
}

// Called before they come, with a guard, one by the other, with a return in their midst.
constexpr const char* kFunctions = R"(
.func (.param .b32 result) up (.param .b32 x);
.func (.param .b32 result) up (.param .b32 x)
{ .reg .b32 %r<3>; .reg .pred %p; ld.param.b32 %r1, [x];
  setp.gt.u32 %p, %r1, 40; st.param.b32 [result+0], %r1; @%p ret;
  { .param .b32 passed; .param .b32 got; st.param.b32 [passed+0], %r1;
    call.uni (got), once, (passed); ld.param.b32 %r2, [got+0]; }
  st.param.b32 [result+0], %r2; ret; }
.func (.param .b32 result) once (.param .b32 x)
{ .reg .b32 %r<2>; ld.param.b32 %r1, [x]; add.s32 %r1, %r1, 100; st.param.b32 [result+0], %r1; ret; }
.func again (.param .b32 x)
{ .reg .b32 %r<2>; .param .b32 passed; st.param.b32 [passed+0], %r1; call.uni again, (passed); ret; }
)";
std::string calling(const std::string& body) {
  return kernel_text(kBefore + body + kAfter, ".param .u64 out") + kFunctions;
}

TEST(PtxKernel, FunctionsAreCalled) {
  HostedMemory memory;
  const Module module = parsed(calling(R"(
    .param .b32 a; .param .b32 b; setp.ne.u32 %p1, %r1, 7; mov.u32 %r0, 1;
    st.param.b32 [a+0], %r1; st.param.b32 [b+0], 5;
    @%p1 call (b), up, (a);
    ld.param.b32 %r0, [b+0];)"),
                               memory);
  ASSERT_EQ(module.kernels.at("k").error, "");
  const std::uint64_t out = memory.alloc(256);
  LaunchSettings settings;
  settings.block = {64, 1, 1};
  EXPECT_TRUE(run(module, "k", settings, {out}, memory).completed);
  EXPECT_EQ(memory.values<U32>(out), each(64, [](U32 i) {
              return i == 7 ? 5U : i > 40 ? i : i + 100;
            }));
}

TEST(PtxKernel, FunctionsThatCallThemselvesAreTold) {
  HostedMemory memory;
  Module module = parsed(calling(".param .b32 a; call.uni again, (a); mov.u32 %r0, 1;"), memory);
  EXPECT_THAT(module.kernels.at("k").error,
              HasSubstr("a function that does not call itself was expected"));
  module = parsed(calling(".param .b32 a; call.uni (a), up; mov.u32 %r0, 1;"), memory);
  EXPECT_THAT(module.kernels.at("k").error, HasSubstr("a call that passes x was expected"));
}

TEST(PtxKernel, BranchesGoByAnIndex) {
  const Ran ran = run_body(R"(
    and.b32 %r2, %r1, 1; 
    table: .branchtargets Even, Odd;
    brx.idx %r2, table;
  Even: mov.u32 %r0, 100; bra Done;
  Odd: mov.u32 %r0, 200;
  Done:)");
  EXPECT_EQ(ran.values, each(64, [](U32 i) { return i % 2 == 0 ? 100U : 200U; }));
}

TEST(PtxKernel, ThreadsMeetAtBarriers) {
  const std::string write =
      "mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %r1;\n";
  const std::string read =
      "sub.u32 %r4, 63, %r1; shl.b32 %r4, %r4, 2; mov.u32 %r5, tile; add.u32 %r5, %r5, %r4; "
      "ld.shared.u32 %r0, [%r5];";
  const Ran ran = run_body(write + "bar.sync 0;\n" + read);
  EXPECT_THAT(ran.result.findings, testing::IsEmpty());
  EXPECT_EQ(ran.values, each(64, [](U32 i) { return 63 - i; }));
  // Without it: a race, and which threads.
  const Ran racing = run_body(write + read);
  EXPECT_TRUE(racing.result.completed);
  std::vector<std::string> texts;
  for (const Finding& finding : racing.result.findings) texts.push_back(text_of(finding));
  EXPECT_THAT(texts, testing::Contains(AllOf(HasSubstr("race in k at line"),
                                             HasSubstr("shared.u32), block (0,0,0), thread ("),
                                             HasSubstr("with no barrier between"))));
}

TEST(PtxKernel, WarpsMeetAtBarriersOfTheirOwn) {
  // Two warps meet at barrier 1, and the others go on.
  const Ran ran = run_body(R"(
    setp.ge.u32 %p1, %r1, 64; mov.u32 %r0, 7;
    @%p1 bra Done;
    mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1;
    bar.sync 1, 64;
    xor.b32 %r3, %r3, 252; add.u32 %r4, %r2, %r3; ld.shared.u32 %r0, [%r4];
  Done:)",
                           128);
  EXPECT_THAT(ran.result.findings, testing::IsEmpty());
  EXPECT_EQ(ran.values, each(128, [](U32 i) { return i < 64 ? 63 - i : 7; }));
}

TEST(PtxKernel, BarriersReduce) {
  const Ran ran = run_body(
      "setp.lt.u32 %p1, %r1, 40; bar.red.popc.u32 %r2, 0, %p1; bar.red.and.pred %p2, 0, %p1;"
      "bar.red.or.pred %p3, 0, !%p1; selp.u32 %r0, 1000, 0, %p2; selp.u32 %r3, 100, 0, %p3;"
      "add.u32 %r0, %r0, %r3; add.u32 %r0, %r0, %r2;");
  EXPECT_EQ(ran.values, std::vector<U32>(64, 140));
}

TEST(PtxKernel, LanesShuffleAndVote) {
  const Ran ran = run_body(R"(
    mov.u32 %r2, %laneid;
    shfl.sync.down.b32 %r3|%p1, %r2, 4, 31, -1;
    shfl.sync.up.b32 %r4, %r2, 1, 0, -1;
    shfl.sync.bfly.b32 %r5, %r2, 16, 31, -1;
    shfl.sync.idx.b32 %r6, %r2, 3, 6175, -1;
    setp.gt.u32 %p2, %r2, 29; vote.sync.ballot.b32 %r7, %p2, -1; popc.b32 %r7, %r7;
    vote.sync.any.pred %p3, !%p2, -1;
    mad.lo.u32 %r0, %r4, 100, %r3; mad.lo.u32 %r0, %r5, 10000, %r0; mad.lo.u32 %r0, %r6, 1000000, %r0;
    @%p3 add.u32 %r0, %r0, %r7;)",
                           32);
  EXPECT_EQ(ran.values, each(32, [](U32 i) {
              const U32 down = i + 4 < 32 ? i + 4 : i;
              const U32 up = i >= 1 ? i - 1 : i;
              // Segments of 8 lanes: 6175 is 0x181F.
              const U32 indexed = (i & 24) | 3;
              return up * 100 + down + (i ^ 16) * 10000 + indexed * 1000000 + 2;
            }));
}

TEST(PtxKernel, LanesWaitForThoseTheyAreNamedWith) {
  // Lanes come to the shuffle one after the other.
  const Ran ran = run_body(R"(
    mov.u32 %r2, 0;
  Loop: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1;
    @%p1 bra Loop;
    shfl.sync.bfly.b32 %r0, %r2, 31, 31, -1;)",
                           32);
  EXPECT_EQ(ran.values, each(32, [](U32 i) { return 32 - i; }));
}

TEST(PtxKernel, BlocksWaitForEachOther) {
  // Each block waits until the one before it has added: in which order they run does not matter.
  const std::string text = R"(
    .reg .b32 %r<9>; .reg .b64 %o; .reg .pred %p;
    ld.param.u64 %o, [out]; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x; sub.u32 %r1, %r1, %r2; sub.u32 %r1, %r1, 1;
  Wait: ld.relaxed.gpu.global.u32 %r3, [%o]; setp.ne.u32 %p, %r3, %r1;
    @%p bra Wait;
    red.global.add.u32 [%o], 1;)";
  const Ran ran = run_body(text, 1, 20, false);
  EXPECT_TRUE(ran.result.completed);
  EXPECT_EQ(ran.values[0], 20U);
}

TEST(PtxKernel, LanesMayWaitForOthersOfTheirWarp) {
  // A lock that lanes take in turn: whoever has it must get on while others try.
  const Ran ran = run_body(R"(
    mov.u32 %r2, tile; mov.u32 %r0, 0;
  Try: atom.shared.cas.b32 %r3, [%r2], 0, 1; setp.ne.s32 %p1, %r3, 0;
    @%p1 bra Try;
    ld.shared.u32 %r4, [%r2+4]; add.u32 %r0, %r4, 1; st.shared.u32 [%r2+4], %r0;
    atom.shared.exch.b32 %r3, [%r2], 0;)",
                           32);
  EXPECT_TRUE(ran.result.completed);
  std::vector<U32> sorted = ran.values;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, each(32, [](U32 i) { return i + 1; }));
}

TEST(PtxKernel, DynamicSharedMemoryLiesBehindTheRest) {
  HostedMemory memory;
  const Module module = parsed(
      ".version 8.5\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 more[];\n"
      ".global .align 4 .u32 start[2] = {5, 0x10};\n"
      ".visible .entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %a<4>; .shared .align 4 .b8 "
      "own[20];\n"
      "mov.u32 %r1, more; mov.u64 %a1, start; ld.global.u32 %r2, [%a1+4]; st.shared.u32 [%r1+60], "
      "%r2;\n"
      "mov.u64 %a2, more; cvta.shared.u64 %a2, %a2; ld.u32 %r3, [%a2+60]; add.u32 %r3, %r3, %r1;\n"
      "ld.param.u64 %a3, [out]; st.global.u32 [%a3], %r3; }",
      memory);
  const std::uint64_t out = memory.alloc(4);
  LaunchSettings settings;
  settings.dynamic_shared_bytes = 64;
  EXPECT_TRUE(run(module, "k", settings, {out}, memory).completed);
  EXPECT_EQ(memory.values<U32>(out)[0], 32U + 16);
  settings.dynamic_shared_bytes = 60;
  const LaunchResult result = run(module, "k", settings, {out}, memory);
  ASSERT_EQ(result.findings.size(), 1U);
  EXPECT_THAT(result.findings[0].what, HasSubstr("4 B at 92 of 92 B of shared memory"));
}

Finding only(const Ran& ran) {
  EXPECT_EQ(ran.result.findings.size(), 1U);
  return ran.result.findings.empty() ? Finding{} : ran.result.findings[0];
}

TEST(PtxKernel, WhatIsNoMemoryIsNotReached) {
  const Ran beyond = run_body("mov.u32 %r0, 1; st.global.u32 [%o+64], %r0;");
  EXPECT_FALSE(beyond.result.completed);
  EXPECT_THAT(only(beyond), AllOf(Field(&Finding::kind, Finding::Kind::outside),
                                  Field(&Finding::thread, Dim3{48, 0, 0}),
                                  Field(&Finding::instruction, "st.global.u32")));
  EXPECT_EQ(only(run_body("ld.global.u32 %r0, [16];")).kind, Finding::Kind::outside);
  EXPECT_THAT(only(run_body("ld.global.u32 %r0, [%o+2];")),
              AllOf(Field(&Finding::kind, Finding::Kind::misaligned),
                    Field(&Finding::what, HasSubstr("is no multiple of 4"))));
  EXPECT_EQ(only(run_body("st.shared.u32 [256], %r1; mov.u32 %r0, 0;")).kind,
            Finding::Kind::outside);
}

TEST(PtxKernel, BarriersThatNotAllReach) {
  const Ran ended = run_body("setp.eq.u32 %p1, %r1, 9; @%p1 ret; bar.sync 0; mov.u32 %r0, 1;");
  EXPECT_TRUE(ended.result.completed);
  EXPECT_THAT(only(ended), AllOf(Field(&Finding::kind, Finding::Kind::barrier),
                                 Field(&Finding::what,
                                       HasSubstr("1 of 64 threads ended before they came to it"))));
  const Ran stuck = run_body(
      "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1; bar.sync 0; bar.sync 1; mov.u32 %r0, 1;");
  EXPECT_FALSE(stuck.result.completed);
  EXPECT_EQ(only(stuck).kind, Finding::Kind::stuck);
  // Lanes that a shuffle names and that went elsewhere.
  EXPECT_EQ(only(run_body("setp.lt.u32 %p1, %r1, 16; @%p1 bra One; bar.sync 0; One: "
                          "shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;",
                          32))
                .kind,
            Finding::Kind::stuck);
  EXPECT_EQ(only(run_body("trap;")).kind, Finding::Kind::trap);
}

TEST(PtxKernel, RacesAreToldOnlyWhereNothingOrdersThem) {
  // All write the same: no race. Atomic with atomic: none. A warp that is synchronized: none.
  EXPECT_THAT(run_body("mov.u32 %r0, 5; st.shared.u32 [0], %r0;").result.findings,
              testing::SizeIs(testing::Le(1U)));
  EXPECT_THAT(run_body("atom.shared.add.u32 %r0, [0], 1;").result.findings, testing::IsEmpty());
  EXPECT_EQ(only(run_body("atom.shared.add.u32 %r0, [0], 1; ld.shared.u32 %r0, [0];")).kind,
            Finding::Kind::race);
  const std::string hand = "shl.b32 %r2, %r1, 2; st.shared.u32 [%r2], %r1; ";
  const std::string over = "xor.b32 %r2, %r2, 4; ld.shared.u32 %r0, [%r2];";
  EXPECT_EQ(only(run_body(hand + over)).kind, Finding::Kind::race);
  EXPECT_THAT(run_body(hand + "bar.warp.sync -1; " + over).result.findings, testing::IsEmpty());
  // What was read may not be written before a barrier either.
  EXPECT_EQ(
      only(run_body(
               "ld.shared.u32 %r0, [0]; setp.eq.u32 %p1, %r1, 33; @%p1 st.shared.u32 [0], %r1;"))
          .kind,
      Finding::Kind::race);
}

TEST(PtxKernel, EndlessOnesAreStopped) {
  const Ran ran = run_body("Loop: bra Loop; mov.u32 %r0, 1;");
  EXPECT_FALSE(ran.result.completed);
  EXPECT_TRUE(ran.result.ran_out_of_instructions);
}

TEST(PtxKernel, ClocksGoOn) {
  const Ran ran = run_body(R"(
    mov.u32 %r2, %clock; mov.u32 %r0, 1;
  Wait: mov.u32 %r3, %clock; sub.u32 %r3, %r3, %r2; setp.lt.u32 %p1, %r3, 5000;
    @%p1 bra Wait;)");
  EXPECT_TRUE(ran.result.completed);
}

TEST(PtxKernel, GlobalTrafficIsCounted) {
  const Ran ran = run_body("ld.global.u32 %r0, [%o];");
  EXPECT_EQ(ran.result.global_read_bytes, 256U);
  EXPECT_EQ(ran.result.global_written_bytes, 256U);
}

// Whatever the text is, there is an error or a result.
TEST(PtxKernel, BrokenTextIsNoCrash) {
  const std::string whole = calling(
      ".param .b32 a; st.param.b32 [a+0], %r1; call (a), up, (a);"
      "L: setp.lt.u32 %p1, %r1, 40; @%p1 bra L2; bar.sync 0; { .reg .f32 f; mov.b32 f, %r1; "
      "add.f32 f, f, 0f3F800000;"
      "mov.b32 %r0, f; } shfl.sync.down.b32 %r3|%p2, %r1, 4, 31, -1; atom.shared.add.u32 %r4, "
      "[tile], 1; L2: st.shared.v2.u32 [tile+8], {%r1, %r2};");
  std::mt19937 random(7);
  int parsed_ones = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    for (unsigned changes = 1 + random() % 3; changes != 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = "%rpf0123;,.{}[]@:-+<>x "[random() % 23];
          break;
        case 1:
          text.erase(at, 1 + random() % 6);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 1 + random() % 12));
      }
    }
    HostedMemory memory;
    try {
      const Module module = parsed(text, memory);
      if (module.kernels.count("k") == 0) continue;
      ++parsed_ones;
      LaunchSettings settings;
      settings.block = {40, 1, 1};
      settings.most_instructions = 3000;
      const Kernel& kernel = module.kernels.at("k");
      if (kernel.shared_bytes > 1 << 16 || kernel.local_bytes > 1 << 16 || kernel.row_count > 5000)
        continue;
      std::vector<unsigned char> parameters(std::max(kernel.parameter_bytes, 8U));
      const std::uint64_t out = memory.alloc(160);
      std::memcpy(parameters.data(), &out, sizeof out);
      launch(kernel, settings, parameters, memory);
    } catch (const PtxError&) {
    }
  }
  EXPECT_GT(parsed_ones, 100);
}

}  // namespace
}  // namespace gapless::simgpu::ptx
