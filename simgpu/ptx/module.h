// Module: what a file of PTX has: kernels, and variables in global memory.
//
//   .global .align 4 .b8 table[16] = {1, 2, ...};     a variable: the loader gives it its place
//   .visible .entry scale(.param .u64 x, .param .u32 n)
//   { .reg .b32 %r<5>; .shared .align 4 .b8 tile[512]; ... }   a kernel
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/ptx/instruction.h"

namespace gapless::simgpu::ptx {

struct Parameter {
  std::string name;
  unsigned offset = 0;  // in the parameters' bytes
  unsigned bytes = 0;
};

struct Variable {
  std::string name;
  std::uint64_t bytes = 0;
  unsigned alignment = 1;
  std::vector<unsigned char> initial;  // its first bytes; the rest are zero
  std::uint64_t address = 0;           // in global memory
};

struct Kernel {
  /// What a row starts with where it is no register.
  struct Constant {
    Row row = 0;
    std::uint64_t value = 0;
  };
  /// %tid.x and others that differ from lane to lane, block to block or launch to launch.
  struct Special {
    Row row = 0;
    enum class Kind : std::uint8_t {
      tid,
      ntid,
      ctaid,
      nctaid,
      laneid,
      warpid,
      nwarpid,
      smid,
      nsmid,
      lanemask_eq,
      lanemask_lt,
      lanemask_le,
      lanemask_gt,
      lanemask_ge,
      clock,
      clock_high,
      dynamic_shared_bytes,
      total_shared_bytes,
      gridid
    } kind = Kind::tid;
    unsigned axis = 0;
  };

  std::string name;
  std::vector<Parameter> parameters;
  unsigned parameter_bytes = 0;
  std::vector<Instruction> instructions;
  Row row_count = 0;
  std::vector<Constant> constants;
  std::vector<Special> specials;
  unsigned shared_bytes = 0;  // static; what the launch adds lies behind
  unsigned local_bytes = 0;   // of a thread
  unsigned line = 0;
  /// Why it cannot be run: "line 214: wmma.load... is not known"; empty where it can.
  std::string error;
};

struct Module {
  /// The text that instructions point into.
  std::string text;
  std::map<std::string, Kernel, std::less<>> kernels;
  std::map<std::string, Variable, std::less<>> variables;
};

/// Throws PtxError of what is no PTX; a kernel with an instruction that is not known has an error
/// of its own. `place` gives a variable its address in global memory, and writes its bytes there.
void parse(std::string ptx, Module& module,
           const std::function<std::uint64_t(const Variable&)>& place);

}  // namespace gapless::simgpu::ptx
