#include "simgpu/ptx/rounding.h"

#include <cfenv>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "simgpu/ptx/lane_values.h"

namespace gapless::simgpu::ptx {
namespace {

#if defined(__SSE2__)
// Bits of the MXCSR register: subnormal results and operands as zero, and the direction.
constexpr unsigned kFlushResults = 0x8000;
constexpr unsigned kFlushOperands = 0x0040;
constexpr unsigned kRoundBits = 0x6000;
constexpr unsigned kRoundDown = 0x2000;
constexpr unsigned kRoundUp = 0x4000;
#endif

}  // namespace

unsigned mode_of(const Opcode& opcode) {
  unsigned mode = 0;
  for (const std::string_view word : opcode.modifiers) {
    const bool to_integer = word.size() == 3 && word[0] == 'r' && word[2] == 'i';
    if (word == "ftz") mode |= kFlush;
    if (word == "sat") mode |= kSaturate;
    if (to_integer) mode |= kToInteger;
    if (to_integer || (word.size() == 2 && word[0] == 'r')) {
      if (word[1] == 'z') mode |= kToZero;
      if (word[1] == 'm') mode |= kDown;
      if (word[1] == 'p') mode |= kUp;
    }
  }
  return mode;
}

#if defined(__SSE2__)
Rounding::Rounding(unsigned mode) : before_(_mm_getcsr()), changed_((mode & 7) != 0) {
  if (!changed_) return;
  unsigned wanted = before_ & ~kRoundBits;
  const unsigned direction = mode & kDirections;
  if (direction == kToZero) wanted |= kRoundBits;
  if (direction == kDown) wanted |= kRoundDown;
  if (direction == kUp) wanted |= kRoundUp;
  if ((mode & kFlush) != 0) wanted |= kFlushResults | kFlushOperands;
  _mm_setcsr(wanted);
}
Rounding::~Rounding() {
  if (changed_) _mm_setcsr(before_);
}
#else
Rounding::Rounding(unsigned mode)
    : before_(static_cast<unsigned>(std::fegetround())), changed_((mode & kDirections) != 0) {
  const unsigned direction = mode & kDirections;
  if (changed_) {
    std::fesetround(direction == kToZero ? FE_TOWARDZERO
                    : direction == kDown ? FE_DOWNWARD
                                         : FE_UPWARD);
  }
}
Rounding::~Rounding() {
  if (changed_) std::fesetround(static_cast<int>(before_));
}
#endif

void run_rounded(Warp& warp, const Instruction& instruction, Mask lanes) {
  {
    const Rounding rounding(instruction.mode);
    instruction.inner(warp, instruction, lanes);
  }
  if ((instruction.mode & kSaturate) == 0) return;
  std::uint64_t* const result = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) {
    const auto value = from_bits<float>(result[lane]);
    // Not a number becomes 0.
    result[lane] = to_bits(value > 1 ? 1.0F : value > 0 ? value : 0.0F);
  });
}

}  // namespace gapless::simgpu::ptx
