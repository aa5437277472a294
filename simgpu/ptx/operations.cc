#include "simgpu/ptx/operations.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "simgpu/ptx/error.h"

namespace gapless::simgpu::ptx {

bool Opcode::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

const Build* build_of(std::string_view name) {
  static const auto known = [] {
    std::unordered_map<std::string_view, Build> all;
    for (const Family& family :
         {arithmetic(), bits(), conversions(), accesses(), control(), lanes()}) {
      all.insert(family.begin(), family.end());
    }
    return all;
  }();
  const auto found = known.find(name);
  return found == known.end() ? nullptr : &found->second;
}

void not_known(const Opcode& opcode, std::string_view why) {
  std::string text(opcode.text);
  text += " is not known";
  if (!why.empty()) text += ": " + std::string(why);
  throw PtxError(opcode.line, text);
}

void take_rows(const Opcode& opcode, const std::vector<Operand>& operands, std::size_t count,
               Instruction& instruction) {
  if (operands.size() != count) {
    not_known(opcode, "with " + std::to_string(operands.size()) + " operands");
  }
  for (const Operand& operand : operands) {
    if (operand.kind != Operand::Kind::row || operand.rows.size() != 1 || operand.negated) {
      not_known(opcode, "with such operands");
    }
    instruction.rows[instruction.row_count++] = operand.rows[0];
  }
}

}  // namespace gapless::simgpu::ptx
