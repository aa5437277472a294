// Layers: the operators that models are made of, by the memory PyTorch's take.
//
//   linear      output; saves its input, makes the weight's and the bias's gradient
//   attention   flash: output and a sum for each row; plain: scores and probabilities as well
//   convolve    output and a workspace that depends on the shape; normalize, activate
//   cross_entropy  the logits in float32, their log-softmax, and in the backward pass both again
//
// Each says what it takes in one call of Autograd::apply().
#pragma once

#include <cstdint>

#include "bench/corpus/autograd.h"

namespace gapless::bench {

/// A layer's weight and bias.
struct Dense {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  Parameter* down = nullptr;  // of a low-rank adapter
  Parameter* up = nullptr;
  std::uint64_t rank = 0;
};

Dense dense(Autograd& graph, std::uint64_t in, std::uint64_t out, std::uint64_t weight_width,
            bool with_bias = true, bool frozen = false);
/// Adds a low-rank adapter.
void adapt(Autograd& graph, Dense& layer, std::uint64_t rank, std::uint64_t width);

/// `x` is of rows of `layer.in` numbers.
Var linear(Autograd& graph, const Dense& layer, const Var& x);
/// Over rows of so many numbers; in float32 within an autocast.
Var layer_norm(Autograd& graph, Parameter* gain, const Var& x, std::uint64_t row);
Var add(Autograd& graph, const Var& a, const Var& b);
/// An activation that saves its input.
Var activate(Autograd& graph, const Var& x);
/// a * b, which saves both.
Var multiply(Autograd& graph, const Var& a, const Var& b);
/// With a mask of a byte for each number.
Var dropout(Autograd& graph, const Var& x);
/// Another shape of the same numbers, copied.
Var contiguous(Autograd& graph, const Var& x);

struct AttentionShape {
  std::uint64_t batch = 1;
  std::uint64_t heads = 1;
  std::uint64_t queries = 1;
  std::uint64_t keys = 1;
  std::uint64_t head = 64;  // numbers of a head
};
Var attention(Autograd& graph, const Var& q, const Var& k, const Var& v,
              const AttentionShape& shape, bool flash);

Var embedding(Autograd& graph, Parameter* table, std::uint64_t tokens, std::uint64_t row);
/// The loss of rows of so many logits each.
Var cross_entropy(Autograd& graph, const Var& logits, bool in_float);
/// The mean of something: a loss of one number.
Var mean_loss(Autograd& graph, const Var& x);

struct ConvShape {
  std::uint64_t batch = 1;
  std::uint64_t in = 1;
  std::uint64_t out = 1;
  std::uint64_t height = 1;  // of the output
  std::uint64_t width = 1;
  std::uint64_t stride = 1;
  std::uint64_t kernel = 3;
};
/// The library's workspace for it: nothing, a little or several times the output, by the shape.
std::uint64_t conv_workspace(const ConvShape& shape, std::uint64_t pass);
Var convolve(Autograd& graph, Parameter* weight, const Var& x, const ConvShape& shape);
/// Batch or group normalization: saves its input and small statistics.
Var normalize(Autograd& graph, Parameter* gain, const Var& x, std::uint64_t channels);
Var activate_in_place(Autograd& graph, const Var& x);
/// Two tensors side by side.
Var concatenate(Autograd& graph, const Var& a, const Var& b);
/// To a grid of another size.
Var resample(Autograd& graph, const Var& x, std::uint64_t elements);

}  // namespace gapless::bench
