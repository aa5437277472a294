// Which function of ours runs an instruction: one file for each family of operations says so for
// those it knows (arithmetic.cc, bits.cc, convert.cc, access.cc, control.cc, lanes.cc).
#pragma once

#include <functional>
#include <vector>

#include "simgpu/ptx/instruction.h"

namespace gapless::simgpu::ptx {

/// What an operation may ask of the kernel it stands in.
class KernelRows {
 public:
  virtual ~KernelRows() = default;
  virtual Row constant(std::uint64_t value) = 0;
  /// For a result that nobody wants.
  virtual Row nowhere() = 0;
};

/// Fills `instruction` from the operands as they were written, or throws PtxError.
using Build = std::function<void(const Opcode& opcode, std::vector<Operand>& operands,
                                 KernelRows& rows, Instruction& instruction)>;

/// Nothing where no family knows the name.
const Build* build_of(std::string_view name);

using Family = std::vector<std::pair<std::string_view, Build>>;
Family arithmetic();
Family bits();
Family conversions();
Family accesses();
Family control();
Family lanes();

/// What is not known of an opcode: "line 12: add.s128 is not known".
[[noreturn]] void not_known(const Opcode& opcode, std::string_view why = "");

/// The rows of operands that all have to be single ones, in their order.
void take_rows(const Opcode& opcode, const std::vector<Operand>& operands, std::size_t count,
               Instruction& instruction);

}  // namespace gapless::simgpu::ptx
