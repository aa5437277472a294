// Instruction: one line of a kernel, ready to be run for the lanes of a warp together.
//
//   @!%p1 mad.lo.s32 %r4, %r1, %r2, 7;
//
//   guard       row of %p1, negated
//   rows        rows of %r4, %r1, %r2 and of the constant 7
//   run         multiplies and adds signed numbers of 32 bits
//
// A row is a register of all 32 lanes, 64 bits each. Constants, %tid.x and its like, and where a
// result is thrown away ("_") are rows as well, so an operation knows nothing but rows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/ptx/type.h"

namespace gapless::simgpu::ptx {

constexpr unsigned kLanes = 32;
using Mask = std::uint32_t;  // of lanes
using Row = std::uint32_t;
constexpr Row kNoRow = ~Row{0};

struct Instruction;
class Warp;
using Run = void (*)(Warp& warp, const Instruction& instruction, Mask lanes);

enum class Space : std::uint8_t { generic, global, shared, local, param };

struct Instruction {
  Run run = nullptr;
  std::array<Row, 9> rows{};
  std::uint8_t row_count = 0;

  Row guard = kNoRow;
  bool guard_negated = false;
  Type type = Type::b32;
  Type from = Type::b32;  // what is converted, or the type of an index
  Space space = Space::generic;
  std::uint8_t width = 1;              // of a vector: 1, 2, 4
  bool is_atomic = false;              // atom, red, and loads and stores that are ordered
  std::uint8_t kind = 0;               // of an operation that has several
  std::int64_t offset = 0;             // of an address
  std::uint32_t target = 0;            // of a branch
  std::vector<std::uint32_t> targets;  // of an indexed one
  Run inner = nullptr;                 // what a rounding mode or saturation is put around
  unsigned mode = 0;

  unsigned line = 0;
  std::string_view text;  // "mad.lo.s32", in the module's PTX
};

/// "add.rn.f32" in its parts.
struct Opcode {
  std::string_view text;
  std::string_view name;                    // add
  std::vector<std::string_view> modifiers;  // rn
  std::vector<Type> types;                  // f32
  unsigned line = 0;

  [[nodiscard]] bool has(std::string_view modifier) const;
};

/// An operand as it was written, its names resolved.
struct Operand {
  enum class Kind : std::uint8_t { row, vector, address, label };
  Kind kind = Kind::row;
  std::vector<Row> rows;    // one; a vector's; an address's base; "%r1|%p2": both
  std::int64_t offset = 0;  // of an address
  bool is_own = false;      // the address is of the thread's own memory, whatever its space
  std::uint32_t label = 0;  // the instruction it stands before
  bool negated = false;     // !%p1
};

}  // namespace gapless::simgpu::ptx
