#include "simgpu/front/nccl/reduction.h"

#include <algorithm>

#include "simgpu/process/numbers.h"

namespace gapless::simgpu::nccl {
namespace {

// By ncclDataType_t.
NumberType number_type(int type) {
  using enum NumberType;
  constexpr NumberType known[] = {i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16};
  return type >= 0 && type < 10 ? known[type] : none;
}

template <class T>
T apply(int reduction, T a, T b) {
  switch (reduction) {
    case kProduct:
      return static_cast<T>(a * b);
    case kMaximum:
      return std::max(a, b);
    case kMinimum:
      return std::min(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

}  // namespace

std::size_t type_bytes(int type) {
  const bool float8 = type == 10 || type == 11;
  return float8 ? 1 : bytes_of(number_type(type));
}

bool can_reduce(int type, int reduction) {
  return reduction >= kSum && reduction <= kAverage && number_type(type) != NumberType::none;
}

void combine(int type, int reduction, void* target, const void* source, std::size_t count) {
  with_type(number_type(type), [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) {
      store_number<T>(target, i,
                      apply(reduction, load_number<T>(target, i), load_number<T>(source, i)));
    }
  });
}

void divide(int type, void* target, std::size_t count, int ranks) {
  with_type(number_type(type), [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = load_number<T>(target, i);
      store_number<T>(target, i, sum / static_cast<decltype(sum)>(ranks));
    }
  });
}

}  // namespace gapless::simgpu::nccl
