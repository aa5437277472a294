// A row of logits or of their gradient, read and written in pieces of 16 bytes where it lies well.
//
//   bfloat16, the row starts 4 bytes behind a multiple of 16:
//     piece 0        piece 1                  piece 2
//     . . 0 1 2 3 4 5 | 6 7 8 9 10 11 12 13 | 14 15 16 . . . . .     classes
//     one by one       16 bytes at once       one by one
//
// A block's threads take the pieces in turn, so the order in which numbers are added depends on the
// row's place and on nothing else.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gapless::kernels {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <class T>
class Row {
 public:
  static constexpr int kPiece = 16 / sizeof(T);

  __device__ Row(T* begin, std::int64_t stride, std::int64_t classes)
      : begin_(begin), stride_(stride), classes_(classes) {}

  /// How many classes of the first piece lie before the row.
  __device__ int offset() const {
    return stride_ == 1
               ? static_cast<int>(reinterpret_cast<std::uintptr_t>(begin_) / sizeof(T) % kPiece)
               : 0;
  }
  /// The classes from first on, which may be negative; what is not of the row is `absent`.
  __device__ void load(std::int64_t first, float absent, float (&values)[kPiece]) const {
    if (is_whole(first)) {
      const uint4 words = *reinterpret_cast<const uint4*>(begin_ + first);
      const auto* const parts = reinterpret_cast<const T*>(&words);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[i] = to_float(parts[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      values[i] = has(first + i) ? to_float(begin_[(first + i) * stride_]) : absent;
    }
  }
  __device__ void store(std::int64_t first, const float (&values)[kPiece]) const {
    if (is_whole(first)) {
      uint4 words;
      auto* const parts = reinterpret_cast<T*>(&words);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) parts[i] = from_float<T>(values[i]);
      *reinterpret_cast<uint4*>(begin_ + first) = words;
      return;
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (has(first + i)) begin_[(first + i) * stride_] = from_float<T>(values[i]);
    }
  }
  __device__ bool has(std::int64_t index) const { return index >= 0 && index < classes_; }
  __device__ float at(std::int64_t index) const { return to_float(begin_[index * stride_]); }

 private:
  __device__ bool is_whole(std::int64_t first) const {
    return stride_ == 1 && first >= 0 && first + kPiece <= classes_ &&
           reinterpret_cast<std::uintptr_t>(begin_ + first) % 16 == 0;
  }

  T* begin_;
  std::int64_t stride_;
  std::int64_t classes_;
};

}  // namespace gapless::kernels
