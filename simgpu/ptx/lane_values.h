// A register's 64 bits as a value of some type, and loops over the lanes of a warp.
//
//   for_lanes<std::int32_t>(warp, instruction, lanes, [](auto a, auto b) { return a + b; })
//     row 0 = row 1 + row 2, for these lanes
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "simgpu/ptx/half.h"
#include "simgpu/ptx/warp.h"

namespace gapless::simgpu::ptx {

/// Holds every product of two of 64 bits.
__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

template <class T>
T from_bits(std::uint64_t bits) {
  // A predicate may have been set with "mov.pred %p1, -1".
  if constexpr (std::is_same_v<T, bool>) return bits != 0;
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof value <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
inline std::uint64_t to_bits(bool value) { return value ? 1 : 0; }

/// Row 0 becomes f of the rows behind, as many as f takes (A, of their types).
template <class... A, class F>
void for_lanes(Warp& warp, const Instruction& instruction, Mask lanes, F&& f) {
  std::uint64_t* const result = warp.row(instruction.rows[0]);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const std::array<const std::uint64_t*, sizeof...(A)> from{warp.row(instruction.rows[I + 1])...};
    if (lanes == ~Mask{0}) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        result[lane] = to_bits(f(from_bits<A>(from[I][lane])...));
      }
    } else {
      each_lane(lanes,
                [&](unsigned lane) { result[lane] = to_bits(f(from_bits<A>(from[I][lane])...)); });
    }
  }
  (std::index_sequence_for<A...>());
}

}  // namespace gapless::simgpu::ptx
