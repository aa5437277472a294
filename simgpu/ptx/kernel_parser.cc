#include "simgpu/ptx/kernel_parser.h"

#include <algorithm>

#include "simgpu/ptx/declaration.h"
#include "simgpu/ptx/error.h"
#include "simgpu/ptx/number.h"

namespace gapless::simgpu::ptx {
namespace {

constexpr unsigned kDynamicSharedAlignment = 16;
constexpr std::uint64_t kMostRegisters = 1'000'000;
constexpr std::size_t kMostInstructions = 2'000'000;
// No label is called so.
constexpr std::string_view kReturn = "(return)";

std::uint64_t aligned(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

using Kind = Kernel::Special::Kind;
const std::map<std::string_view, Kind>& special_kinds() {
  static const std::map<std::string_view, Kind> kinds{
      {"%tid", Kind::tid},
      {"%ntid", Kind::ntid},
      {"%ctaid", Kind::ctaid},
      {"%nctaid", Kind::nctaid},
      {"%laneid", Kind::laneid},
      {"%warpid", Kind::warpid},
      {"%nwarpid", Kind::nwarpid},
      {"%smid", Kind::smid},
      {"%nsmid", Kind::nsmid},
      {"%gridid", Kind::gridid},
      {"%lanemask_eq", Kind::lanemask_eq},
      {"%lanemask_lt", Kind::lanemask_lt},
      {"%lanemask_le", Kind::lanemask_le},
      {"%lanemask_gt", Kind::lanemask_gt},
      {"%lanemask_ge", Kind::lanemask_ge},
      {"%clock", Kind::clock},
      {"%clock_hi", Kind::clock_high},
      {"%clock64", Kind::clock},
      {"%globaltimer", Kind::clock},
      {"%globaltimer_lo", Kind::clock},
      {"%globaltimer_hi", Kind::clock_high},
      {"%dynamic_smem_size", Kind::dynamic_shared_bytes},
      {"%total_smem_size", Kind::total_shared_bytes}};
  return kinds;
}

}  // namespace

KernelParser::KernelParser(Tokens& tokens, const Symbols& outside, const Functions& functions,
                           unsigned shared_bytes, Kernel& kernel)
    : tokens_(tokens), kernel_(kernel), functions_(functions) {
  scopes_.emplace_back();
  scopes_[0].symbols = outside;
  kernel_.shared_bytes = shared_bytes;
}

void KernelParser::run() {
  kernel_.line = tokens_.line();
  parameters();
  // .maxntid 256, 1, 1 and others: what a compiler wants to know.
  while (!tokens_.is("{") && !tokens_.at_end()) tokens_.next();
  tokens_.expect("{");
  scopes_.emplace_back();
  while (scopes_.size() > 1) {
    if (tokens_.at_end()) tokens_.wrong("'}' was expected");
    statement();
  }
  if (!scopes_[0].pending.empty()) {
    const Pending& missing = scopes_[0].pending.front();
    throw PtxError(kernel_.instructions[missing.instruction].line,
                   "there is no label " + missing.label);
  }
  if (dynamic_shared_ != kNoRow) {
    kernel_.shared_bytes =
        static_cast<unsigned>(aligned(kernel_.shared_bytes, kDynamicSharedAlignment));
    kernel_.constants.push_back({dynamic_shared_, kernel_.shared_bytes});
  }
  kernel_.row_count = next_row_;
}

Row KernelParser::constant(std::uint64_t value) {
  const auto [found, is_new] = constants_.try_emplace(value, next_row_);
  if (is_new) kernel_.constants.push_back({next_row_++, value});
  return found->second;
}

Row KernelParser::nowhere() {
  if (nowhere_ == kNoRow) nowhere_ = next_row_++;
  return nowhere_;
}

// --- statements ----------------------------------------------------------------------------------

void KernelParser::parameters() {
  if (!tokens_.accept("(")) return;
  std::uint64_t end = 0;
  while (!tokens_.accept(")")) {
    tokens_.expect(".");
    tokens_.expect("param");
    const Variable variable = declared(tokens_).variable;
    end = aligned(end, variable.alignment);
    kernel_.parameters.push_back(
        {variable.name, static_cast<unsigned>(end), static_cast<unsigned>(variable.bytes)});
    scopes_[0].symbols[variable.name] = {Symbol::Kind::place, 0, end};
    end += variable.bytes;
    tokens_.accept(",");
  }
  kernel_.parameter_bytes = static_cast<unsigned>(end);
}

void KernelParser::statement() {
  if (tokens_.accept(";")) return;
  if (tokens_.accept("{")) {
    scopes_.emplace_back();
  } else if (tokens_.accept("}")) {
    close_scope();
  } else if (tokens_.is(".")) {
    directive();
  } else if (tokens_.peek(1).text == ":") {
    label();
  } else {
    instruction();
  }
}

void KernelParser::close_scope() {
  if (scopes_.size() == 2 && called_.empty()) {  // whoever comes to the end of the kernel has ended
    Instruction end;
    end.line = tokens_.line();
    std::vector<Operand> none;
    (*build_of("ret"))(Opcode{"ret", "ret", {}, {}, end.line}, none, *this, end);
    end.text = "ret";
    kernel_.instructions.push_back(std::move(end));
  }
  const Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const Pending& pending : scope.pending) {
    const auto found = scope.labels.find(pending.label);
    if (found == scope.labels.end()) {
      scopes_.back().pending.push_back(pending);
      continue;
    }
    Instruction& branch = kernel_.instructions[pending.instruction];
    (pending.target ? branch.targets[*pending.target] : branch.target) = found->second;
  }
}

void KernelParser::label() {
  const std::string name(tokens_.word());
  tokens_.expect(":");
  if (tokens_.is(".") && tokens_.peek(1).text == "branchtargets") {
    tokens_.next();
    tokens_.next();
    auto& names = scopes_.back().branch_targets[name];
    do names.emplace_back(tokens_.word());
    while (tokens_.accept(","));
    tokens_.expect(";");
    return;
  }
  scopes_.back().labels[name] = static_cast<std::uint32_t>(kernel_.instructions.size());
}

void KernelParser::directive() {
  tokens_.expect(".");
  const std::string_view word = tokens_.peek().text;
  if (word == "loc" || word == "file") {
    tokens_.skip_line();
  } else if (word == "pragma" || word == "callprototype" || word == "calltargets") {
    tokens_.skip_statement();
  } else if (word == "reg") {
    tokens_.next();
    registers();
  } else if (word == "shared" || word == "local" || word == "param") {
    tokens_.next();
    variable(word);
  } else {
    tokens_.wrong("a directive that is known was expected");
  }
}

void KernelParser::registers() {
  while (tokens_.accept(".")) tokens_.word();
  do {
    const std::string name(tokens_.word());
    Symbols& symbols = scopes_.back().symbols;
    if (!tokens_.accept("<")) {
      symbols[name] = {Symbol::Kind::row, next_row_++, 0};
      continue;
    }
    const std::uint64_t count = tokens_.whole_number();
    if (count > kMostRegisters) tokens_.wrong("fewer than a million registers were expected");
    for (std::uint64_t i = 0; i < count; ++i) {
      symbols[name + std::to_string(i)] = {Symbol::Kind::row, next_row_++, 0};
    }
    tokens_.expect(">");
  } while (tokens_.accept(","));
  tokens_.expect(";");
}

// What is passed to a function (.param) lies with a thread's own memory.
void KernelParser::variable(std::string_view space) {
  const Declared made = declared(tokens_);
  tokens_.expect(";");
  unsigned& end = space == "shared" ? kernel_.shared_bytes : kernel_.local_bytes;
  const std::uint64_t place = aligned(end, made.variable.alignment);
  if (place + made.variable.bytes > (1U << 30)) tokens_.wrong("a variable of more than 1 GiB");
  end = static_cast<unsigned>(place + made.variable.bytes);
  scopes_.back().symbols[made.variable.name] = {
      made.is_unsized ? Symbol::Kind::dynamic_shared : Symbol::Kind::place, 0, place,
      space == "param"};
}

// --- instructions --------------------------------------------------------------------------------

void KernelParser::instruction() {
  Instruction made;
  if (tokens_.accept("@")) {
    made.guard_negated = tokens_.accept("!");
    made.guard = row_named(tokens_.word());
  }
  const Opcode name = opcode();
  made.line = name.line;
  made.text = name.text;
  const Build* const build = build_of(name.name);
  if (build == nullptr) not_known(name);
  if (name.name == "ret" && !called_.empty()) {
    tokens_.expect(";");
    branch_to(kReturn, made);
    return;
  }
  std::vector<Operand> operands;
  if (name.name == "call") {
    if (call(made)) return;
  } else if (name.name == "bra" || name.name == "brx") {
    branch(name, made);
  } else {
    while (!tokens_.is(";")) {
      operands.push_back(operand(name));
      if (!tokens_.accept(",")) break;
    }
  }
  tokens_.expect(";");
  (*build)(name, operands, *this, made);
  kernel_.instructions.push_back(std::move(made));
}

// call.uni (result), function, (arguments): true where the function was put in its place. Of one
// without a body, or called through a pointer, the name is kept as the instruction's text.
bool KernelParser::call(Instruction& made) {
  const auto names = [&] {
    std::vector<std::string> found;
    if (!tokens_.accept("(")) return found;
    while (!tokens_.accept(")") && !tokens_.at_end()) {
      found.emplace_back(tokens_.next().text);
      tokens_.accept(",");
    }
    tokens_.accept(",");
    return found;
  };
  const std::vector<std::string> results = names();
  made.text = tokens_.word();
  tokens_.accept(",");
  const std::vector<std::string> arguments = names();
  const auto function = functions_.find(made.text);
  if (function == functions_.end()) {
    while (!tokens_.is(";") && !tokens_.at_end()) tokens_.next();
    return false;
  }
  tokens_.expect(";");
  scopes_.emplace_back();
  if (made.guard != kNoRow) {
    Instruction others = made;
    others.guard_negated = !made.guard_negated;
    branch_to(kReturn, others);
  }
  put_in_place(function->second, results, arguments);
  return true;
}

// In the scope that was opened for it.
void KernelParser::put_in_place(std::size_t function, const std::vector<std::string>& results,
                                const std::vector<std::string>& arguments) {
  if (std::find(called_.begin(), called_.end(), function) != called_.end()) {
    tokens_.wrong("a function that does not call itself was expected");
  }
  if (kernel_.instructions.size() > kMostInstructions) {
    tokens_.wrong("fewer than two million instructions were expected, those of functions included");
  }
  const std::size_t behind_call = tokens_.position();
  const std::size_t depth = scopes_.size();
  called_.push_back(function);
  tokens_.go_back(function);
  bind(results);
  tokens_.word();
  bind(arguments);
  while (!tokens_.is("{") && !tokens_.at_end()) tokens_.next();
  tokens_.expect("{");
  scopes_.emplace_back();
  while (scopes_.size() > depth) {
    if (tokens_.at_end()) tokens_.wrong("'}' was expected");
    statement();
  }
  called_.pop_back();
  scopes_.back().labels[std::string(kReturn)] =
      static_cast<std::uint32_t>(kernel_.instructions.size());
  close_scope();
  tokens_.go_back(behind_call);
}

// (.param .b32 x, ...): each is what was passed in its place.
void KernelParser::bind(const std::vector<std::string>& passed) {
  if (!tokens_.accept("(")) return;
  for (std::size_t i = 0; !tokens_.accept(")"); ++i) {
    tokens_.expect(".");
    tokens_.expect("param");
    const Variable variable = declared(tokens_).variable;
    const Symbol* const symbol = i < passed.size() ? symbol_named(passed[i]) : nullptr;
    if (symbol == nullptr || symbol->kind != Symbol::Kind::place) {
      tokens_.wrong("a call that passes " + variable.name + " was expected");
    }
    scopes_.back().symbols[variable.name] = *symbol;
    tokens_.accept(",");
  }
}

void KernelParser::branch_to(std::string_view label, const Instruction& guarded) {
  Instruction made;
  made.guard = guarded.guard;
  made.guard_negated = guarded.guard_negated;
  made.line = guarded.line;
  std::vector<Operand> none;
  scopes_.back().pending.push_back({std::string(label), kernel_.instructions.size(), std::nullopt});
  (*build_of("bra"))(Opcode{"bra", "bra", {}, {}, made.line}, none, *this, made);
  made.text = "bra";
  kernel_.instructions.push_back(std::move(made));
}

// bra label; or brx.idx %r1, label-of-branchtargets;
void KernelParser::branch(const Opcode& name, Instruction& made) {
  const std::size_t at = kernel_.instructions.size();
  if (name.name == "bra") {
    scopes_.back().pending.push_back({std::string(tokens_.word()), at, std::nullopt});
    return;
  }
  made.rows[0] = row_named(tokens_.word());
  made.row_count = 1;
  tokens_.expect(",");
  const std::string_view list = tokens_.word();
  for (const Scope& scope : scopes_) {
    const auto found = scope.branch_targets.find(list);
    if (found == scope.branch_targets.end()) continue;
    made.targets.resize(found->second.size());
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      scopes_.back().pending.push_back({found->second[i], at, i});
    }
  }
  if (made.targets.empty()) throw PtxError(name.line, "there are no targets " + std::string(list));
}

Opcode KernelParser::opcode() {
  Opcode made;
  made.line = tokens_.line();
  made.name = tokens_.word();
  const char* const begin = made.name.data();
  const char* end = begin + made.name.size();
  while (tokens_.accept(".")) {
    const char* const from = tokens_.peek().text.data();
    end = from + tokens_.next().text.size();
    while (tokens_.is(":") && tokens_.peek(1).text == ":") {  // shared::cta
      tokens_.next();
      tokens_.next();
      const std::string_view part = tokens_.next().text;
      end = part.data() + part.size();
    }
    const std::string_view modifier(from, static_cast<std::size_t>(end - from));
    if (const auto type = type_named(modifier)) {
      made.types.push_back(*type);
    } else {
      made.modifiers.push_back(modifier);
    }
  }
  made.text = std::string_view(begin, static_cast<std::size_t>(end - begin));
  return made;
}

Operand KernelParser::operand(const Opcode& name) {
  Operand made;
  made.negated = tokens_.accept("!");
  if (tokens_.accept("[")) {
    made.kind = Operand::Kind::address;
    address(made);
  } else if (tokens_.accept("{")) {
    made.kind = Operand::Kind::vector;
    do made.rows.push_back(value(name));
    while (tokens_.accept(","));
    tokens_.expect("}");
  } else {
    made.rows.push_back(value(name));
    if (tokens_.accept("|")) made.rows.push_back(value(name));
  }
  return made;
}

void KernelParser::address(Operand& made) {
  if (tokens_.peek().kind == Token::Kind::number || tokens_.is("-")) {
    made.rows.push_back(constant(0));
    made.offset = static_cast<std::int64_t>(tokens_.whole_number());
  } else {
    const std::string_view name = tokens_.word();
    const Symbol* const symbol = symbol_named(name);
    made.is_own = symbol != nullptr && symbol->is_own;
    made.rows.push_back(row_named(name));
  }
  while (tokens_.is("+") || tokens_.is("-")) {
    tokens_.accept("+");
    made.offset += static_cast<std::int64_t>(tokens_.whole_number());
  }
  tokens_.expect("]");
}

// A register, a number, or a name that stands for a place.
Row KernelParser::value(const Opcode& name) {
  const bool is_negative = tokens_.is("-");
  const Token& number = tokens_.peek(is_negative ? 1 : 0);
  if (number.kind == Token::Kind::number) {
    const Type type = name.types.empty() ? Type::b64 : name.types.back();
    const auto bits = number_bits(number.text, is_negative, type);
    if (!bits) tokens_.wrong("a number was expected");
    if (is_negative) tokens_.next();
    tokens_.next();
    return constant(*bits);
  }
  if (tokens_.accept("_")) return nowhere();
  return row_named(tokens_.word());
}

const Symbol* KernelParser::symbol_named(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->symbols.find(name);
    if (found != scope->symbols.end()) return &found->second;
  }
  return nullptr;
}

Row KernelParser::row_named(std::string_view name) {
  if (const Symbol* const symbol = symbol_named(name)) {
    if (symbol->kind == Symbol::Kind::row) return symbol->row;
    if (symbol->kind == Symbol::Kind::place) return constant(symbol->place);
    if (dynamic_shared_ == kNoRow) dynamic_shared_ = next_row_++;
    return dynamic_shared_;
  }
  if (const auto special = special_named(name)) return *special;
  if (name == "WARP_SZ") return constant(kLanes);
  throw PtxError(tokens_.line(), "nothing is called " + std::string(name));
}

std::optional<Row> KernelParser::special_named(std::string_view name) {
  const auto kind = special_kinds().find(name);
  if (kind == special_kinds().end()) return std::nullopt;
  unsigned axis = 0;
  if (kind->second <= Kind::nctaid) {
    tokens_.expect(".");
    const std::string_view letter = tokens_.word();
    if (letter.size() != 1 || letter[0] < 'x' || letter[0] > 'z') {
      tokens_.wrong("x, y or z was expected before this");
    }
    axis = static_cast<unsigned>(letter[0] - 'x');
  }
  const auto [found, is_new] = specials_.try_emplace(std::make_pair(kind->second, axis), next_row_);
  if (is_new) kernel_.specials.push_back({next_row_++, kind->second, axis});
  return found->second;
}

}  // namespace gapless::simgpu::ptx
