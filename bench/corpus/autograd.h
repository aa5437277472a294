// Autograd: operators that keep for the backward pass what PyTorch's keep, and give it up when
// PyTorch's do.
//
//   forward    x --op--> y --op--> z        y lives on while z's operator has saved it
//   backward   gz -> gy -> gx               in the reverse order; what was saved goes on the way
//
// An operator is known by the memory it takes: its output, temporaries of either pass, what it
// saves, and the parameters whose gradients it makes. Nothing is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bench/corpus/session.h"

namespace gapless::bench {

struct Parameter {
  Tensor data;
  std::uint64_t elements = 0;
  std::uint64_t width = 4;  // bytes of an element
  bool frozen = false;
  Tensor grad;
  Tensor cast;                 // in the autocast's type, while an autocast lasts
  std::vector<Tensor> states;  // the optimizer's, from its first step on
};

struct Node;

/// A tensor and the operator it came from; no operator where no gradient is wanted.
struct Var {
  Tensor data;
  std::shared_ptr<Node> node;
  std::uint64_t elements = 0;
  std::uint64_t width = 4;

  [[nodiscard]] std::uint64_t bytes() const { return elements * width; }
};

/// What an operator takes. Sizes are in bytes.
struct Operator {
  std::vector<Var> inputs;
  std::uint64_t elements = 0;  // of the output
  std::uint64_t width = 0;     // 0: as the first input's
  std::vector<Tensor> saves;
  bool saves_output = false;
  std::vector<std::uint64_t> makes;             // further results that only the backward pass needs
  std::vector<std::uint64_t> scratch;           // live beside the output, one after the other
  std::vector<std::uint64_t> backward_scratch;  // live together, beside the gradients
  std::vector<Parameter*> parameters;
  std::vector<std::uint64_t> gathers;  // on a side stream, in the backward pass
  bool passes_grad = false;            // the inputs' gradient is the output's (sums, views)
  bool in_place = false;               // the output is the first input's memory
};

class Autograd {
 public:
  explicit Autograd(Session& session) : session_(session) {}

  Session& session() { return session_; }

  /// A parameter of `elements` numbers, allocated now.
  Parameter* parameter(std::uint64_t elements, std::uint64_t width, bool frozen = false);
  [[nodiscard]] const std::vector<std::unique_ptr<Parameter>>& parameters() const {
    return parameters_;
  }

  Var apply(const Operator& op);
  /// An input of the program: no gradient.
  Var input(std::uint64_t elements, std::uint64_t width);
  /// The function's intermediate results are made again in the backward pass.
  Var checkpoint(const std::function<Var(const Var&)>& function, const Var& x);
  /// From a loss; gives up the graph.
  void backward(Var loss);

  /// The parameter as a matrix product reads it: cast once per autocast where its type differs, or
  /// made from its quantized form at each use.
  Tensor weight(Parameter* parameter, std::uint64_t width);
  /// The autocast ends.
  void drop_casts();

  bool grad_enabled = true;
  /// Bytes of a number in activations.
  std::uint64_t width = 4;
  /// Weights are kept in 4 bits and made wide for each use.
  bool quantized = false;
  /// What is saved is copied to the host, and back on a side stream.
  bool offloads = false;

 private:
  friend struct Node;
  // Runs the nodes from `root` down; the gradient that arrives at `leaf`, if any.
  Tensor run(const std::shared_ptr<Node>& root, Tensor grad, const Node* leaf);
  void accumulate(Parameter& parameter, std::uint64_t width);

  Session& session_;
  std::uint64_t next_number_ = 0;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

}  // namespace gapless::bench
