// A variable's declaration, from behind its state space on:
//
//   .shared .align 16 .b8 tile[4][128];      64 bytes would be .b8 tile[64]
//          ^                          ^
#pragma once

#include "simgpu/ptx/module.h"
#include "simgpu/ptx/tokens.h"

namespace gapless::simgpu::ptx {

struct Declared {
  Variable variable;
  bool is_unsized = false;  // tile[]: as large as the launch says
};

Declared declared(Tokens& tokens);

}  // namespace gapless::simgpu::ptx
