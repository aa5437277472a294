// Branches, ends, barriers, and what has nothing to do where one block runs after the other.
#include <string>

#include "simgpu/ptx/block.h"
#include "simgpu/ptx/error.h"
#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"

namespace gapless::simgpu::ptx {
namespace {

unsigned first_of(Mask lanes) { return static_cast<unsigned>(__builtin_ctz(lanes)); }

void branch(Warp& warp, const Instruction& instruction, Mask lanes) {
  warp.jump(lanes, instruction.target);
}

void indexed_branch(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::uint64_t* const index = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) {
    const auto which = from_bits<std::uint32_t>(index[lane]);
    if (which >= instruction.targets.size()) {
      warp.block().fail(Finding::Kind::trap, warp, instruction, lane, "it branches to no label");
    }
    warp.jump(Mask{1} << lane, instruction.targets[which]);
  });
}

void end(Warp& warp, const Instruction&, Mask lanes) { warp.end(lanes); }

void trap(Warp& warp, const Instruction& instruction, Mask lanes) {
  warp.block().fail(Finding::Kind::trap, warp, instruction, first_of(lanes), "the kernel gave up");
}

void call(Warp& warp, const Instruction& instruction, Mask lanes) {
  if (instruction.text == "vprintf") return;  // what it prints is seen nowhere
  if (instruction.text == "__assertfail") {
    warp.block().fail(Finding::Kind::trap, warp, instruction, first_of(lanes),
                      "an assertion of the kernel's does not hold");
  }
  warp.block().fail(Finding::Kind::unknown, warp, instruction, first_of(lanes),
                    "calls of functions that have no body, or through a pointer, cannot be run");
}

void nothing(Warp&, const Instruction&, Mask) {}

template <Run kRun>
void simply(const Opcode&, std::vector<Operand>&, KernelRows&, Instruction& instruction) {
  instruction.run = kRun;
}

// Modes of a barrier.
constexpr unsigned kWaits = 1;
constexpr unsigned kNegated = 2;  // the predicates of bar.red

// Rows: barrier, threads; of bar.red: the result, the predicates. kind: 0, or 1 more than the
// operation of bar.red.
void barrier(Warp& warp, const Instruction& instruction, Mask lanes) {
  const unsigned first = first_of(lanes);
  Block::Arrival arrival;
  arrival.barrier = from_bits<std::uint32_t>(warp.row(instruction.rows[0])[first]);
  arrival.threads = from_bits<std::uint32_t>(warp.row(instruction.rows[1])[first]);
  arrival.waits = (instruction.mode & kWaits) != 0;
  if (instruction.kind != 0) {
    arrival.operation = static_cast<std::uint8_t>(instruction.kind - 1);
    arrival.reduced = instruction.rows[2];
    const std::uint64_t* const predicates = warp.row(instruction.rows[3]);
    each_lane(lanes, [&](unsigned lane) {
      if ((predicates[lane] != 0) != ((instruction.mode & kNegated) != 0)) {
        arrival.predicates |= Mask{1} << lane;
      }
    });
  }
  warp.block().arrive(warp, instruction, lanes, arrival);
}

void meet_lanes(Warp& warp, const Instruction& instruction, Mask lanes) {
  const auto members = static_cast<Mask>(warp.row(instruction.rows[0])[first_of(lanes)]);
  if (warp.meet(lanes, members) != 0) warp.block().synchronized(warp);
}

// bar.sync 0; bar.sync 1, 64; bar.arrive 1, 64; bar.red.popc.u32 %r1, 0, %p1; bar.warp.sync mask;
void build_bar(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
               Instruction& instruction) {
  if (opcode.has("cluster")) not_known(opcode);
  if (opcode.has("warp")) {
    take_rows(opcode, operands, 1, instruction);
    instruction.run = &meet_lanes;
    return;
  }
  instruction.run = &barrier;
  instruction.mode = opcode.has("arrive") ? 0 : kWaits;
  Row result = kNoRow;
  Row predicates = kNoRow;
  if (opcode.has("red")) {
    if (operands.size() < 3) not_known(opcode);
    result = operands.front().rows.at(0);
    predicates = operands.back().rows.at(0);
    if (operands.back().negated) instruction.mode |= kNegated;
    operands.erase(operands.begin());
    operands.pop_back();
    instruction.kind = opcode.has("popc") ? 1 : opcode.has("and") ? 2 : 3;
  } else if (!opcode.has("sync") && !opcode.has("arrive")) {
    not_known(opcode);
  }
  if (operands.empty() || operands.size() > 2) not_known(opcode);
  instruction.rows = {operands[0].rows.at(0),
                      operands.size() > 1 ? operands[1].rows.at(0) : rows.constant(0), result,
                      predicates};
  instruction.row_count = 4;
}

}  // namespace

Family control() {
  return {{"bra", simply<&branch>},
          {"brx", simply<&indexed_branch>},
          {"ret", simply<&end>},
          {"exit", simply<&end>},
          {"trap", simply<&trap>},
          {"call", simply<&call>},
          {"bar", build_bar},
          {"barrier", build_bar},
          {"membar", simply<&nothing>},
          {"fence", simply<&nothing>},
          {"nanosleep", simply<&nothing>},
          {"prefetch", simply<&nothing>},
          {"prefetchu", simply<&nothing>},
          {"discard", simply<&nothing>},
          {"brkpt", simply<&nothing>},
          {"pmevent", simply<&nothing>}};
}

}  // namespace gapless::simgpu::ptx
