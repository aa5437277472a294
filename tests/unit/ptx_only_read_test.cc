#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simgpu/ptx/only_read.h"

namespace gapless::simgpu::ptx {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// A kernel as Triton's: three pointers and a number. %rd1 to %rd3 are the pointers.
std::string kernel_with(const std::string& body) {
  return ".version 8.4\n.target sm_80\n.address_size 64\n"
         ".visible .entry k(.param .u64 .ptr .global .align 1 k_param_0,\n"
         "  .param .u64 .ptr .global .align 1 k_param_1, .param .u32 k_param_2,\n"
         "  .param .u64 .ptr .global .align 1 k_param_3)\n"
         ".reqntid 128\n{\n"
         "  .reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>;\n"
         "  .loc 1 18 0 // a.py:18:0\n$L__func_begin0:\n"
         "  ld.param.b64 %rd1, [k_param_0]; ld.param.b64 %rd2, [k_param_1];\n"
         "  ld.param.b64 %rd3, [k_param_3]; ld.param.b32 %r1, [k_param_2];\n" +
         body + "\n  ret;\n}\n";
}
std::map<std::string, std::vector<bool>, std::less<>> of(const std::string& body) {
  return only_read(kernel_with(body));
}
auto flags(bool first, bool second, bool third) {
  return ElementsAre(Pair("k", ElementsAre(first, second, true, third)));
}

TEST(PtxOnlyRead, FollowsAnAddressToItsParameter) {
  EXPECT_THAT(of("mad.wide.s32 %rd5, %r1, 4, %rd1; ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd5];"
                 "add.s64 %rd6, %rd2, 64; @%p1 st.global.b32 [ %rd6 + 0 ], { %r2 };"),
              flags(true, false, true));
}

TEST(PtxOnlyRead, AnIndexThatWasReadIsNoAddress) {
  EXPECT_THAT(of("ld.global.b64 %rd5, [%rd1]; shl.b64 %rd6, %rd5, 2; add.s64 %rd7, %rd2, %rd6;"
                 "atom.global.gpu.acq_rel.add.f32 %r2, [%rd7], %r3;"),
              flags(true, false, true));
}

TEST(PtxOnlyRead, FollowsLoopsHalvesAndChoices) {
  // Written before it is known where the address comes from.
  EXPECT_THAT(of("Loop: red.global.add.f32 [%rd9], %r2; mov.b64 {%r6, %r7}, %rd8;"
                 "mov.b64 %rd9, {%r6, %r7}; selp.b64 %rd8, %rd1, %rd3, %p1; @%p2 bra Loop;"),
              flags(false, true, false));
}

TEST(PtxOnlyRead, SharedMemoryIsTheKernelsOwn) {
  EXPECT_THAT(of("mov.b32 %r2, global_smem; st.shared::cta.b32 [%r2], %r3;"
                 "cp.async.cg.shared.global [ %r2 + 0 ], [ %rd1 + 0 ], 0x10, 0x10;"
                 "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"
                 "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2];"
                 "st.global.b32 [%rd3], %r4;"),
              flags(true, true, false));
}

TEST(PtxOnlyRead, ACopyFromSharedMemoryWrites) {
  EXPECT_THAT(of("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%rd3], 64;"),
              flags(false, true, false));
}

TEST(PtxOnlyRead, AnAssertionWritesNothing) {
  EXPECT_THAT(of("{ .param .b64 param0; cvta.global.u64 %rd5, assertMessage_0;"
                 "st.param.b64 [param0], %rd5; call.uni __assertfail, (param0, param1); }"
                 "st.global.b32 [%rd2], %r2;"),
              flags(true, false, true));
}

TEST(PtxOnlyRead, WhatCannotBeFollowedIsLeftOut) {
  // A pointer out of a list of pointers, through shared memory, from a number, a variable.
  EXPECT_THAT(of("ld.global.b64 %rd5, [%rd1]; st.global.b32 [%rd5], %r2;"), IsEmpty());
  EXPECT_THAT(of("st.shared.b64 [%r2], %rd1; ld.shared.b64 %rd5, [%r2]; st.b32 [%rd5], %r2;"),
              IsEmpty());
  EXPECT_THAT(of("cvt.u64.u32 %rd5, %r1; st.global.b32 [%rd5], %r2;"), IsEmpty());
  EXPECT_THAT(of("mov.b64 %rd5, table; st.global.b32 [%rd5], %r2;"), IsEmpty());
  EXPECT_THAT(of("{ call.uni f, (param0); }"), IsEmpty());
  // A structure may have pointers; without .ptr a number may be one.
  EXPECT_THAT(only_read(".version 8.4\n.entry k(.param .u64 .ptr .global a, .param .align 8 .b8 "
                        "b[16]) { ret; }"),
              IsEmpty());
  EXPECT_THAT(only_read(".version 8.4\n.entry k(.param .u64 a, .param .u64 b) { ret; }"),
              IsEmpty());
}

TEST(PtxOnlyRead, GoesOnBehindAKernelThatItCannotFollow) {
  std::string text = kernel_with("call.uni f, (param0);");
  text += ".entry second(.param .u64 .ptr .global a) { .reg .b64 %rd<3>; ret; }";
  EXPECT_THAT(only_read(text), ElementsAre(Pair("second", ElementsAre(true))));
}

TEST(PtxOnlyRead, NothingOfWhatIsCutOff) {
  const std::string text = kernel_with("st.global.b32 [%rd1], %r2;");
  for (std::size_t bytes = 0; bytes + 3 < text.size(); ++bytes) {
    EXPECT_THAT(only_read(text.substr(0, bytes)), IsEmpty()) << bytes;
  }
}

}  // namespace
}  // namespace gapless::simgpu::ptx
