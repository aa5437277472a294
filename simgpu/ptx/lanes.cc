// What the lanes of a warp do together: shuffles, votes, matches, reductions.
//
//   shfl.sync.down.b32 %r1|%p1, %r2, 16, 31, -1;     lane i gets lane i + 16's %r2; %p1: it exists
#include <algorithm>

#include "simgpu/ptx/block.h"
#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"

namespace gapless::simgpu::ptx {
namespace {

using U32 = std::uint32_t;

// The lanes that are here for it; none where some are still to come. `at`: the row of the mask.
Mask together(Warp& warp, const Instruction& instruction, Mask lanes, std::size_t at) {
  const auto first = static_cast<unsigned>(__builtin_ctz(lanes));
  return warp.meet(lanes, static_cast<Mask>(warp.row(instruction.rows[at])[first]));
}

enum Shuffle : std::uint8_t { up, down, butterfly, indexed };

// Rows: result, predicate, value, by, clamp and segment mask, members.
void shuffle(Warp& warp, const Instruction& instruction, Mask lanes) {
  lanes = together(warp, instruction, lanes, 5);
  if (lanes == 0) return;
  std::array<std::uint64_t, kLanes> values;
  std::copy_n(warp.row(instruction.rows[2]), kLanes, values.begin());
  std::array<std::uint64_t, kLanes> by;
  std::copy_n(warp.row(instruction.rows[3]), kLanes, by.begin());
  const std::uint64_t* const control = warp.row(instruction.rows[4]);
  std::array<std::uint64_t, kLanes> result{};
  Mask valid = 0;
  each_lane(lanes, [&](unsigned lane) {
    const auto c = static_cast<U32>(control[lane]);
    const U32 segment = (c >> 8) & 31;
    const U32 clamp = c & 31;
    const U32 own = lane;
    const U32 b = static_cast<U32>(by[lane]) & 31;
    const U32 most = (own & segment) | (clamp & ~segment);
    const U32 least = own & segment;
    U32 from = own;
    bool is_valid = false;
    switch (instruction.kind) {
      case up:
        from = own - b;
        is_valid = static_cast<std::int32_t>(from) >= static_cast<std::int32_t>(most);
        break;
      case down:
        from = own + b;
        is_valid = from <= most;
        break;
      case butterfly:
        from = own ^ b;
        is_valid = from <= most;
        break;
      default:
        from = least | (b & ~segment);
        is_valid = from <= most;
    }
    if (!is_valid) from = own;
    if (is_valid) valid |= Mask{1} << lane;
    result[lane] = values[from & 31];
  });
  std::uint64_t* const to = warp.row(instruction.rows[0]);
  std::uint64_t* const predicate = warp.row(instruction.rows[1]);
  each_lane(lanes, [&](unsigned lane) {
    to[lane] = result[lane];
    predicate[lane] = (valid >> lane) & 1;
  });
}

void build_shfl(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
                Instruction& instruction) {
  if (!opcode.has("sync") || operands.size() != 5) not_known(opcode);
  instruction.kind = opcode.has("up")     ? up
                     : opcode.has("down") ? down
                     : opcode.has("bfly") ? butterfly
                                          : indexed;
  const auto& results = operands[0].rows;
  instruction.rows = {results[0],
                      results.size() > 1 ? results[1] : rows.nowhere(),
                      operands[1].rows.at(0),
                      operands[2].rows.at(0),
                      operands[3].rows.at(0),
                      operands[4].rows.at(0)};
  instruction.row_count = 6;
  instruction.run = &shuffle;
}

enum Vote : std::uint8_t { all, any, uniform, ballot };

// Rows: result, predicate, members; mode 1: the predicate is negated.
void vote(Warp& warp, const Instruction& instruction, Mask lanes) {
  lanes = together(warp, instruction, lanes, 2);
  if (lanes == 0) return;
  const std::uint64_t* const predicate = warp.row(instruction.rows[1]);
  Mask yes = 0;
  each_lane(lanes, [&](unsigned lane) {
    if ((predicate[lane] != 0) != (instruction.mode != 0)) yes |= Mask{1} << lane;
  });
  std::uint64_t answer = yes;
  if (instruction.kind == all) answer = yes == lanes ? 1 : 0;
  if (instruction.kind == any) answer = yes != 0 ? 1 : 0;
  if (instruction.kind == uniform) answer = yes == lanes || yes == 0 ? 1 : 0;
  std::uint64_t* const to = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) { to[lane] = answer; });
}

void build_vote(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                Instruction& instruction) {
  if (!opcode.has("sync") || operands.size() != 3) not_known(opcode);
  instruction.kind = opcode.has("ballot") ? ballot
                     : opcode.has("all")  ? all
                     : opcode.has("any")  ? any
                                          : uniform;
  instruction.mode = operands[1].negated ? 1 : 0;
  instruction.rows = {operands[0].rows.at(0), operands[1].rows.at(0), operands[2].rows.at(0)};
  instruction.row_count = 3;
  instruction.run = &vote;
}

// Rows: result, predicate, value, members; kind 1: all have to have the same.
void match(Warp& warp, const Instruction& instruction, Mask lanes) {
  lanes = together(warp, instruction, lanes, 3);
  if (lanes == 0) return;
  std::array<std::uint64_t, kLanes> values;
  std::copy_n(warp.row(instruction.rows[2]), kLanes, values.begin());
  std::uint64_t* const to = warp.row(instruction.rows[0]);
  std::uint64_t* const predicate = warp.row(instruction.rows[1]);
  each_lane(lanes, [&](unsigned lane) {
    Mask same = 0;
    each_lane(lanes, [&](unsigned other) {
      if (values[other] == values[lane]) same |= Mask{1} << other;
    });
    const bool are_all = same == lanes;
    to[lane] = instruction.kind == 0 || are_all ? same : 0;
    predicate[lane] = are_all ? 1 : 0;
  });
}

void build_match(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
                 Instruction& instruction) {
  if (!opcode.has("sync") || operands.size() != 3) not_known(opcode);
  instruction.kind = opcode.has("all") ? 1 : 0;
  const auto& results = operands[0].rows;
  instruction.rows = {results[0], results.size() > 1 ? results[1] : rows.nowhere(),
                      operands[1].rows.at(0), operands[2].rows.at(0)};
  instruction.row_count = 4;
  instruction.run = &match;
}

enum Reduction : std::uint8_t { sum, least, greatest, conjunction, disjunction, parity };

// Rows: result, value, members.
void reduce(Warp& warp, const Instruction& instruction, Mask lanes) {
  lanes = together(warp, instruction, lanes, 2);
  if (lanes == 0) return;
  const std::uint64_t* const values = warp.row(instruction.rows[1]);
  bool is_first = true;
  U32 made = 0;
  each_lane(lanes, [&](unsigned lane) {
    const auto value = from_bits<U32>(values[lane]);
    if (is_first) {
      made = value;
      is_first = false;
      return;
    }
    const bool is_less = instruction.type == Type::s32
                             ? static_cast<std::int32_t>(value) < static_cast<std::int32_t>(made)
                             : value < made;
    switch (instruction.kind) {
      case sum:
        made += value;
        break;
      case least:
        made = is_less ? value : made;
        break;
      case greatest:
        made = is_less ? made : value;
        break;
      case conjunction:
        made &= value;
        break;
      case disjunction:
        made |= value;
        break;
      default:
        made ^= value;
    }
  });
  std::uint64_t* const to = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) { to[lane] = made; });
}

void build_redux(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                 Instruction& instruction) {
  static constexpr std::array<std::string_view, 6> kNames{"add", "min", "max", "and", "or", "xor"};
  const auto* const how = std::find_if(kNames.begin(), kNames.end(),
                                       [&](std::string_view name) { return opcode.has(name); });
  if (how == kNames.end() || opcode.types.size() != 1 || is_float(opcode.types[0])) {
    not_known(opcode);
  }
  take_rows(opcode, operands, 3, instruction);
  instruction.type = opcode.types[0];
  instruction.kind = static_cast<std::uint8_t>(how - kNames.begin());
  instruction.run = &reduce;
}

void active_lanes(Warp& warp, const Instruction& instruction, Mask lanes) {
  std::uint64_t* const to = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) { to[lane] = lanes; });
}

}  // namespace

Family lanes() {
  return {{"shfl", build_shfl},
          {"vote", build_vote},
          {"match", build_match},
          {"redux", build_redux},
          {"activemask", [](const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                            Instruction& instruction) {
             take_rows(opcode, operands, 1, instruction);
             instruction.run = &active_lanes;
           }}};
}

}  // namespace gapless::simgpu::ptx
