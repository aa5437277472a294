// What a collective makes of the ranks' numbers: sums, products, minima, maxima, averages.
#pragma once

#include <cstddef>

namespace gapless::simgpu::nccl {

/// ncclRedOp_t.
enum Reduction : int { kSum = 0, kProduct = 1, kMaximum = 2, kMinimum = 3, kAverage = 4 };

/// Bytes of one ncclDataType_t; 0 for one that is none.
[[nodiscard]] std::size_t type_bytes(int type);

/// Whether numbers of that type can be combined so.
[[nodiscard]] bool can_reduce(int type, int reduction);

/// target[i] = target[i] (op) source[i], for `count` numbers. An average is a sum so far.
void combine(int type, int reduction, void* target, const void* source, std::size_t count);
/// Ends an average over that many ranks.
void divide(int type, void* target, std::size_t count, int ranks);

}  // namespace gapless::simgpu::nccl
