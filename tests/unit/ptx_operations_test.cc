// Each instruction of PTX against the same in C++.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simgpu/ptx/error.h"
#include "simgpu/ptx/half.h"
#include "simgpu/ptx/lane_values.h"
#include "tests/support/ptx_machine.h"

namespace gapless::simgpu::ptx {
namespace {

using U64 = std::uint64_t;
using Rows = std::vector<std::vector<U64>>;

template <class T>
U64 bits(T value) {
  U64 made = 0;
  std::memcpy(&made, &value, sizeof value);
  return made;
}
template <class T>
T value(U64 made) {
  T found;
  std::memcpy(&found, &made, sizeof found);
  return found;
}

// Numbers at which operations go wrong, and any others.
std::vector<U64> interesting(Type type, std::mt19937_64& random) {
  const U64 mask = bytes_of(type) == 8 ? ~U64{0} : (U64{1} << (8 * bytes_of(type))) - 1;
  std::vector<U64> found;
  if (type == Type::pred) return {0, 1};
  if (type == Type::f32) {
    for (const float number :
         {0.0F, -0.0F, 1.0F, -1.5F, 3.0e38F, 1e-40F, INFINITY, -INFINITY, NAN, 0.1F, 123456.7F}) {
      found.push_back(bits(number));
    }
  } else if (type == Type::f64) {
    for (const double number :
         {0.0, -0.0, 1.0, -1.5, 1e308, 1e-310, double{INFINITY}, double{NAN}, 0.1, 123456.7}) {
      found.push_back(bits(number));
    }
  } else if (type == Type::f16) {
    found = {0, 0x8000, 0x3C00, 0xBE00, 0x7BFF, 0x0001, 0x7C00, 0x7E00, 0x2E66};
  } else if (type == Type::bf16) {
    found = {0, 0x8000, 0x3F80, 0xBFC0, 0x7F7F, 0x0001, 0x7F80, 0x7FC0, 0x3DCD};
  } else {
    found = {0, 1, 2, 31, 32, 33, 63, 64, 255, mask, mask - 1, mask >> 1, (mask >> 1) + 1};
  }
  for (int i = 0; i < 6; ++i) {
    U64 any = random() & mask;
    if (type == Type::f32)
      any = bits(static_cast<float>(std::uniform_real_distribution<>(-100, 100)(random)));
    if (type == Type::f64) any = bits(std::uniform_real_distribution<>(-100, 100)(random));
    found.push_back(any);
  }
  return found;
}

using Reference = std::function<U64(const std::vector<U64>&)>;

bool is_nan_of(Type type, U64 number) {
  if (type == Type::f32) return std::isnan(value<float>(number));
  if (type == Type::f64) return std::isnan(value<double>(number));
  if (type == Type::f16) return std::isnan(value_of(value<Half>(number)));
  if (type == Type::bf16) return std::isnan(value_of(value<BFloat>(number)));
  return false;
}

void check(const std::string& instruction, const std::vector<Type>& types,
           const Reference& reference) {
  std::mt19937_64 random(std::hash<std::string>{}(instruction));
  std::vector<std::vector<U64>> choices;
  for (std::size_t i = 1; i < types.size(); ++i) choices.push_back(interesting(types[i], random));
  for (int round = 0; round < 12; ++round) {
    Rows rows(32);
    for (auto& row : rows) {
      for (const auto& numbers : choices) row.push_back(numbers[random() % numbers.size()]);
    }
    const std::vector<U64> found = calculate(instruction, types, rows);
    ASSERT_EQ(found.size(), rows.size()) << instruction;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const U64 wanted = reference(rows[i]);
      if (is_nan_of(types[0], wanted) && is_nan_of(types[0], found[i])) continue;
      ASSERT_EQ(found[i], wanted) << instruction << " of " << testing::PrintToString(rows[i]);
    }
  }
}

template <class T, class F>
Reference two(F f) {
  return [f](const std::vector<U64>& row) {
    return bits(static_cast<T>(f(value<T>(row[0]), value<T>(row[1]))));
  };
}
template <class T, class R, class F>
Reference one(F f) {
  return [f](const std::vector<U64>& row) { return bits(static_cast<R>(f(value<T>(row[0])))); };
}
template <class T>
using Plain = std::make_unsigned_t<T>;

template <class T>
void check_integers(Type type) {
  const std::string name(name_of(type));
  const std::vector<Type> pair{type, type, type};
  check("add." + name, pair, two<T>([](T a, T b) { return Plain<T>(a) + Plain<T>(b); }));
  check("sub." + name, pair, two<T>([](T a, T b) { return Plain<T>(a) - Plain<T>(b); }));
  check("min." + name, pair, two<T>([](T a, T b) { return std::min(a, b); }));
  check("max." + name, pair, two<T>([](T a, T b) { return std::max(a, b); }));
  if constexpr (sizeof(T) >= 4) {
    check("mul.lo." + name, pair, two<T>([](T a, T b) { return Plain<T>(a) * Plain<T>(b); }));
    check("mad.lo." + name, {type, type, type, type}, [](const std::vector<U64>& row) {
      return bits(static_cast<T>(Plain<T>(row[0]) * Plain<T>(row[1]) + Plain<T>(row[2])));
    });
  }
  check("div." + name, pair, two<T>([](T a, T b) -> T {
          if (b == 0) return static_cast<T>(~T{0});
          if (std::is_signed_v<T> && b == static_cast<T>(-1))
            return static_cast<T>(Plain<T>{0} - Plain<T>(a));
          return static_cast<T>(a / b);
        }));
  check("rem." + name, pair, two<T>([](T a, T b) -> T {
          if (b == 0) return a;
          return std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
        }));
  check("shr." + name, {type, type, Type::u32}, [](const std::vector<U64>& row) {
    const T a = value<T>(row[0]);
    const auto by = value<std::uint32_t>(row[1]);
    if (by >= 8 * sizeof(T)) return bits(static_cast<T>(a < 0 ? -1 : 0));
    return bits(static_cast<T>(a >> by));
  });
}

TEST(PtxOperation, IntegersAreAsInC) {
  check_integers<std::int16_t>(Type::s16);
  check_integers<std::int32_t>(Type::s32);
  check_integers<std::int64_t>(Type::s64);
  check_integers<std::uint16_t>(Type::u16);
  check_integers<std::uint32_t>(Type::u32);
  check_integers<std::uint64_t>(Type::u64);
}

TEST(PtxOperation, ProductsMayBeWideOrHigh) {
  check("mul.wide.s32", {Type::s64, Type::s32, Type::s32}, [](const std::vector<U64>& row) {
    return bits(std::int64_t{value<std::int32_t>(row[0])} * value<std::int32_t>(row[1]));
  });
  check("mul.wide.u16", {Type::u32, Type::u16, Type::u16}, [](const std::vector<U64>& row) {
    return bits(static_cast<std::uint32_t>(row[0] * row[1]));
  });
  check("mad.wide.u32", {Type::u64, Type::u32, Type::u32, Type::u64},
        [](const std::vector<U64>& row) { return row[0] * row[1] + row[2]; });
  check("mul.hi.u32", {Type::u32, Type::u32, Type::u32},
        [](const std::vector<U64>& row) { return (row[0] * row[1]) >> 32; });
  check("mul.hi.s32", {Type::s32, Type::s32, Type::s32}, [](const std::vector<U64>& row) {
    return bits(static_cast<std::int32_t>(
        (std::int64_t{value<std::int32_t>(row[0])} * value<std::int32_t>(row[1])) >> 32));
  });
  EXPECT_THAT(calculate("mul.hi.s64", {Type::s64, Type::s64, Type::s64},
                        {{bits(-3L), bits(5L)}, {U64{1} << 62, 8}}),
              testing::ElementsAre(bits(-1L), 2));
}

TEST(PtxOperation, SumsCarry) {
  const std::string text =
      ".reg .b64 %o; .reg .b32 %a, %b, %c, %d; ld.param.u64 %o, [out]; ld.param.u32 %a, [low]; "
      "ld.param.u32 %b, [high];"
      "add.cc.u32 %c, %a, %a; addc.u32 %d, %b, %b; st.global.v2.u32 [%o], {%c, %d};"
      "sub.cc.u32 %c, 0, %a; subc.u32 %d, 0, %b; st.global.v2.u32 [%o+8], {%c, %d};";
  HostedMemory memory;
  const Module module =
      parsed(kernel_text(text, ".param .u64 out, .param .u32 low, .param .u32 high"), memory);
  const U64 out = memory.alloc(16);
  const U64 number = 0x1234'5678'9ABC'DEF0;
  ASSERT_TRUE(run(module, "k", {}, {out, number & 0xFFFFFFFF, number >> 32}, memory).completed);
  EXPECT_THAT(memory.values<U64>(out), testing::ElementsAre(number + number, 0 - number));
}

TEST(PtxOperation, CarriesGoFromProductToProduct) {
  // Two numbers of 64 bits, by halves; and the same with the higher half signed.
  const std::string text =
      ".reg .b64 %o, %a, %b; .reg .b32 %al, %ah, %bl, %bh, %r<4>; ld.param.u64 %o, [out];"
      "ld.param.u64 %a, [first]; ld.param.u64 %b, [second];"
      "mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b;"
      "mul.lo.u32 %r0, %al, %bl; mul.hi.u32 %r1, %al, %bl;"
      "mad.lo.cc.u32 %r1, %al, %bh, %r1; madc.hi.u32 %r2, %al, %bh, 0;"
      "mad.lo.cc.u32 %r1, %ah, %bl, %r1; madc.hi.cc.u32 %r2, %ah, %bl, %r2; addc.u32 %r3, 0, 0;"
      "mad.lo.cc.u32 %r2, %ah, %bh, %r2; madc.hi.u32 %r3, %ah, %bh, %r3;"
      "st.global.v4.u32 [%o], {%r0, %r1, %r2, %r3};"
      "mad.lo.cc.s32 %r0, %al, -1, %al; madc.hi.s32 %r1, %al, -1, 5;"
      "st.global.v2.u32 [%o+16], {%r0, %r1};";
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    HostedMemory memory;
    const Module module =
        parsed(kernel_text(text, ".param .u64 out, .param .u64 first, .param .u64 second"), memory);
    const U64 out = memory.alloc(24);
    const U64 a = random();
    const U64 b = i == 0 ? ~U64{0} : random();
    ASSERT_TRUE(run(module, "k", {}, {out, a, b}, memory).completed);
    const std::vector<U64> found = memory.values<U64>(out);
    const UInt128 product = static_cast<UInt128>(a) * b;
    EXPECT_EQ(found[0], static_cast<U64>(product));
    EXPECT_EQ(found[1], static_cast<U64>(product >> 64));
    // low * -1 + low is 0, with a carry but where low is 0.
    const auto low = static_cast<std::int32_t>(a);
    const auto high = static_cast<std::uint32_t>((-static_cast<std::int64_t>(low)) >> 32);
    EXPECT_EQ(found[2], static_cast<U64>(high + 5 + (low != 0 ? 1U : 0U)) << 32);
  }
}

template <class T>
void check_floats(Type type) {
  const std::string name(name_of(type));
  const std::vector<Type> pair{type, type, type};
  check("add." + name, pair, two<T>([](T a, T b) { return a + b; }));
  check("sub.rn." + name, pair, two<T>([](T a, T b) { return a - b; }));
  check("mul." + name, pair, two<T>([](T a, T b) { return a * b; }));
  check("div.rn." + name, pair, two<T>([](T a, T b) { return a / b; }));
  check("fma.rn." + name, {type, type, type, type}, [](const std::vector<U64>& row) {
    return bits(std::fma(value<T>(row[0]), value<T>(row[1]), value<T>(row[2])));
  });
  check("sqrt.rn." + name, {type, type}, one<T, T>([](T a) { return std::sqrt(a); }));
  check("rcp.rn." + name, {type, type}, one<T, T>([](T a) { return 1 / a; }));
  check("abs." + name, {type, type}, one<T, T>([](T a) { return std::fabs(a); }));
  check("neg." + name, {type, type}, one<T, T>([](T a) { return -a; }));
  // What is no number gives way, and -0 is less than 0.
  const auto least = [](T a, T b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  };
  check("min." + name, pair, two<T>(least));
  check("max." + name, pair, two<T>([&](T a, T b) { return -least(-a, -b); }));
}

TEST(PtxOperation, FloatsAreAsInC) {
  check_floats<float>(Type::f32);
  check_floats<double>(Type::f64);
}

TEST(PtxOperation, FloatsRoundAsTheyAreTold) {
  const auto third = [](const char* how) {
    return value<float>(calculate(std::string("div.") + how + ".f32",
                                  {Type::f32, Type::f32, Type::f32},
                                  {{bits(1.0F), bits(3.0F)}})[0]);
  };
  EXPECT_EQ(third("rn"), 1.0F / 3);
  EXPECT_LT(third("rz"), 1.0F / 3);  // whose nearest lies above
  EXPECT_EQ(third("rz"), third("rm"));
  EXPECT_EQ(third("rp"), third("rn"));
  const U64 small = bits(1e-40F);
  const std::vector<Type> floats{Type::f32, Type::f32, Type::f32};
  EXPECT_EQ(calculate("add.f32", floats, {{small, 0}})[0], small);
  EXPECT_EQ(calculate("add.ftz.f32", floats, {{small, 0}})[0], 0U);
  EXPECT_THAT(calculate("add.sat.f32", floats,
                        {{bits(0.75F), bits(0.75F)}, {bits(-2.0F), bits(1.0F)}, {bits(NAN), 0}}),
              testing::ElementsAre(bits(1.0F), 0, 0));
}

TEST(PtxOperation, ApproximationsAreNear) {
  const auto near = [](const std::string& name, const std::function<double(double)>& function,
                       float least, float most) {
    Rows rows;
    for (int i = 0; i < 32; ++i)
      rows.push_back({bits(least + (most - least) * static_cast<float>(i) / 31)});
    const auto found = calculate(name, {Type::f32, Type::f32}, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double wanted = function(value<float>(rows[i][0]));
      EXPECT_NEAR(value<float>(found[i]), wanted, 1e-6 * std::max(1.0, std::fabs(wanted))) << name;
    }
  };
  near(
      "ex2.approx.f32", [](double x) { return std::exp2(x); }, -20, 20);
  near(
      "lg2.approx.f32", [](double x) { return std::log2(x); }, 0.01F, 1000);
  near(
      "rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 0.01F, 1000);
  near(
      "rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 0.01F, 1000);
  near(
      "sin.approx.f32", [](double x) { return std::sin(x); }, -3, 3);
  near(
      "cos.approx.f32", [](double x) { return std::cos(x); }, -3, 3);
  near(
      "tanh.approx.f32", [](double x) { return std::tanh(x); }, -3, 3);
}

// All halves there are: there and back, and sums and products rounded once.
TEST(PtxOperation, HalvesAreRoundedOnce) {
  for (unsigned i = 0; i < 0x10000; ++i) {
    const Half half{static_cast<std::uint16_t>(i)};
    const float number = value_of(half);
    if (std::isnan(number)) {
      ASSERT_TRUE(std::isnan(value_of(half_of(number))));
      continue;
    }
    ASSERT_EQ(half_of(number).bits, half.bits) << i;
    const BFloat brain{static_cast<std::uint16_t>(i)};
    if (!std::isnan(value_of(brain)) && std::fabs(value_of(brain)) > 1e-37F) {
      ASSERT_EQ(bfloat_of(value_of(brain)).bits, brain.bits) << i;
    }
  }
  // Half way between two halves the even one; a bit more, the upper.
  EXPECT_EQ(half_of(1.0 + 0x1p-11).bits, 0x3C00);
  EXPECT_EQ(half_of(1.0 + 0x3p-11).bits, 0x3C02);
  EXPECT_EQ(half_of(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(half_of(65520.0).bits, 0x7C00);  // beyond the last one: infinity
  EXPECT_EQ(half_of(65519.99).bits, 0x7BFF);
  EXPECT_EQ(half_of(0x1p-25).bits, 0);
  EXPECT_EQ(half_of(0x1.8p-25).bits, 1);
  check("add.f16", {Type::f16, Type::f16, Type::f16}, [](const std::vector<U64>& row) {
    return bits(half_of(static_cast<double>(value_of(value<Half>(row[0]))) +
                        value_of(value<Half>(row[1]))));
  });
  check("fma.rn.bf16", {Type::bf16, Type::bf16, Type::bf16, Type::bf16},
        [](const std::vector<U64>& row) {
          return bits(bfloat_of(std::fma(static_cast<double>(value_of(value<BFloat>(row[0]))),
                                         value_of(value<BFloat>(row[1])),
                                         value_of(value<BFloat>(row[2])))));
        });
  EXPECT_EQ(
      calculate("add.f16x2", {Type::b32, Type::b32, Type::b32}, {{0x3C00'4000, 0x4000'3C00}})[0],
      0x4200'4200U);
}

TEST(PtxOperation, Bits) {
  const std::vector<Type> pair{Type::b32, Type::b32, Type::b32};
  check("and.b32", pair, two<std::uint32_t>([](auto a, auto b) { return a & b; }));
  check("or.b32", pair, two<std::uint32_t>([](auto a, auto b) { return a | b; }));
  check("xor.b32", pair, two<std::uint32_t>([](auto a, auto b) { return a ^ b; }));
  check("xor.pred", {Type::pred, Type::pred, Type::pred},
        [](const std::vector<U64>& row) { return row[0] ^ row[1]; });
  check("not.b64", {Type::b64, Type::b64}, [](const std::vector<U64>& row) { return ~row[0]; });
  check("not.pred", {Type::pred, Type::pred},
        [](const std::vector<U64>& row) { return row[0] ^ 1; });
  check("shl.b32", {Type::b32, Type::b32, Type::u32}, [](const std::vector<U64>& row) {
    return row[1] >= 32 ? 0 : (row[0] << row[1]) & 0xFFFFFFFF;
  });
  check("popc.b64", {Type::b32, Type::b64},
        one<U64, std::uint32_t>([](U64 a) { return std::popcount(a); }));
  check("clz.b32", {Type::b32, Type::b32},
        one<std::uint32_t, std::uint32_t>([](std::uint32_t a) { return std::countl_zero(a); }));
  check("brev.b32", {Type::b32, Type::b32}, one<std::uint32_t, std::uint32_t>([](std::uint32_t a) {
          std::uint32_t made = 0;
          for (unsigned i = 0; i < 32; ++i) made |= ((a >> i) & 1) << (31 - i);
          return made;
        }));
  check("bfe.u32", {Type::u32, Type::u32, Type::u32, Type::u32}, [](const std::vector<U64>& row) {
    const U64 from = row[1] & 255;
    const U64 length = row[2] & 255;
    U64 made = 0;
    for (U64 i = 0; i < std::min<U64>(length, 32); ++i) {
      if (from + i < 32) made |= ((row[0] >> (from + i)) & 1) << i;
    }
    return made;
  });
  check("bfe.s32", {Type::s32, Type::s32, Type::u32, Type::u32}, [](const std::vector<U64>& row) {
    const U64 from = row[1] & 255;
    const U64 length = row[2] & 255;
    if (length == 0) return U64{0};
    const U64 sign = (row[0] >> std::min<U64>(from + length - 1, 31)) & 1;
    U64 made = 0;
    for (U64 i = 0; i < 32; ++i) {
      made |= (i < length && from + i < 32 ? (row[0] >> (from + i)) & 1 : sign) << i;
    }
    return made;
  });
  check("bfi.b32", {Type::b32, Type::b32, Type::b32, Type::u32, Type::u32},
        [](const std::vector<U64>& row) {
          U64 made = row[1];
          const U64 at = row[2] & 255;
          for (U64 i = 0; i < (row[3] & 255) && at + i < 32; ++i) {
            made = (made & ~(U64{1} << (at + i))) | (((row[0] >> i) & 1) << (at + i));
          }
          return made;
        });
  check("bmsk.clamp.b32", pair, [](const std::vector<U64>& row) {
    U64 made = 0;
    for (U64 i = 0; i < std::min<U64>(row[1], 32); ++i) {
      if (row[0] + i < 32) made |= U64{1} << (row[0] + i);
    }
    return made;
  });
  check("bfind.u32", {Type::u32, Type::u32}, one<std::uint32_t, std::uint32_t>([](std::uint32_t a) {
          return a == 0 ? ~0U : 31U - static_cast<unsigned>(std::countl_zero(a));
        }));
  check("shf.l.wrap.b32", {Type::b32, Type::b32, Type::b32, Type::u32},
        [](const std::vector<U64>& row) {
          return (((row[1] << 32) | row[0]) << (row[2] & 31)) >> 32;
        });
  EXPECT_EQ(calculate("prmt.b32", {Type::b32, Type::b32, Type::b32, Type::b32},
                      {{0x80332211, 0x77665544, 0xB740}})[0],
            0xFF774411U);
  EXPECT_EQ(calculate("lop3.b32", {Type::b32, Type::b32, Type::b32, Type::b32, Type::b32},
                      {{0xF0, 0xCC, 0xAA, 0x96}})[0],
            U64{0xF0 ^ 0xCC ^ 0xAA});
}

TEST(PtxOperation, Comparisons) {
  const auto ordered = [](const std::string& how, const auto& compare, bool with_nan) {
    check("setp." + how + ".f32", {Type::pred, Type::f32, Type::f32},
          [=](const std::vector<U64>& row) -> U64 {
            const auto a = value<float>(row[0]);
            const auto b = value<float>(row[1]);
            return std::isnan(a) || std::isnan(b) ? with_nan : compare(a, b);
          });
  };
  ordered("lt", std::less<float>(), false);
  ordered("ge", std::greater_equal<float>(), false);
  ordered("ne", std::not_equal_to<float>(), false);
  ordered("ltu", std::less<float>(), true);
  ordered("neu", std::not_equal_to<float>(), true);
  check("setp.gt.s64", {Type::pred, Type::s64, Type::s64}, [](const std::vector<U64>& row) -> U64 {
    return value<std::int64_t>(row[0]) > value<std::int64_t>(row[1]);
  });
  check("setp.lo.u16", {Type::pred, Type::u16, Type::u16},
        [](const std::vector<U64>& row) -> U64 { return row[0] < row[1]; });
  check("setp.eq.or.s32", {Type::pred, Type::s32, Type::s32, Type::pred},
        [](const std::vector<U64>& row) -> U64 { return row[0] == row[1] || row[2] != 0; });
  check("selp.b32", {Type::b32, Type::b32, Type::b32, Type::pred},
        [](const std::vector<U64>& row) { return row[2] != 0 ? row[0] : row[1]; });
}

template <class From, class To>
U64 clamped(U64 row) {
  const double number = std::trunc(static_cast<double>(value<From>(row)));
  if (std::isnan(number)) return 0;
  if (number <= static_cast<double>(std::numeric_limits<To>::min()))
    return bits(std::numeric_limits<To>::min());
  if (number >= static_cast<double>(std::numeric_limits<To>::max()))
    return bits(std::numeric_limits<To>::max());
  return bits(static_cast<To>(number));
}

TEST(PtxOperation, Conversions) {
  check("cvt.s64.s32", {Type::s64, Type::s32},
        one<std::int32_t, std::int64_t>([](auto a) { return a; }));
  check("cvt.u64.u32", {Type::u64, Type::u32}, one<std::uint32_t, U64>([](auto a) { return a; }));
  check("cvt.u16.u32", {Type::u16, Type::u32},
        one<std::uint32_t, std::uint16_t>([](auto a) { return a; }));
  check("cvt.s32.s8", {Type::s32, Type::u32},
        one<std::uint32_t, std::int32_t>([](auto a) { return static_cast<std::int8_t>(a); }));
  check("cvt.sat.u8.s32", {Type::u16, Type::s32}, [](const std::vector<U64>& row) {
    return bits(static_cast<std::uint16_t>(std::clamp(value<std::int32_t>(row[0]), 0, 255)));
  });
  check("cvt.rzi.s32.f32", {Type::s32, Type::f32},
        [](const std::vector<U64>& row) { return clamped<float, std::int32_t>(row[0]); });
  check("cvt.rzi.u64.f64", {Type::u64, Type::f64},
        [](const std::vector<U64>& row) { return clamped<double, U64>(row[0]); });
  check("cvt.rn.f32.s64", {Type::f32, Type::s64},
        one<std::int64_t, float>([](auto a) { return static_cast<float>(a); }));
  check("cvt.rn.f64.u64", {Type::f64, Type::u64},
        one<U64, double>([](auto a) { return static_cast<double>(a); }));
  check("cvt.rn.f32.f64", {Type::f32, Type::f64},
        one<double, float>([](auto a) { return static_cast<float>(a); }));
  check("cvt.f64.f32", {Type::f64, Type::f32}, one<float, double>([](auto a) { return a; }));
  check("cvt.rni.f32.f32", {Type::f32, Type::f32},
        one<float, float>([](auto a) { return std::nearbyint(a); }));
  check("cvt.rmi.f32.f32", {Type::f32, Type::f32},
        one<float, float>([](auto a) { return std::floor(a); }));
  check("cvt.rn.f16.f32", {Type::f16, Type::f32},
        [](const std::vector<U64>& row) { return bits(half_of(value<float>(row[0]))); });
  check("cvt.f32.f16", {Type::f32, Type::f16},
        [](const std::vector<U64>& row) { return bits(value_of(value<Half>(row[0]))); });
  EXPECT_EQ(calculate("cvt.rn.f16x2.f32", {Type::b32, Type::f32, Type::f32},
                      {{bits(1.0F), bits(2.0F)}})[0],
            0x3C00'4000U);
  EXPECT_EQ(calculate("cvt.rz.f16.f32", {Type::f16, Type::f32}, {{bits(1.0009F)}})[0], 0x3C00U);
  EXPECT_EQ(calculate("cvt.rn.f16.f32", {Type::f16, Type::f32}, {{bits(1.0009F)}})[0], 0x3C01U);
}

TEST(PtxOperation, WhatIsNotKnownIsNamedWithItsLine) {
  HostedMemory memory;
  const auto error = [&](const std::string& body) {
    const Module module =
        parsed(kernel_text(body, "") + ".visible .entry other() { ret; }", memory);
    EXPECT_EQ(module.kernels.at("other").error, "");
    const LaunchResult result = run(module, "k", {}, {}, memory);
    EXPECT_FALSE(result.completed);
    return result.findings.empty() ? std::string() : result.findings[0].what;
  };
  EXPECT_EQ(error(".reg .b32 %r<9>;\nmma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r2}, "
                  "{%r3}, {%r4};"),
            "line 7: mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 is not known");
  EXPECT_EQ(error(".reg .b32 %r<9>;\nadd.s32 %r1, %r2, %r9;"), "line 7: nothing is called %r9");
  EXPECT_EQ(error(".reg .b32 %r<9>;\nadd.s32 %r1, %r2;"),
            "line 7: add.s32 is not known: with 2 operands");
  EXPECT_EQ(error("bra nowhere;"), "line 6: there is no label nowhere");
  EXPECT_EQ(error(".reg .b32 %r<9>;\nadd.s32 %r1, %r2, 12x;"),
            "line 7: a number was expected, not '12x'");
  EXPECT_EQ(error(".reg .b32 %r<9>;\nadd.s33 %r1, %r2, %r3;"), "line 7: add.s33 is not known");
  EXPECT_EQ(error(".reg .b32 %r<9>;\nmov.u32 %r1, %tid;"), "line 7: '.' was expected, not ';'");
}

}  // namespace
}  // namespace gapless::simgpu::ptx
