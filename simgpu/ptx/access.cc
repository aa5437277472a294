// Loads, stores and atomic operations.
#include <algorithm>
#include <bit>
#include <cmath>

#include "simgpu/ptx/block.h"
#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"
#include "simgpu/ptx/run_for.h"

namespace gapless::simgpu::ptx {
namespace {

void set_space(const Opcode& opcode, Instruction& instruction) {
  for (const std::string_view word : opcode.modifiers) {
    if (word.substr(0, 6) == "shared") instruction.space = Space::shared;
    if (word == "global" || word == "const") instruction.space = Space::global;
    if (word == "local") instruction.space = Space::local;
    if (word == "param") instruction.space = Space::param;
    if (word == "v2") instruction.width = 2;
    if (word == "v4") instruction.width = 4;
    // A volatile access is not torn, but orders nothing: it may race.
    if (word == "relaxed" || word == "acquire" || word == "release") instruction.is_atomic = true;
  }
}

// Rows: the address, then what is loaded or stored.
void load(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::uint64_t* const base = warp.row(instruction.rows[0]);
  const unsigned each = bytes_of(instruction.type);
  each_lane(lanes, [&](unsigned lane) {
    std::array<unsigned char, 32> bytes;
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(instruction.offset);
    warp.block().read(warp, instruction, {address, each * instruction.width, lane}, bytes.data());
    for (unsigned i = 0; i < instruction.width; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + std::size_t{i} * each, each);
      if (is_signed(instruction.type) && each < 8) {
        // A wider register gets the sign.
        const unsigned above = 64 - 8 * each;
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << above) >> above);
      }
      warp.row(instruction.rows[i + 1])[lane] = value;
    }
  });
}

void store(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::uint64_t* const base = warp.row(instruction.rows[0]);
  const unsigned each = bytes_of(instruction.type);
  each_lane(lanes, [&](unsigned lane) {
    std::array<unsigned char, 32> bytes;
    for (unsigned i = 0; i < instruction.width; ++i) {
      std::memcpy(bytes.data() + std::size_t{i} * each, &warp.row(instruction.rows[i + 1])[lane],
                  each);
    }
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(instruction.offset);
    warp.block().write(warp, instruction, {address, each * instruction.width, lane}, bytes.data());
  });
}

// What is passed to functions lies with the thread's own memory; a kernel's parameters are only
// read.
template <bool kStores>
void build_access(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
                  Instruction& instruction) {
  set_space(opcode, instruction);
  if (opcode.types.size() != 1 || operands.size() != 2) not_known(opcode);
  const Operand& address = operands[kStores ? 0 : 1];
  const Operand& values = operands[kStores ? 1 : 0];
  if (address.kind != Operand::Kind::address || values.rows.size() != instruction.width) {
    not_known(opcode);
  }
  if (instruction.space == Space::param && (kStores || address.is_own)) {
    instruction.space = Space::local;
  }
  instruction.type = opcode.types[0];
  instruction.offset = address.offset;
  instruction.rows[0] = address.rows.at(0);
  std::copy(values.rows.begin(), values.rows.end(), instruction.rows.begin() + 1);
  instruction.row_count = static_cast<std::uint8_t>(1 + instruction.width);
  instruction.run = kStores ? &store : &load;
}

// --- atomic operations ---------------------------------------------------------------------------

enum Atomic : std::uint8_t {
  exchange,
  compare_and_swap,
  add,
  least,
  greatest,
  both,
  either,
  unlike,
  increment,
  decrement
};
constexpr std::array<std::string_view, 10> kAtomics{"exch", "cas", "add", "min", "max",
                                                    "and",  "or",  "xor", "inc", "dec"};

template <class T>
T changed(std::uint8_t how, T old, T a, T b) {
  if constexpr (std::is_same_v<T, Half>) {
    return half_of(static_cast<double>(value_of(old)) + value_of(a));
  } else if constexpr (std::is_same_v<T, BFloat>) {
    return bfloat_of(static_cast<double>(value_of(old)) + value_of(a));
  } else if constexpr (std::is_floating_point_v<T>) {
    return how == exchange ? a : old + a;
  } else {
    using Plain = std::make_unsigned_t<T>;
    switch (how) {
      case exchange:
        return a;
      case compare_and_swap:
        return old == a ? b : old;
      case add:
        return static_cast<T>(static_cast<Plain>(old) + static_cast<Plain>(a));
      case least:
        return std::min(old, a);
      case greatest:
        return std::max(old, a);
      case both:
        return static_cast<T>(old & a);
      case either:
        return static_cast<T>(old | a);
      case unlike:
        return static_cast<T>(old ^ a);
      case increment:
        return old >= a ? T{0} : static_cast<T>(old + 1);
      default:
        return old == 0 || old > a ? a : static_cast<T>(old - 1);
    }
  }
}

// Rows: result, address, a, b. One lane after the other.
template <class T>
void atomic(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::uint64_t* const base = warp.row(instruction.rows[1]);
  const std::uint64_t* const a = warp.row(instruction.rows[2]);
  const std::uint64_t* const b = warp.row(instruction.rows[3]);
  std::uint64_t* const result = warp.row(instruction.rows[0]);
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(instruction.offset);
    T old{};
    const Block::Access access{address, sizeof(T), lane};
    warp.block().read(warp, instruction, access, &old);
    T made;
    if (instruction.mode == 2) {  // two of 16 bits
      std::array<Half, 2> parts =
          std::bit_cast<std::array<Half, 2>>(from_bits<std::uint32_t>(to_bits(old)));
      const auto by = std::bit_cast<std::array<Half, 2>>(from_bits<std::uint32_t>(a[lane]));
      for (std::size_t i = 0; i < 2; ++i) parts[i] = changed<Half>(add, parts[i], by[i], {});
      made = from_bits<T>(to_bits(parts));
    } else {
      made = changed<T>(instruction.kind, old, from_bits<T>(a[lane]), from_bits<T>(b[lane]));
    }
    warp.block().write(warp, instruction, access, &made);
    result[lane] = to_bits(old);
  });
}

Run atomic_of(Type type) {
  if (type == Type::f16x2) return &atomic<std::uint32_t>;
  return run_for(number_of_bits(type),
                 kWords + Types<std::uint16_t>{} + kFloats + kSixteenBitFloats,
                 []<class T>() -> Run { return &atomic<T>; });
}

template <bool kGives>
void build_atomic(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
                  Instruction& instruction) {
  set_space(opcode, instruction);
  if (opcode.types.size() != 1 || instruction.width != 1) not_known(opcode);
  instruction.type = opcode.types[0];
  instruction.is_atomic = true;
  instruction.run = atomic_of(instruction.type);
  instruction.mode = instruction.type == Type::f16x2 ? 2 : 1;
  const auto* const how = std::find_if(kAtomics.begin(), kAtomics.end(),
                                       [&](std::string_view name) { return opcode.has(name); });
  if (how == kAtomics.end() || instruction.run == nullptr) not_known(opcode);
  instruction.kind = static_cast<std::uint8_t>(how - kAtomics.begin());
  if (is_float(instruction.type) && instruction.kind != add &&
      !(instruction.kind == exchange && bytes_of(instruction.type) >= 4)) {
    not_known(opcode);
  }
  const std::size_t wanted = 2U + (kGives ? 1 : 0) + (instruction.kind == compare_and_swap ? 1 : 0);
  if (operands.size() != wanted) not_known(opcode);
  const std::size_t at = kGives ? 1 : 0;
  if (operands[at].kind != Operand::Kind::address) not_known(opcode);
  instruction.offset = operands[at].offset;
  instruction.rows = {
      kGives ? operands[0].rows.at(0) : rows.nowhere(), operands[at].rows.at(0),
      operands[at + 1].rows.at(0),
      instruction.kind == compare_and_swap ? operands[at + 2].rows.at(0) : rows.constant(0)};
  instruction.row_count = 4;
}

}  // namespace

Family accesses() {
  return {{"ld", build_access<false>},
          {"ldu", build_access<false>},
          {"st", build_access<true>},
          {"atom", build_atomic<true>},
          {"red", build_atomic<false>}};
}

}  // namespace gapless::simgpu::ptx
