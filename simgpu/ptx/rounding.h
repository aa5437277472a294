// How floating-point operations round, as an instruction says: rn (to the nearest), rz (to zero),
// rm (down), rp (up); ftz takes subnormal floats for zero.
#pragma once

#include "simgpu/ptx/instruction.h"

namespace gapless::simgpu::ptx {

constexpr unsigned kNearest = 0;
constexpr unsigned kToZero = 1;
constexpr unsigned kDown = 2;
constexpr unsigned kUp = 3;
constexpr unsigned kDirections = 3;  // mask of the four above
constexpr unsigned kFlush = 4;
constexpr unsigned kSaturate = 8;  // to between 0 and 1, or to the type's range
constexpr unsigned kToInteger = 16;

/// What the modifiers say (rn, rzi, ftz, sat ...).
unsigned mode_of(const Opcode& opcode);

/// For as long as it lives the processor rounds so.
class Rounding {
 public:
  explicit Rounding(unsigned mode);
  ~Rounding();
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  unsigned before_;
  bool changed_;
};

/// Runs instruction.inner so, and clamps what it gives where the mode says so.
void run_rounded(Warp& warp, const Instruction& instruction, Mask lanes);

}  // namespace gapless::simgpu::ptx
