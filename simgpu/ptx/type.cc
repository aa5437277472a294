#include "simgpu/ptx/type.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace gapless::simgpu::ptx {
namespace {

struct Known {
  std::string_view name;
  unsigned bytes;
};
// In the order of Type.
constexpr std::array<Known, 19> kKnown{{{"pred", 1},
                                        {"b8", 1},
                                        {"b16", 2},
                                        {"b32", 4},
                                        {"b64", 8},
                                        {"u8", 1},
                                        {"u16", 2},
                                        {"u32", 4},
                                        {"u64", 8},
                                        {"s8", 1},
                                        {"s16", 2},
                                        {"s32", 4},
                                        {"s64", 8},
                                        {"f16", 2},
                                        {"bf16", 2},
                                        {"f16x2", 4},
                                        {"bf16x2", 4},
                                        {"f32", 4},
                                        {"f64", 8}}};

const Known& known(Type type) { return kKnown[static_cast<std::size_t>(type)]; }

}  // namespace

std::optional<Type> type_named(std::string_view word) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& type) { return type.name == word; });
  if (found == kKnown.end()) return std::nullopt;
  return static_cast<Type>(std::distance(kKnown.begin(), found));
}

std::string_view name_of(Type type) { return known(type).name; }
unsigned bytes_of(Type type) { return known(type).bytes; }
bool is_signed(Type type) { return type >= Type::s8 && type <= Type::s64; }
bool is_float(Type type) { return type >= Type::f16; }

}  // namespace gapless::simgpu::ptx
