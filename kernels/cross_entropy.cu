// The kernels of cross_entropy.h. A block takes a row at a time, reads it once and keeps a running
// maximum and the sum of exponentials under it (Milakov and Gimelshein, arXiv:1805.02867), and
// reads it again for the gradient:
//
//   thread 0     largest, others of its pieces  \
//   thread 1     largest, others                 >  cub::BlockReduce: Merge  ->  all threads
//   ...                                         /
//
// `plain` kernels are for rows without class weights, label smoothing, z-loss and soft cap.
#include <cassert>

#include <cub/block/block_reduce.cuh>

#include "kernels/cross_entropy.h"
#include "kernels/parts.h"
#include "kernels/row.cuh"

namespace gapless::kernels {
namespace {

constexpr int kThreads = 512;

// exp, to the precision that its results are used with.
template <class T>
__device__ float exponential(float x) {
  return __expf(x);
}
template <>
__device__ float exponential<float>(float x) {
  return expf(x);
}

// The largest alone is 1, in a sum that may be less than the last digit of 1: it is left out.
struct Running {
  float largest = -INFINITY;
  float others = 0;    // of exp(x - largest)
  float weighted = 0;  // of w x
};

// What counted as 1 under one maximum, under another that is no less.
__device__ float scale(float largest, float other) {
  return largest == -INFINITY ? 0.0F : expf(largest - other);
}

struct Merge {
  __device__ Running operator()(const Running& a, const Running& b) const {
    const Running& high = a.largest >= b.largest ? a : b;
    const Running& low = a.largest >= b.largest ? b : a;
    const float scaled = scale(low.largest, high.largest);
    return {high.largest, high.others + low.others * scaled + scaled, a.weighted + b.weighted};
  }
};

using Options = gapless_cross_entropy;

template <bool kPlain>
__device__ float capped(const Options& options, float logit) {
  return kPlain || options.soft_cap == 0 ? logit
                                         : options.soft_cap * tanhf(logit / options.soft_cap);
}
__device__ float weight_of(const Options& options, std::int64_t label) {
  return options.class_weights != nullptr ? options.class_weights[label] : 1.0F;
}
__device__ std::int64_t total_of(const Options& options) {
  return options.total_classes != 0 ? options.total_classes : options.classes;
}

struct Label {
  std::int64_t label;  // of all classes
  std::int64_t index;  // of these
  bool ignored;
};
__device__ Label label_of(const Options& options, std::int64_t row) {
  const std::int64_t label = options.labels[row * options.label_stride];
  const bool ignored = label == options.ignore_index;
  assert(ignored || (label >= 0 && label < total_of(options)));
  return {label, label - options.first_class, ignored};
}

// What is known of a row once all of it was read.
struct Finished {
  float largest;
  float others;
  float label_logit;
  float weighted;
};

template <class T, bool kPlain>
__device__ Running read(const Options& options, const Row<const T>& row) {
  constexpr int kPiece = Row<const T>::kPiece;
  Running running;
  const int offset = row.offset();
  for (std::int64_t first = std::int64_t{threadIdx.x} * kPiece - offset; first < options.classes;
       first += std::int64_t{kThreads} * kPiece) {
    float x[kPiece];
    row.load(first, -INFINITY, x);
    float largest = running.largest;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      x[i] = capped<kPlain>(options, x[i]);
      // The soft cap makes a number of what is not there.
      if (!kPlain && !row.has(first + i)) x[i] = -INFINITY;
      largest = fmaxf(largest, x[i]);
    }
    if (largest > running.largest) {
      running.others = (running.others + 1) * scale(running.largest, largest);
      running.largest = largest;
      bool left_out = false;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (x[i] == largest && !left_out) {
          left_out = true;
        } else if (x[i] != -INFINITY) {
          running.others += exponential<T>(x[i] - largest);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (x[i] != -INFINITY) running.others += exponential<T>(x[i] - largest);
      }
    }
    if (!kPlain && options.label_smoothing != 0) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        if (row.has(first + i))
          running.weighted += weight_of(options, options.first_class + first + i) * x[i];
      }
    }
  }
  return running;
}

// All threads get it.
template <class T, bool kPlain>
__device__ Finished statistics(const Options& options, const Row<const T>& row,
                               const Label& label) {
  using Reduce = cub::BlockReduce<Running, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ Finished finished;
  const Running running = Reduce(storage).Reduce(read<T, kPlain>(options, row), Merge{});
  if (threadIdx.x == 0) {
    finished.largest = running.largest;
    // As the quotient of infinities is.
    finished.others = running.largest == INFINITY ? NAN : running.others;
    finished.weighted = running.weighted;
    const bool is_here = !label.ignored && row.has(label.index);
    finished.label_logit = is_here ? capped<kPlain>(options, row.at(label.index)) : 0.0F;
  }
  __syncthreads();
  return finished;
}

__device__ void write_loss(const Options& options, std::int64_t row, const Label& label,
                           const Finished& of) {
  float loss = 0;
  float weight = 0;
  if (!label.ignored) {
    weight = weight_of(options, label.label);
    const float smoothing = options.label_smoothing;
    const float log_sum = log1pf(of.others);
    loss = (1 - smoothing) * weight * (of.largest - of.label_logit + log_sum);
    if (smoothing != 0) {
      const auto classes = static_cast<float>(total_of(options));
      const float all = options.class_weights != nullptr ? *options.class_weight_sum : classes;
      loss += smoothing / classes * (all * (of.largest + log_sum) - of.weighted);
    }
    if (options.z_loss != 0) {
      const float lse = of.largest + log_sum;
      loss += options.z_loss * lse * lse;
    }
  }
  options.losses[row] = loss;
  options.row_weights[row] = weight;
}

template <class T, bool kPlain>
__device__ void write_gradient(const Options& options, std::int64_t index, const Label& label,
                               const Finished& of, const Row<const T>& row) {
  constexpr int kPiece = Row<const T>::kPiece;
  const Row<T> gradient(static_cast<T*>(options.gradients) + index * options.gradient_row_stride,
                        options.gradient_class_stride, options.classes);
  float outer = options.loss_gradients != nullptr
                    ? options.loss_gradients[index * options.loss_gradient_stride]
                    : 1.0F;
  if (options.divisor != nullptr) outer /= *options.divisor;
  const float log_sum = log1pf(of.others);
  const auto classes = static_cast<float>(total_of(options));
  const float smoothing = kPlain ? 0.0F : options.label_smoothing;
  const float weight = label.ignored ? 0.0F : kPlain ? 1.0F : weight_of(options, label.label);
  // p * (for_all) - for_label [c = y] - each w[c]
  float for_label = (1 - smoothing) * weight;
  float for_all = for_label;
  const float each = smoothing / classes;
  if (!kPlain) {
    if (smoothing != 0)
      for_all += each * (options.class_weights != nullptr ? *options.class_weight_sum : classes);
    if (options.z_loss != 0) for_all += 2 * options.z_loss * (of.largest + log_sum);
  }
  const int offset = row.offset();
  for (std::int64_t first = std::int64_t{threadIdx.x} * kPiece - offset; first < options.classes;
       first += std::int64_t{kThreads} * kPiece) {
    float values[kPiece];
    if (label.ignored) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) values[i] = 0;
      gradient.store(first, values);
      continue;
    }
    row.load(first, 0, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const float x = capped<kPlain>(options, values[i]);
      const float log_p = x - of.largest - log_sum;
      float made = exponential<T>(log_p) * for_all;
      // Of the label's class p - 1, without the digits that the difference would lose.
      if (first + i == label.index) made = expm1f(log_p) * for_all + (for_all - for_label);
      if (!kPlain) {
        if (smoothing != 0 && row.has(first + i)) {
          made -= each * weight_of(options, options.first_class + first + i);
        }
        if (options.soft_cap != 0) {
          const float part = x / options.soft_cap;
          made *= 1 - part * part;
        }
      }
      values[i] = made * outer;
    }
    gradient.store(first, values);
  }
}

enum class Pass { forward, backward, both };

template <class T, Pass kPass, bool kPlain>
__device__ void run(const Options& options) {
  for (std::int64_t index = blockIdx.x; index < options.rows; index += gridDim.x) {
    const Label label = label_of(options, index);
    const Row<const T> row(static_cast<const T*>(options.logits) + index * options.row_stride,
                           options.class_stride, options.classes);
    Finished of;
    if (kPass == Pass::backward) {
      of = {options.largest[index], options.others[index], 0, 0};
    } else {
      of = statistics<T, kPlain>(options, row, label);
      if (threadIdx.x == 0) {
        options.largest[index] = of.largest;
        options.others[index] = of.others;
        options.label_logit[index] = of.label_logit;
        if (options.weighted != nullptr) options.weighted[index] = of.weighted;
        if (kPass == Pass::both) write_loss(options, index, label, of);
      }
    }
    if (kPass != Pass::forward) write_gradient<T, kPlain>(options, index, label, of, row);
    if (kPass != Pass::backward) __syncthreads();  // what is shared is of the next row from here on
  }
}

}  // namespace

// Name and type as gapless_cross_entropy counts them: cross_entropy_forward_0_plain.
#define KERNEL(PASS, NUMBER, TYPE)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) cross_entropy_##PASS##_##NUMBER##_plain( \
      const __grid_constant__ gapless_cross_entropy options) {                                    \
    run<TYPE, Pass::PASS, true>(options);                                                         \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kThreads)                                          \
      cross_entropy_##PASS##_##NUMBER(const __grid_constant__ gapless_cross_entropy options) {    \
    run<TYPE, Pass::PASS, false>(options);                                                        \
  }
#define KERNELS(NUMBER, TYPE)    \
  KERNEL(forward, NUMBER, TYPE)  \
  KERNEL(backward, NUMBER, TYPE) \
  KERNEL(both, NUMBER, TYPE)
KERNELS(0, float)
KERNELS(1, __half)
KERNELS(2, __nv_bfloat16)

// A thread a row.
extern "C" __global__ void cross_entropy_losses(
    const __grid_constant__ gapless_cross_entropy options) {
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < options.rows;
       row += std::int64_t{gridDim.x} * blockDim.x) {
    const Finished of{options.largest[row], options.others[row], options.label_logit[row],
                      options.weighted != nullptr ? options.weighted[row] : 0.0F};
    write_loss(options, row, label_of(options, row), of);
  }
}

// A thread a row.
extern "C" __global__ void cross_entropy_combine(
    const __grid_constant__ gapless::kernels::Parts parts) {
  const gapless_cross_entropy& options = parts.rows;
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < options.rows;
       row += std::int64_t{gridDim.x} * blockDim.x) {
    Running all;
    float label_logit = 0;
    for (std::int64_t shard = 0; shard < parts.shards; ++shard) {
      const float* const part = parts.parts + shard * parts.shard_stride + row;
      const float weighted = options.weighted != nullptr ? part[3 * options.rows] : 0.0F;
      all = Merge{}(all, {part[0], part[options.rows], weighted});
      label_logit += part[2 * options.rows];
    }
    options.largest[row] = all.largest;
    options.others[row] = all.others;
    options.label_logit[row] = label_logit;
    if (options.weighted != nullptr) options.weighted[row] = all.weighted;
  }
}

}  // namespace gapless::kernels
