// A device's memory for kernels in PTX, and one instruction at a time run for a warp.
//
//   calculate("add.s32", {Type::s32, {Type::s32, Type::s32}}, {{1, 2}, {3, 4}})    {3, 7}
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "simgpu/ptx/launch.h"

namespace gapless::simgpu::ptx {

class HostedMemory final : public GlobalMemory {
 public:
  std::uint64_t alloc(std::uint64_t bytes) {
    const std::uint64_t address = next_;
    next_ += (bytes + 4096) / 256 * 256;
    blocks_[address].resize(bytes);
    return address;
  }
  template <class T>
  std::uint64_t holding(const std::vector<T>& values) {
    const std::uint64_t address = alloc(values.size() * sizeof(T));
    if (!values.empty())
      std::memcpy(blocks_[address].data(), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> values(std::uint64_t address) const {
    const auto& block = blocks_.at(address);
    std::vector<T> found(block.size() / sizeof(T));
    if (!found.empty()) std::memcpy(found.data(), block.data(), found.size() * sizeof(T));
    return found;
  }

  bool read(std::uint64_t address, void* target, std::uint64_t bytes) override {
    const unsigned char* const from = find(address, bytes);
    if (from != nullptr) std::memcpy(target, from, bytes);
    return from != nullptr;
  }
  bool write(std::uint64_t address, const void* source, std::uint64_t bytes) override {
    unsigned char* const to = find(address, bytes);
    if (to != nullptr) std::memcpy(to, source, bytes);
    return to != nullptr;
  }
  [[nodiscard]] std::string describe(std::uint64_t) const override { return "no memory"; }

 private:
  unsigned char* find(std::uint64_t address, std::uint64_t bytes) {
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return nullptr;
    --block;
    const std::uint64_t offset = address - block->first;
    if (offset + bytes > block->second.size()) return nullptr;
    return block->second.data() + offset;
  }

  std::uint64_t next_ = 0x7000'0000'0000;
  std::map<std::uint64_t, std::vector<unsigned char>> blocks_;
};

/// "" where it cannot be read.
inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Module parsed(const std::string& ptx, HostedMemory& memory) {
  Module module;
  parse(ptx, module, [&](const Variable& variable) {
    const std::uint64_t address = memory.alloc(variable.bytes);
    memory.write(address, variable.initial.data(), variable.initial.size());
    return address;
  });
  return module;
}

/// Parameters of 64 and 32 bits, as they lie one after the other.
inline LaunchResult run(const Module& module, const std::string& kernel,
                        const LaunchSettings& settings, const std::vector<std::uint64_t>& arguments,
                        GlobalMemory& memory) {
  const Kernel& found = module.kernels.at(kernel);
  std::vector<unsigned char> bytes(found.parameter_bytes);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::memcpy(bytes.data() + found.parameters.at(i).offset, &arguments[i],
                found.parameters[i].bytes);
  }
  return launch(found, settings, bytes, memory);
}

inline std::string kernel_text(const std::string& declared_and_body,
                               const std::string& parameters) {
  return ".version 8.5\n.target sm_75\n.address_size 64\n.visible .entry k(" + parameters +
         ")\n{\n" + declared_and_body + "\n}\n";
}

/// The result of one instruction for each row of operands (at most 32 rows), as bits. `types`: of
/// the result and of each operand; a predicate is 0 or 1.
inline std::vector<std::uint64_t> calculate(const std::string& instruction,
                                            const std::vector<Type>& types,
                                            const std::vector<std::vector<std::uint64_t>>& rows) {
  HostedMemory memory;
  const auto name = [](std::size_t i) { return "%v" + std::to_string(i); };
  const auto declaration = [&](std::size_t i) {
    const Type type = types[i];
    const std::string words = type == Type::pred    ? "pred"
                              : bytes_of(type) <= 2 ? "b16"
                              : bytes_of(type) == 4 ? "b32"
                                                    : "b64";
    return ".reg ." + words + " " + name(i) + ";\n";
  };
  const auto wide = [&](std::size_t i) {  // how many bits lie in memory
    return bytes_of(types[i]) <= 2 ? "u16" : bytes_of(types[i]) == 4 ? "u32" : "u64";
  };
  std::string text = ".reg .b64 %in, %out, %i; .reg .b32 %t; .reg .b16 %h;\n";
  for (std::size_t i = 0; i < types.size(); ++i) text += declaration(i);
  text += "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n";
  std::string operands = " " + name(0);
  for (std::size_t i = 1; i < types.size(); ++i) {
    const std::string offset = std::to_string(8 * (i - 1));
    text += "mad.wide.u32 %i, %t, " + std::to_string(8 * (types.size() - 1)) + ", %in;\n";
    if (types[i] == Type::pred) {
      text += "ld.global.u16 %h, [%i+" + offset + "]; setp.ne.u16 " + name(i) + ", %h, 0;\n";
    } else {
      text += std::string("ld.global.") + wide(i) + " " + name(i) + ", [%i+" + offset + "];\n";
    }
    operands += ", " + name(i);
  }
  text += instruction + operands + ";\nmad.wide.u32 %i, %t, 8, %out;\n";
  if (types[0] == Type::pred) {
    text += "selp.b16 %h, 1, 0, %v0; st.global.u16 [%i], %h;\n";
  } else {
    text += std::string("st.global.") + wide(0) + " [%i], %v0;\n";
  }
  const Module module = parsed(kernel_text(text, ".param .u64 in, .param .u64 out"), memory);
  std::vector<std::uint64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const std::uint64_t in = memory.holding(flat);
  const std::uint64_t out = memory.alloc(rows.size() * 8);
  LaunchSettings settings;
  settings.block = {static_cast<unsigned>(rows.size()), 1, 1};
  const LaunchResult result = run(module, "k", settings, {in, out}, memory);
  if (!result.completed) return {};
  return memory.values<std::uint64_t>(out);
}

}  // namespace gapless::simgpu::ptx
