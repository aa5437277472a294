// Logic, shifts, bit fields and counts; comparisons, selections and moves.
#include <algorithm>
#include <bit>
#include <cmath>

#include "simgpu/ptx/lane_values.h"
#include "simgpu/ptx/operations.h"
#include "simgpu/ptx/run_for.h"

namespace gapless::simgpu::ptx {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

// Of predicates and of registers of any width, of which only the bits count.
template <class F>
Run by_width(Type type, F&& f) {
  if (type == Type::pred) return f.template operator()<bool>();
  return run_for(unsigned_of(type), Types<std::uint16_t>{} + kUnsignedWords, f);
}

template <class Op, class T>
void logic(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T, T>(warp, instruction, lanes, [](T a, T b) { return static_cast<T>(Op::of(a, b)); });
}
struct And {
  static U64 of(U64 a, U64 b) { return a & b; }
};
struct Or {
  static U64 of(U64 a, U64 b) { return a | b; }
};
struct Xor {
  static U64 of(U64 a, U64 b) { return a ^ b; }
};
template <class T>
void negate(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T>(warp, instruction, lanes, [](T a) {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  });
}
template <class T>
void is_zero(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T>(warp, instruction, lanes, [](T a) { return static_cast<T>(a == 0 ? 1 : 0); });
}

// A shift by the type's bits and more leaves nothing, or the sign.
template <class T>
void shift_left(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T, U32>(warp, instruction, lanes, [](T a, U32 by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  });
}
template <class T>
void shift_right(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T, U32>(warp, instruction, lanes, [](T a, U32 by) {
    constexpr U32 kMost = 8 * sizeof(T) - 1;
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> std::min(by, kMost));
    } else {
      return by > kMost ? T{0} : static_cast<T>(a >> by);
    }
  });
}
Run shift_right_of(Type type) {
  return run_for(number_of_bits(type), kIntegers, []<class T>() -> Run { return &shift_right<T>; });
}
Run shift_left_of(Type type) {
  return run_for(unsigned_of(type), kIntegers, []<class T>() -> Run { return &shift_left<T>; });
}
// shf: the upper or lower half of two registers, shifted together.
template <bool kLeft, bool kWraps>
void funnel(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<U32, U32, U32>(warp, instruction, lanes, [](U32 low, U32 high, U32 by) {
    by = kWraps ? by & 31 : std::min(by, U32{32});
    const U64 both = (U64{high} << 32) | low;
    return static_cast<U32>(kLeft ? (both << by) >> 32 : both >> by);
  });
}

template <class T>
void count_ones(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T>(warp, instruction, lanes, [](T a) { return static_cast<U32>(std::popcount(a)); });
}
template <class T>
void leading_zeros(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T>(warp, instruction, lanes, [](T a) { return static_cast<U32>(std::countl_zero(a)); });
}
template <class T>
void reverse(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T>(warp, instruction, lanes, [](T a) {
    T reversed = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i) {
      reversed = static_cast<T>((reversed << 1) | ((a >> i) & 1));
    }
    return reversed;
  });
}
// The most significant bit that differs from the sign: its place, or with .shiftamt how far it is
// from the top. All ones where there is none.
template <class T>
void find_bit(Warp& warp, const Instruction& instruction, Mask lanes) {
  using Plain = std::make_unsigned_t<T>;
  for_lanes<T>(warp, instruction, lanes, [&](T a) {
    const auto bits = static_cast<Plain>(a < 0 ? ~a : a);
    if (bits == 0) return ~U32{0};
    const auto zeros = static_cast<U32>(std::countl_zero(bits));
    return instruction.kind != 0 ? zeros : static_cast<U32>(8 * sizeof(T) - 1 - zeros);
  });
}
template <class T>
void extract(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<T, U32, U32>(warp, instruction, lanes, [](T a, U32 from, U32 length) {
    constexpr U32 kBits = 8 * sizeof(T);
    from &= 255;
    length &= 255;
    if (length == 0) return T{0};
    // Beyond the top lies the sign again, or nothing.
    if (from >= kBits) return static_cast<T>(a < 0 ? -1 : 0);
    const auto rest = static_cast<T>(a >> from);
    if (from + length >= kBits) return rest;
    const U32 above = kBits - length;
    return static_cast<T>(static_cast<T>(static_cast<std::make_unsigned_t<T>>(rest) << above) >>
                          above);
  });
}
template <class T>
void insert(Warp& warp, const Instruction& instruction, Mask lanes) {
  constexpr U32 kBits = 8 * sizeof(T);
  for_lanes<T, T, U32, U32>(warp, instruction, lanes, [](T a, T into, U32 at, U32 length) {
    at &= 255;
    length &= 255;
    if (at >= kBits || length == 0) return into;
    const T ones = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const auto mask = static_cast<T>(ones << at);
    return static_cast<T>((into & ~mask) | (static_cast<T>(a << at) & mask));
  });
}
// bmsk: `length` ones from bit `from` on.
void bit_mask(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<U32, U32>(warp, instruction, lanes, [&](U32 from, U32 length) {
    if (instruction.kind != 0) {  // wraps
      from &= 31;
      length &= 31;
    }
    if (from >= 32 || length == 0) return U32{0};
    const U32 ones = length >= 32 ? ~U32{0} : (U32{1} << length) - 1;
    return ones << from;
  });
}
// Bytes of two registers in any order; bit 3 of a choice spreads the byte's sign.
void permute(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<U32, U32, U32>(warp, instruction, lanes, [](U32 a, U32 b, U32 choices) {
    const U64 both = (U64{b} << 32) | a;
    U32 made = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const U32 choice = (choices >> (4 * i)) & 15;
      auto byte = static_cast<U32>((both >> (8 * (choice & 7))) & 255);
      if ((choice & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      made |= byte << (8 * i);
    }
    return made;
  });
}
// Any function of three bits, by its table of eight.
void three_bit_logic(Warp& warp, const Instruction& instruction, Mask lanes) {
  const U64 table = warp.row(instruction.rows[4])[0];
  for_lanes<U32, U32, U32>(warp, instruction, lanes, [&](U32 a, U32 b, U32 c) {
    U32 made = 0;
    for (unsigned i = 0; i < 8; ++i) {
      if (((table >> i) & 1) == 0) continue;
      made |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
    }
    return made;
  });
}

// --- comparisons ---------------------------------------------------------------------------------

enum Comparison : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
constexpr std::array<std::string_view, 14> kComparisons{
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <class T>
bool compare(std::uint8_t how, T a, T b) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) {
    return compare(how, value_of(a), value_of(b));
  } else {
    bool unordered = false;
    if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
    if (unordered) return (how >= equ && how <= geu) || how == nan;
    switch (how) {
      case eq:
      case equ:
        return a == b;
      case ne:
      case neu:
        return a != b;
      case lt:
      case ltu:
        return a < b;
      case le:
      case leu:
        return a <= b;
      case gt:
      case gtu:
        return a > b;
      case ge:
      case geu:
        return a >= b;
      case num:
        return true;
      default:
        return false;
    }
  }
}

// How the comparison is joined with a predicate: kind / 16.
enum Join : std::uint8_t { alone, with_and, with_or, with_xor };

// Rows: result, its complement, a, b, predicate.
template <class T>
void set_predicate(Warp& warp, const Instruction& instruction, Mask lanes) {
  U64* const result = warp.row(instruction.rows[0]);
  U64* const complement = warp.row(instruction.rows[1]);
  const U64* const a = warp.row(instruction.rows[2]);
  const U64* const b = warp.row(instruction.rows[3]);
  const U64* const predicate = warp.row(instruction.rows[4]);
  const std::uint8_t how = instruction.kind & 15;
  const auto join = static_cast<Join>(instruction.kind >> 4);
  each_lane(lanes, [&](unsigned lane) {
    const bool is = compare(how, from_bits<T>(a[lane]), from_bits<T>(b[lane]));
    const bool other = (predicate[lane] != 0) != (instruction.mode != 0);
    const auto joined = [&](bool value) {
      switch (join) {
        case with_and:
          return value && other;
        case with_or:
          return value || other;
        case with_xor:
          return value != other;
        default:
          return value;
      }
    };
    const bool first = joined(is);
    const bool second = joined(!is);
    result[lane] = first ? 1 : 0;
    complement[lane] = second ? 1 : 0;
  });
}

Run set_predicate_of(Type type) {
  return run_for(number_of_bits(type), kIntegers + kFloats + kSixteenBitFloats,
                 []<class T>() -> Run { return &set_predicate<T>; });
}

std::uint8_t comparison_of(const Opcode& opcode) {
  // Unsigned numbers have names of their own for the same.
  static constexpr std::array<std::pair<std::string_view, Comparison>, 4> kUnsigned{
      {{"lo", lt}, {"ls", le}, {"hi", gt}, {"hs", ge}}};
  for (const std::string_view word : opcode.modifiers) {
    const auto* const found = std::find(kComparisons.begin(), kComparisons.end(), word);
    if (found != kComparisons.end()) return static_cast<std::uint8_t>(found - kComparisons.begin());
    for (const auto& [name, comparison] : kUnsigned) {
      if (word == name) return comparison;
    }
  }
  not_known(opcode);
}

void build_setp(const Opcode& opcode, std::vector<Operand>& operands, KernelRows& rows,
                Instruction& instruction) {
  if (opcode.types.size() != 1 || operands.size() < 3) not_known(opcode);
  instruction.type = opcode.types[0];
  instruction.run = set_predicate_of(instruction.type);
  if (instruction.run == nullptr) not_known(opcode);
  Join join = alone;
  if (opcode.has("and")) join = with_and;
  if (opcode.has("or")) join = with_or;
  if (opcode.has("xor")) join = with_xor;
  instruction.kind = static_cast<std::uint8_t>(comparison_of(opcode) | (join << 4));
  if (operands.size() != (join == alone ? 3U : 4U)) not_known(opcode);
  const auto& results = operands[0].rows;
  instruction.rows = {results[0], results.size() > 1 ? results[1] : rows.nowhere(),
                      operands[1].rows.at(0), operands[2].rows.at(0),
                      join == alone ? rows.constant(0) : operands[3].rows.at(0)};
  instruction.mode = join != alone && operands[3].negated ? 1 : 0;
  instruction.row_count = 5;
}

// --- selections and moves ------------------------------------------------------------------------

// Whole registers: the bits that the type has not are zero in them.
void select(Warp& warp, const Instruction& instruction, Mask lanes) {
  for_lanes<U64, U64, U64>(warp, instruction, lanes,
                           [](U64 a, U64 b, U64 predicate) { return predicate != 0 ? a : b; });
}
void move(Warp& warp, const Instruction& instruction, Mask lanes) {
  const U64 kept = instruction.mode == 8 ? ~U64{0} : (U64{1} << (8 * instruction.mode)) - 1;
  for_lanes<U64>(warp, instruction, lanes, [&](U64 a) { return a & kept; });
}
// {a, b} = c: parts of `mode` bytes each.
void unpack(Warp& warp, const Instruction& instruction, Mask lanes) {
  const unsigned parts = instruction.row_count - 1U;
  const U64* const whole = warp.row(instruction.rows[parts]);
  const unsigned bits = 8 * instruction.mode;
  each_lane(lanes, [&](unsigned lane) {
    const U64 value = whole[lane];
    for (unsigned i = 0; i < parts; ++i) {
      warp.row(instruction.rows[i])[lane] = (value >> (bits * i)) & ((U64{1} << bits) - 1);
    }
  });
}
void pack(Warp& warp, const Instruction& instruction, Mask lanes) {
  const unsigned parts = instruction.row_count - 1U;
  const unsigned bits = 8 * instruction.mode;
  each_lane(lanes, [&](unsigned lane) {
    U64 value = 0;
    for (unsigned i = 0; i < parts; ++i) {
      value |= (warp.row(instruction.rows[i + 1])[lane] & ((U64{1} << bits) - 1)) << (bits * i);
    }
    warp.row(instruction.rows[0])[lane] = value;
  });
}

void build_mov(const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
               Instruction& instruction) {
  if (operands.size() != 2 || opcode.types.size() != 1) not_known(opcode);
  instruction.type = opcode.types[0];
  const unsigned bytes = bytes_of(instruction.type);
  const bool to_parts = operands[0].kind == Operand::Kind::vector;
  const bool from_parts = operands[1].kind == Operand::Kind::vector;
  if (to_parts && from_parts) not_known(opcode);
  for (const Operand& operand : operands) {
    if (operand.negated || operand.kind == Operand::Kind::address || operand.rows.size() > 4) {
      not_known(opcode);
    }
    for (const Row row : operand.rows) instruction.rows[instruction.row_count++] = row;
  }
  instruction.mode = bytes;
  instruction.run = &move;
  if (to_parts || from_parts) {
    instruction.mode = bytes / (instruction.row_count - 1U);
    instruction.run = to_parts ? &unpack : &pack;
  }
}

template <class F>
Build plain(std::size_t count, F select) {
  return [=](const Opcode& opcode, std::vector<Operand>& operands, KernelRows&,
             Instruction& instruction) {
    if (opcode.types.empty()) not_known(opcode);
    instruction.type = opcode.types[0];
    instruction.run = select(opcode, instruction, opcode.types[0]);
    if (instruction.run == nullptr) not_known(opcode);
    take_rows(opcode, operands, count, instruction);
  };
}
template <class Op>
Build logic_only() {
  return plain(3, [](const Opcode&, Instruction&, Type type) {
    return by_width(type, []<class T>() -> Run { return &logic<Op, T>; });
  });
}

}  // namespace

Family bits() {
  const auto funnel_run = [](const Opcode& opcode, Instruction&, Type) -> Run {
    const bool wraps = opcode.has("wrap");
    if (opcode.has("l")) return wraps ? &funnel<true, true> : &funnel<true, false>;
    return wraps ? &funnel<false, true> : &funnel<false, false>;
  };
  const auto select_run = [](const Opcode&, Instruction&, Type) -> Run { return &select; };
  return {
      {"and", logic_only<And>()},
      {"or", logic_only<Or>()},
      {"xor", logic_only<Xor>()},
      {"not", plain(2,
                    [](const Opcode&, Instruction&, Type type) {
                      return by_width(type, []<class T>() -> Run { return &negate<T>; });
                    })},
      {"cnot", plain(2,
                     [](const Opcode&, Instruction&, Type type) {
                       return by_width(type, []<class T>() -> Run { return &is_zero<T>; });
                     })},
      {"shl", plain(3, [](const Opcode&, Instruction&, Type type) { return shift_left_of(type); })},
      {"shr",
       plain(3, [](const Opcode&, Instruction&, Type type) { return shift_right_of(type); })},
      {"shf", plain(4, funnel_run)},
      {"popc", plain(2,
                     [](const Opcode&, Instruction&, Type type) {
                       return run_for(unsigned_of(type), kUnsignedWords,
                                      []<class T>() -> Run { return &count_ones<T>; });
                     })},
      {"clz", plain(2,
                    [](const Opcode&, Instruction&, Type type) {
                      return run_for(unsigned_of(type), kUnsignedWords,
                                     []<class T>() -> Run { return &leading_zeros<T>; });
                    })},
      {"brev", plain(2,
                     [](const Opcode&, Instruction&, Type type) {
                       return run_for(unsigned_of(type), kUnsignedWords,
                                      []<class T>() -> Run { return &reverse<T>; });
                     })},
      {"bfind", plain(2,
                      [](const Opcode& opcode, Instruction& instruction, Type type) {
                        instruction.kind = opcode.has("shiftamt") ? 1 : 0;
                        return run_for(number_of_bits(type), kWords,
                                       []<class T>() -> Run { return &find_bit<T>; });
                      })},
      {"bfe", plain(4,
                    [](const Opcode&, Instruction&, Type type) {
                      return run_for(number_of_bits(type), kWords,
                                     []<class T>() -> Run { return &extract<T>; });
                    })},
      {"bfi", plain(5,
                    [](const Opcode&, Instruction&, Type type) {
                      return run_for(unsigned_of(type), kUnsignedWords,
                                     []<class T>() -> Run { return &insert<T>; });
                    })},
      {"bmsk", plain(3,
                     [](const Opcode& opcode, Instruction& instruction, Type) -> Run {
                       instruction.kind = opcode.has("wrap") ? 1 : 0;
                       return &bit_mask;
                     })},
      {"prmt", plain(4,
                     [](const Opcode& opcode, Instruction&, Type) -> Run {
                       return opcode.modifiers.empty() ? &permute : nullptr;
                     })},
      {"lop3", plain(5,
                     [](const Opcode& opcode, Instruction&, Type) -> Run {
                       return opcode.modifiers.empty() ? &three_bit_logic : nullptr;
                     })},
      {"setp", build_setp},
      {"selp", plain(4, select_run)},
      {"mov", build_mov},
  };
}

}  // namespace gapless::simgpu::ptx
