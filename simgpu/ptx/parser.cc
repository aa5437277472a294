#include "simgpu/ptx/declaration.h"
#include "simgpu/ptx/error.h"
#include "simgpu/ptx/kernel_parser.h"
#include "simgpu/ptx/module.h"
#include "simgpu/ptx/tokens.h"

namespace gapless::simgpu::ptx {
namespace {

class ModuleParser {
 public:
  ModuleParser(Module& module, const std::function<std::uint64_t(const Variable&)>& place)
      : tokens_(tokens_of(module.text)), module_(module), place_(place) {}

  void run() {
    if (!tokens_.is(".") || tokens_.peek(1).text != "version")
      tokens_.wrong(".version was expected");
    find_functions();
    while (!tokens_.at_end()) {
      tokens_.expect(".");
      item();
    }
  }

 private:
  // .func (results) name (parameters) { ... }: where each that has a body begins. They may be
  // called before they come.
  void find_functions() {
    const std::size_t begin = tokens_.position();
    while (!tokens_.at_end()) {
      if (tokens_.next().text != "." || !tokens_.accept("func")) continue;
      const std::size_t function = tokens_.position();
      if (tokens_.accept("(")) skip_list();
      if (tokens_.peek().kind != Token::Kind::word) continue;
      const std::string name(tokens_.word());
      if (tokens_.accept("(")) skip_list();
      while (!tokens_.is("{") && !tokens_.is(";") && !tokens_.at_end()) tokens_.next();
      if (tokens_.is("{")) functions_[name] = function;
    }
    tokens_.go_back(begin);
  }
  void skip_list() {
    while (!tokens_.at_end() && !tokens_.accept(")")) tokens_.next();
  }

  void item() {
    const std::string_view word = tokens_.word();
    if (word == "version" || word == "target" || word == "address_size" || word == "file") {
      tokens_.skip_line();
    } else if (word == "visible" || word == "weak" || word == "common" || word == "extern") {
      is_extern_ = word == "extern";
      return;
    } else if (word == "entry") {
      kernel();
    } else if (word == "global" || word == "const") {
      variable();
    } else if (word == "shared") {
      shared();
    } else if (word == "section") {
      while (!tokens_.is("{") && !tokens_.at_end()) tokens_.next();
      tokens_.skip_statement();
    } else {
      // Functions are parsed where they are called; calls of aliases are told when they are made.
      tokens_.skip_statement();
    }
    is_extern_ = false;
  }

  void kernel() {
    const std::string name(tokens_.word());
    Kernel& kernel = module_.kernels[name];
    kernel = {};
    kernel.name = name;
    const std::size_t begin = tokens_.position();
    try {
      KernelParser(tokens_, symbols_, functions_, shared_bytes_, kernel).run();
    } catch (const PtxError& error) {
      const unsigned line = kernel.line;
      kernel = {};
      kernel.name = name;
      kernel.line = line;
      kernel.error = error.what();
      // Its end is where its braces end.
      tokens_.go_back(begin);
      while (!tokens_.is("{") && !tokens_.at_end()) tokens_.next();
      if (tokens_.at_end()) throw;
      tokens_.skip_statement();
    }
  }

  void variable() {
    Variable variable = declared(tokens_).variable;
    tokens_.expect(";");
    if (is_extern_) return;
    variable.address = place_(variable);
    symbols_[variable.name] = {Symbol::Kind::place, 0, variable.address};
    module_.variables[variable.name] = std::move(variable);
  }

  // In every kernel at the same place.
  void shared() {
    const Declared made = declared(tokens_);
    tokens_.expect(";");
    if (made.is_unsized) {
      symbols_[made.variable.name] = {Symbol::Kind::dynamic_shared, 0, 0};
      return;
    }
    const unsigned alignment = made.variable.alignment;
    const unsigned place = (shared_bytes_ + alignment - 1) / alignment * alignment;
    shared_bytes_ = place + static_cast<unsigned>(made.variable.bytes);
    symbols_[made.variable.name] = {Symbol::Kind::place, 0, place};
  }

  Tokens tokens_;
  Module& module_;
  const std::function<std::uint64_t(const Variable&)>& place_;
  Symbols symbols_;
  Functions functions_;
  unsigned shared_bytes_ = 0;
  bool is_extern_ = false;
};

}  // namespace

void parse(std::string ptx, Module& module,
           const std::function<std::uint64_t(const Variable&)>& place) {
  module.text = std::move(ptx);
  ModuleParser(module, place).run();
}

}  // namespace gapless::simgpu::ptx
