// KernelParser: a kernel's parameters and statements, from the text to instructions. Names live in
// scopes, as inline assembly opens them in braces:
//
//   .reg .b32 %r<3>;                  %r0, %r1, %r2
//   { .reg .pred p; @p bra L; L: }    p and L are known in here
//
// A function that is called is put in the place of the call, in a scope of its own: its parameters
// are the places of what is passed, and to return is to branch behind it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simgpu/ptx/module.h"
#include "simgpu/ptx/operations.h"
#include "simgpu/ptx/tokens.h"

namespace gapless::simgpu::ptx {

/// What a name stands for.
struct Symbol {
  enum class Kind : std::uint8_t { row, place, dynamic_shared } kind = Kind::row;
  Row row = 0;
  std::uint64_t place = 0;  // in its space
  bool is_own = false;      // it is passed to a function: of the thread's own memory
};
using Symbols = std::map<std::string, Symbol, std::less<>>;
/// Where a function's text begins, behind ".func".
using Functions = std::map<std::string, std::size_t, std::less<>>;

class KernelParser final : public KernelRows {
 public:
  /// `outside`: the module's variables. `shared_bytes` of them are shared.
  KernelParser(Tokens& tokens, const Symbols& outside, const Functions& functions,
               unsigned shared_bytes, Kernel& kernel);

  /// From behind the kernel's name to behind its last brace.
  void run();

  Row constant(std::uint64_t value) override;
  Row nowhere() override;

 private:
  // A branch to a label that is not known yet.
  struct Pending {
    std::string label;
    std::size_t instruction = 0;
    std::optional<std::size_t> target;  // which, of several
  };
  struct Scope {
    Symbols symbols;
    std::map<std::string, std::uint32_t, std::less<>> labels;
    std::map<std::string, std::vector<std::string>, std::less<>> branch_targets;
    std::vector<Pending> pending;
  };

  void parameters();
  void statement();
  void close_scope();
  void label();
  void directive();
  void registers();
  void variable(std::string_view space);

  void instruction();
  bool call(Instruction& made);
  void put_in_place(std::size_t function, const std::vector<std::string>& results,
                    const std::vector<std::string>& arguments);
  void bind(const std::vector<std::string>& passed);
  void branch_to(std::string_view label, const Instruction& guarded);
  void branch(const Opcode& opcode, Instruction& made);
  Opcode opcode();
  Operand operand(const Opcode& opcode);
  void address(Operand& made);
  Row value(const Opcode& opcode);
  [[nodiscard]] const Symbol* symbol_named(std::string_view name) const;
  Row row_named(std::string_view name);
  std::optional<Row> special_named(std::string_view name);

  Tokens& tokens_;
  Kernel& kernel_;
  const Functions& functions_;
  std::vector<Scope> scopes_;
  std::vector<std::size_t> called_;  // the functions that are being put in place
  std::map<std::uint64_t, Row> constants_;
  std::map<std::pair<Kernel::Special::Kind, unsigned>, Row> specials_;
  Row next_row_ = 0;
  Row nowhere_ = kNoRow;
  Row dynamic_shared_ = kNoRow;
};

}  // namespace gapless::simgpu::ptx
