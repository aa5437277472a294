// Which of its parameters a kernel only reads through, as its PTX tells without being run:
//
//   .entry add(.param .u64 .ptr .global x, .param .u64 .ptr .global y)
//     ld.param.b64  %rd1, [x];           %rd1 comes from x
//     mad.wide.s32  %rd2, %r1, 4, %rd1;  %rd2 as well
//     ld.global.b32 %r2, [%rd2];         what was read comes from no parameter
//     ld.param.b64  %rd3, [y];
//     st.global.b32 [%rd3], %r2;         it writes where %rd3 comes from: y. x is only read
//
// So Triton's kernels are known, torch.compile's with them: they come as machine code, with their
// PTX beside it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::simgpu::ptx {

/// For each kernel a flag for each of its parameters. A kernel is left out where its PTX does not
/// say which parameters are pointers (.ptr), where it takes structures, which may have pointers,
/// calls functions of its own, or writes to an address that comes from no parameter. Nothing of
/// what is no PTX.
std::map<std::string, std::vector<bool>, std::less<>> only_read(std::string_view ptx);

}  // namespace gapless::simgpu::ptx
