// What stands in for numbers that nobody knows, where a program steers by them. All of it is
// "likely" (known_ranges.h), and what follows from it is told.
//
//   topk(router_logits, 2)   experts in turn: token 0 -> 0, 1   token 1 -> 2, 3   token 2 -> 0, 1
//                            with a skew, the first gets more
//   argmax(logits)           of more choices than rows: spread over all of them
//   score > -1e9             as of numbers in general position: finite, no special ones, 0 < x < 1
//   isnan(x), x == x         the same, and for certain: every other training loop asks that
//
// With --unknown most, what is chosen by such numbers is as much as there can be:
//
//   x[scores > 0.5]          every row; nms(boxes, scores) keeps every box
//   (scores > 0.5).sum()     all but one: neither "none, so nothing is to be done" nor "all are
//   done"
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "simgpu/torch/operator_facts.h"

namespace gapless::simgpu {

/// Fills `indices` (of the device), which an operator like topk has found along a dimension of
/// `choices` places. `dim`: that dimension of `indices`; nothing where it is gone.
void guess_indices(const at::Tensor& indices, std::optional<std::int64_t> dim,
                   std::int64_t choices);

/// What a comparison of these two says; `b` is null for one of `a` alone. Undefined where nothing
/// can be said, or it is too much to say.
at::Tensor guess_predicate(const std::string& base, const at::Tensor& a, const c10::IValue* b,
                           const at::Tensor& result);

/// Whether it asks no more than if numbers are finite, as x == x and x.abs() == inf do. They are:
/// a program whose losses are not is not the one whose memory is asked for.
bool asks_if_finite(const at::Tensor& a, const c10::IValue* b);

/// The most that a size can be which follows from the numbers of `from`; nothing where they do not
/// bound it. `dim`: along which it is.
std::optional<std::int64_t> most_of(const OperatorFacts& facts, const at::Tensor& from,
                                    std::optional<std::int64_t> dim);

/// How many of `flags` are set, all of them together, or whether any is.
void guess_count(const OperatorFacts& facts, const at::Tensor& flags, const at::Tensor& result);

/// Where an operator has found every place there is, the places.
void guess_all_chosen(const OperatorFacts& facts, const at::Tensor& from, const at::Tensor& places);

/// Gives the tensor numbers, where --unknown noise asks for that: the amounts of standard normal
/// ones, flags, or integers from 0 to some 30.
void guess_noise(const at::Tensor& tensor);

/// A seed for one operator's random numbers: it goes by torch's own for the device.
std::uint64_t seed_for(const c10::IValue& generator, const at::Device& device);

}  // namespace gapless::simgpu
