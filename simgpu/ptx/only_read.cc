#include "simgpu/ptx/only_read.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "simgpu/ptx/error.h"
#include "simgpu/ptx/tokens.h"

namespace gapless::simgpu::ptx {
namespace {

using Parameters = std::uint64_t;  // a bit for each
constexpr std::size_t kMostParameters = 64;

struct Operand {
  bool is_address = false;
  std::vector<std::string_view> names;
};

// Where the names of one kernel come from. A name stands for one register here, in whatever scope:
// where two share it, both count as written through.
class Origins {
 public:
  bool add_parameter(std::string_view name, bool is_pointer) {
    if (count_ == kMostParameters) return false;
    if (is_pointer) from_[name] = Parameters{1} << count_;
    has_pointers_ = has_pointers_ || is_pointer;
    ++count_;
    return true;
  }
  [[nodiscard]] bool has_pointers() const { return has_pointers_; }

  void copies(const std::vector<std::string_view>& to, const std::vector<std::string_view>& from) {
    for (const std::string_view target : to) {
      for (const std::string_view source : from) copies_.emplace_back(target, source);
    }
  }
  void writes(const std::vector<std::string_view>& address) { writes_.push_back(address); }

  // None where something is written through an address of which nothing is known.
  std::optional<std::vector<bool>> only_read() {
    bool more = true;
    while (more) {
      more = false;
      for (const auto& [to, from] : copies_) {
        const auto found = from_.find(from);
        if (found == from_.end()) continue;
        Parameters& known = from_[to];
        more = more || (found->second & ~known) != 0;
        known |= found->second;
      }
    }
    Parameters written = 0;
    for (const std::vector<std::string_view>& address : writes_) {
      Parameters through = 0;
      for (const std::string_view name : address) {
        if (const auto found = from_.find(name); found != from_.end()) through |= found->second;
      }
      if (through == 0) return std::nullopt;
      written |= through;
    }
    std::vector<bool> flags(count_);
    for (std::size_t i = 0; i < count_; ++i) flags[i] = (written >> i & 1) == 0;
    return flags;
  }

 private:
  std::map<std::string_view, Parameters> from_;
  std::vector<std::pair<std::string_view, std::string_view>> copies_;
  std::vector<std::vector<std::string_view>> writes_;
  std::size_t count_ = 0;
  bool has_pointers_ = false;
};

// "st.shared::cta.b32" in its parts: st, shared, cta, b32.
std::vector<std::string_view> opcode_of(Tokens& tokens) {
  std::vector<std::string_view> parts{tokens.word()};
  while (tokens.accept(".") || tokens.accept(":")) {
    while (tokens.accept(":")) continue;
    parts.push_back(tokens.next().text);
  }
  return parts;
}

std::vector<Operand> operands_of(Tokens& tokens) {
  std::vector<Operand> operands(1);
  int depth = 0;
  while (!tokens.at_end() && !tokens.is(";")) {
    const Token& token = tokens.next();
    if (token.text == "[") operands.back().is_address = true;
    if (token.text == "[" || token.text == "{") ++depth;
    if (token.text == "]" || token.text == "}") --depth;
    if (token.text == "," && depth == 0) operands.emplace_back();
    if (token.kind == Token::Kind::word) operands.back().names.push_back(token.text);
  }
  tokens.accept(";");
  return operands;
}

bool has(const std::vector<std::string_view>& parts, std::string_view part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

// Instructions that write only where no other kernel sees it, or nowhere; whatever else has an
// address may write to it.
bool writes_no_global_memory(const std::vector<std::string_view>& opcode) {
  static const std::vector<std::string_view> kWriteNowhere{"ld",       "ldu",       "ldmatrix",
                                                           "prefetch", "prefetchu", "mbarrier"};
  if (has(kWriteNowhere, opcode[0])) return true;
  for (const std::string_view part : opcode) {
    if (part == "shared" || part == "local" || part == "param") return true;
    if (part == "global") return false;  // of a copy the first is where to
  }
  return opcode[0] == "stmatrix";
}

// Assertions and print: they write nothing of a program's.
bool calls_no_code(const std::vector<Operand>& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return has(operand.names, "__assertfail") || has(operand.names, "vprintf");
  });
}

// False of what cannot be followed.
bool instruction(Tokens& tokens, Origins& origins) {
  if (tokens.accept("@")) {
    tokens.accept("!");
    tokens.word();
  }
  const std::vector<std::string_view> opcode = opcode_of(tokens);
  const std::vector<Operand> operands = operands_of(tokens);
  if (opcode[0] == "call") return calls_no_code(operands);
  const bool has_address = std::any_of(operands.begin(), operands.end(),
                                       [](const Operand& operand) { return operand.is_address; });
  if (has_address && !writes_no_global_memory(opcode)) {
    for (const Operand& operand : operands) {
      if (operand.is_address) origins.writes(operand.names);
    }
  }
  const bool reads_memory = has_address && !has(opcode, "param");
  for (std::size_t i = 1; i < operands.size() && !reads_memory; ++i) {
    origins.copies(operands[0].names, operands[i].names);
  }
  return true;
}

// From behind "(" to behind ")".
bool parameters(Tokens& tokens, Origins& origins) {
  while (!tokens.at_end()) {
    std::string_view name;
    bool is_pointer = false;
    while (!tokens.at_end() && !tokens.is(",") && !tokens.is(")")) {
      if (tokens.is("[")) return false;
      const Token& token = tokens.next();
      if (token.text == "ptr") is_pointer = true;
      if (token.kind == Token::Kind::word) name = token.text;
    }
    if (!name.empty() && !origins.add_parameter(name, is_pointer)) return false;
    if (!tokens.accept(",")) break;
  }
  return tokens.accept(")");
}

bool statement(Tokens& tokens, Origins& origins) {
  if (tokens.accept(".")) {
    if (tokens.is("loc") || tokens.is("file")) {
      tokens.skip_line();
    } else {
      tokens.skip_statement();
    }
    return true;
  }
  if (tokens.peek(1).text == ":") {
    tokens.next();
    tokens.next();
    return true;
  }
  return instruction(tokens, origins);
}

// From behind the kernel's name.
std::optional<std::vector<bool>> of_kernel(Tokens& tokens) {
  Origins origins;
  if (!tokens.accept("(") || !parameters(tokens, origins) || !origins.has_pointers()) {
    return std::nullopt;
  }
  while (!tokens.at_end() && !tokens.is("{")) tokens.next();
  tokens.expect("{");
  for (int depth = 1; depth > 0;) {
    if (tokens.at_end()) return std::nullopt;
    if (tokens.accept("{")) {
      ++depth;
    } else if (tokens.accept("}")) {
      --depth;
    } else if (!tokens.accept(";") && !statement(tokens, origins)) {
      return std::nullopt;
    }
  }
  return origins.only_read();
}

}  // namespace

std::map<std::string, std::vector<bool>, std::less<>> only_read(std::string_view ptx) {
  std::map<std::string, std::vector<bool>, std::less<>> found;
  try {
    Tokens tokens(tokens_of(ptx));
    while (!tokens.at_end()) {
      if (tokens.next().text != "." || !tokens.accept("entry")) continue;
      const std::string name(tokens.word());
      const std::size_t begin = tokens.position();
      if (auto flags = of_kernel(tokens)) {
        found[name] = std::move(*flags);
      } else {
        tokens.go_back(begin);
      }
    }
  } catch (const PtxError&) {
    return {};
  }
  return found;
}

}  // namespace gapless::simgpu::ptx
