// A CUDA tensor's numbers, as far as they are known, and its twin: a CPU tensor of the same sizes
// and strides that holds them.
//
//   x[:, 1] on the device   address 0x7000'0008, sizes {3}, strides {4}
//   its twin                the same sizes and strides over a copy of 0x7000'0008 to 0x7000'0050
//
// So views, transposed ones and slices are right by themselves; and what is conjugated or negated
// only when somebody reads it is so in the twin as well.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace gapless::simgpu {

// Knowledge of known_ranges.h, as its number: the least wins.
constexpr int kNone = 0;
constexpr int kLikely = 1;
constexpr int kKnown = 2;

/// Whether its numbers lie in device memory as its sizes and strides say.
bool is_on_device(const at::Tensor& tensor);

/// Whether its numbers are integers or flags.
bool is_integer(const at::Tensor& tensor);

/// Whether it is small enough to compute with: numbers that programs steer by are.
bool is_small(const at::Tensor& tensor);

/// Whether it is of use to know its numbers: they are computed with, or are flags and places, of
/// which programs read a part, and would be kept.
bool is_worth_knowing(const at::Tensor& tensor);

/// What is known of its numbers, of the least known one; of no numbers everything.
int knowledge_of(const at::Tensor& tensor);

/// Whether anything may be known of any of its numbers; at once, and also where it is not small.
bool knows_any(const at::Tensor& tensor);

/// Of a tensor that is_on_device and is_small.
at::Tensor empty_twin_of(const at::Tensor& tensor);  // without the numbers
at::Tensor twin_of(const at::Tensor& tensor);

/// A tensor of the same sizes as `like`, where that holds one number for several of its places (it
/// is expanded) with the first of these alone: what is written to may hold none twice.
at::Tensor without_repeats(at::Tensor tensor, const at::Tensor& like);

/// The device's tensor gets the numbers of a CPU tensor of the same sizes and type.
void write_values(const at::Tensor& tensor, const at::Tensor& values, int knowledge);

/// The same of those numbers where `flags`, of the same sizes, is set.
void write_where(const at::Tensor& tensor, const at::Tensor& values, const at::Tensor& flags,
                 int knowledge);

/// Nothing is known of its numbers any more.
void forget_values(const at::Tensor& tensor);

/// Of those numbers where `flags`, of the same sizes, is set, nothing is known any more.
void forget_where(const at::Tensor& tensor, const at::Tensor& flags);

/// A flag for each of its numbers, with its strides: whether anything is known of it; and the least
/// that is known of those.
struct KnownWhere {
  at::Tensor flags;
  int least = kKnown;
};
KnownWhere known_where(const at::Tensor& tensor);

/// A graph's kernels write to it.
void note_written_by(void* graph, const at::Tensor& tensor);

}  // namespace gapless::simgpu
