#include "bench/corpus/autograd.h"

#include <map>
#include <utility>

namespace gapless::bench {

struct Node {
  struct Input {
    std::shared_ptr<Node> node;
    std::uint64_t bytes = 0;
  };
  std::uint64_t number = 0;
  std::uint16_t stream = 0;
  std::vector<Input> inputs;
  std::vector<Tensor> saved;
  std::vector<std::uint64_t> offloaded;  // comes over a side stream: from the host, other GPUs
  std::vector<std::uint64_t> scratch;
  std::vector<Parameter*> parameters;
  std::uint64_t width = 4;
  bool passes_grad = false;
  std::function<Var(const Var&)> again;  // of a checkpoint
  Var checkpointed;
};

Parameter* Autograd::parameter(std::uint64_t elements, std::uint64_t bytes_each, bool frozen) {
  auto made = std::make_unique<Parameter>();
  made->elements = elements;
  made->width = bytes_each;
  made->frozen = frozen;
  made->data = session_.alloc(quantized && frozen ? elements / 2 : elements * bytes_each);
  if (quantized && frozen) made->states.push_back(session_.alloc(elements / 64 * 4));
  parameters_.push_back(std::move(made));
  return parameters_.back().get();
}

Var Autograd::input(std::uint64_t elements, std::uint64_t bytes_each) {
  return {session_.alloc(elements * bytes_each), nullptr, elements, bytes_each};
}

Tensor Autograd::weight(Parameter* parameter, std::uint64_t bytes_each) {
  if (quantized && parameter->frozen) return session_.alloc(parameter->elements * bytes_each);
  if (parameter->width == bytes_each) return parameter->data;
  if (parameter->cast) return parameter->cast;
  Tensor cast = session_.alloc(parameter->elements * bytes_each);
  if (!parameter->frozen) parameter->cast = cast;
  return cast;
}

void Autograd::drop_casts() {
  for (const auto& parameter : parameters_) parameter->cast.reset();
}

Var Autograd::apply(const Operator& op) {
  const std::uint64_t bytes_each = op.width != 0 ? op.width : op.inputs.front().width;
  Var out;
  out.elements = op.elements;
  out.width = bytes_each;
  out.data = op.in_place ? op.inputs.front().data : session_.alloc(op.elements * bytes_each);
  for (const std::uint64_t bytes : op.scratch) session_.scratch(bytes);
  std::vector<Tensor> made;
  for (const std::uint64_t bytes : op.makes) made.push_back(session_.alloc(bytes));
  for (const Var& input : op.inputs) {
    if (input.data->stream != out.data->stream) session_.record_stream(input.data);
  }
  bool wants = false;
  for (const Var& input : op.inputs) wants = wants || input.node;
  for (const Parameter* parameter : op.parameters) wants = wants || !parameter->frozen;
  if (!grad_enabled || !wants) return out;
  auto node = std::make_shared<Node>();
  node->number = next_number_++;
  node->stream = out.data->stream;
  node->width = bytes_each;
  node->passes_grad = op.passes_grad;
  for (const Var& input : op.inputs) {
    if (input.node) node->inputs.push_back({input.node, input.bytes()});
  }
  constexpr std::uint64_t kWorthACopy = 1 << 20;
  for (const Tensor& tensor : op.saves) {
    if (offloads && tensor && tensor->bytes >= kWorthACopy) {
      node->offloaded.push_back(tensor->bytes);
      session_.record_stream(tensor);
    } else {
      node->saved.push_back(tensor);
    }
  }
  for (const std::uint64_t bytes : op.gathers) node->offloaded.push_back(bytes);
  if (op.saves_output) node->saved.push_back(out.data);
  for (Tensor& tensor : made) node->saved.push_back(std::move(tensor));
  node->scratch = op.backward_scratch;
  for (Parameter* parameter : op.parameters) {
    if (!parameter->frozen) node->parameters.push_back(parameter);
  }
  out.node = std::move(node);
  return out;
}

Var Autograd::checkpoint(const std::function<Var(const Var&)>& function, const Var& x) {
  if (!grad_enabled) return function(x);
  grad_enabled = false;
  Var out = function(x);
  grad_enabled = true;
  auto node = std::make_shared<Node>();
  node->number = next_number_++;
  node->width = out.width;
  if (x.node) node->inputs.push_back({x.node, x.bytes()});
  node->checkpointed = {x.data, nullptr, x.elements, x.width};
  node->again = function;
  session_.scratch(5056);  // the random generator's state, back on the device
  out.node = std::move(node);
  return out;
}

void Autograd::accumulate(Parameter& parameter, std::uint64_t bytes_each) {
  Tensor grad = session_.alloc(parameter.elements * bytes_each);
  if (parameter.width != bytes_each) grad = session_.alloc(parameter.elements * parameter.width);
  if (!parameter.grad) parameter.grad = std::move(grad);
}

Tensor Autograd::run(const std::shared_ptr<Node>& root, Tensor grad, const Node* leaf) {
  // By number, the latest first; with the gradient that has come together so far.
  std::map<std::uint64_t, std::pair<std::shared_ptr<Node>, Tensor>, std::greater<>> ready;
  ready[root->number] = {root, std::move(grad)};
  Tensor at_leaf;
  while (!ready.empty()) {
    auto [node, flowing] = std::move(ready.begin()->second);
    ready.erase(ready.begin());
    if (node.get() == leaf) {
      at_leaf = std::move(flowing);
      continue;
    }
    const StreamScope scope(session_, node->stream);
    const auto arrive = [&, from = node](const Node::Input& input, Tensor made) {
      auto& place = ready[input.node->number];
      if (!place.first) {
        place = {input.node, std::move(made)};
      } else if (place.second.use_count() > 1) {  // somebody else reads it: the sum is a new one
        place.second = session_.alloc(input.bytes);
      }
      if (input.node->stream != from->stream) session_.record_stream(place.second);
    };
    if (node->again) {
      auto begin = std::make_shared<Node>();
      begin->number = next_number_++;
      begin->stream = node->stream;
      Var x = std::exchange(node->checkpointed, {});
      x.node = begin;
      Var out = node->again(x);
      x.data.reset();
      Tensor made;
      if (out.node) {
        const std::shared_ptr<Node> top = std::exchange(out.node, nullptr);
        out.data.reset();
        made = run(top, std::exchange(flowing, nullptr), begin.get());
      }
      if (!made) made = session_.alloc(x.bytes());
      for (const Node::Input& input : node->inputs) arrive(input, made);
      continue;
    }
    std::vector<Tensor> held;
    for (const std::uint64_t bytes : node->offloaded) {
      held.push_back(session_.alloc_elsewhere(bytes, session_.side_stream()));
    }
    for (const std::uint64_t bytes : node->scratch) held.push_back(session_.alloc(bytes));
    for (const Node::Input& input : node->inputs) {
      arrive(input, node->passes_grad && flowing ? flowing : session_.alloc(input.bytes));
    }
    for (Parameter* parameter : node->parameters) accumulate(*parameter, node->width);
    node->saved.clear();
  }
  return at_leaf;
}

void Autograd::backward(Var loss) {
  if (!loss.node) return;
  Tensor one = session_.alloc(loss.width);
  const std::shared_ptr<Node> root = std::exchange(loss.node, nullptr);
  (void)run(root, std::move(one), nullptr);
}

}  // namespace gapless::bench
