#include "bench/corpus/layers.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless::bench {

Dense dense(Autograd& graph, std::uint64_t in, std::uint64_t out, std::uint64_t weight_width,
            bool with_bias, bool frozen) {
  Dense layer;
  layer.in = in;
  layer.out = out;
  layer.weight = graph.parameter(in * out, weight_width, frozen);
  if (with_bias) layer.bias = graph.parameter(out, weight_width, frozen);
  return layer;
}

void adapt(Autograd& graph, Dense& layer, std::uint64_t rank, std::uint64_t width) {
  layer.rank = rank;
  layer.down = graph.parameter(layer.in * rank, width);
  layer.up = graph.parameter(layer.out * rank, width);
}

Var linear(Autograd& graph, const Dense& layer, const Var& x) {
  const std::uint64_t rows = x.elements / layer.in;
  const std::uint64_t width = graph.width;
  const Tensor weight = graph.weight(layer.weight, width);
  Tensor input = x.data;
  if (x.width != width) input = graph.session().alloc(x.elements * width);
  Operator op{.inputs = {x}, .elements = rows * layer.out, .width = width};
  op.parameters = {layer.weight};
  if (layer.bias != nullptr) op.parameters.push_back(layer.bias);
  if (!layer.weight->frozen) op.saves.push_back(input);
  if (graph.quantized && layer.weight->frozen) {
    // Made wide again for the backward pass.
    op.backward_scratch.push_back(layer.weight->elements * width);
  } else {
    op.saves.push_back(weight);
  }
  Var out = graph.apply(op);
  if (layer.rank == 0) return out;
  const Var dropped = dropout(graph, x);
  const Var narrow = graph.apply({.inputs = {dropped},
                                  .elements = rows * layer.rank,
                                  .width = width,
                                  .saves = {dropped.data, graph.weight(layer.down, width)},
                                  .parameters = {layer.down}});
  const Var wide = graph.apply({.inputs = {narrow},
                                .elements = rows * layer.out,
                                .width = width,
                                .saves = {narrow.data, graph.weight(layer.up, width)},
                                .parameters = {layer.up}});
  const Var scaled = graph.apply({.inputs = {wide}, .elements = wide.elements, .width = width});
  return add(graph, out, scaled);
}

Var layer_norm(Autograd& graph, Parameter* gain, const Var& x, std::uint64_t row) {
  const std::uint64_t rows = x.elements / row;
  return graph.apply({.inputs = {x},
                      .elements = x.elements,
                      .width = x.width,
                      .saves = {x.data},
                      .makes = {rows * 4, rows * 4},
                      .backward_scratch = {std::min<std::uint64_t>(rows, 64) * row * 4},
                      .parameters = {gain}});
}

Var add(Autograd& graph, const Var& a, const Var& b) {
  return graph.apply({.inputs = {a, b},
                      .elements = std::max(a.elements, b.elements),
                      .width = std::max(a.width, b.width),
                      .passes_grad = a.bytes() == b.bytes()});
}

Var activate(Autograd& graph, const Var& x) {
  return graph.apply({.inputs = {x}, .elements = x.elements, .saves = {x.data}});
}

Var multiply(Autograd& graph, const Var& a, const Var& b) {
  return graph.apply({.inputs = {a, b}, .elements = a.elements, .saves = {a.data, b.data}});
}

Var dropout(Autograd& graph, const Var& x) {
  return graph.apply({.inputs = {x}, .elements = x.elements, .makes = {x.elements}});
}

Var contiguous(Autograd& graph, const Var& x) {
  return graph.apply({.inputs = {x}, .elements = x.elements});
}

Var attention(Autograd& graph, const Var& q, const Var& k, const Var& v,
              const AttentionShape& shape, bool flash) {
  const std::uint64_t rows = shape.batch * shape.heads * shape.queries;
  const std::uint64_t out = rows * shape.head;
  if (flash) {
    return graph.apply({.inputs = {q, k, v},
                        .elements = out,
                        .saves = {q.data, k.data, v.data},
                        .saves_output = true,
                        .makes = {rows * 4, 8, 8},  // sums of rows; the generator's seed, offset
                        .backward_scratch = {rows * 4, out * 4}});
  }
  const std::uint64_t scores = rows * shape.keys;
  const Var product =
      graph.apply({.inputs = {q, k}, .elements = scores, .saves = {q.data, k.data}});
  const Var masked =
      graph.apply({.inputs = {product}, .elements = scores, .makes = {shape.queries * shape.keys}});
  const Var likely = graph.apply({.inputs = {masked}, .elements = scores, .saves_output = true});
  const Var kept = graph.grad_enabled ? dropout(graph, likely) : likely;
  return graph.apply({.inputs = {kept, v}, .elements = out, .saves = {kept.data, v.data}});
}

Var embedding(Autograd& graph, Parameter* table, std::uint64_t tokens, std::uint64_t row) {
  const Var ids = graph.input(tokens, 8);
  return graph.apply({.inputs = {ids},
                      .elements = tokens * row,
                      .width = table->width,
                      .saves = {ids.data},
                      .backward_scratch = {tokens * 8, tokens * 8, tokens * 4},
                      .parameters = {table}});
}

Var cross_entropy(Autograd& graph, const Var& logits, bool in_float) {
  Var wide = logits;
  if (in_float && logits.width != 4) {
    wide = graph.apply({.inputs = {logits}, .elements = logits.elements, .width = 4});
  }
  const Var likely =
      graph.apply({.inputs = {wide}, .elements = wide.elements, .saves_output = true});
  return graph.apply({.inputs = {likely}, .elements = 1, .saves = {likely.data}, .makes = {4, 8}});
}

Var mean_loss(Autograd& graph, const Var& x) {
  const Var difference = graph.apply({.inputs = {x}, .elements = x.elements, .saves = {x.data}});
  return graph.apply({.inputs = {difference}, .elements = 1, .scratch = {4096}});
}

std::uint64_t conv_workspace(const ConvShape& shape, std::uint64_t pass) {
  // Which algorithm the library takes is a function of the shape.
  const std::uint64_t bits =
      Draw::mixed(shape.batch * 0x9e3779b9 + shape.in * 131071 + shape.out * 8191 +
                  shape.height * 127 + shape.kernel * 7 + shape.stride + (pass << 40));
  const std::uint64_t out = shape.batch * shape.out * shape.height * shape.width * 2;
  switch (bits % 8) {
    case 0:
    case 1:
    case 2:
      return 0;
    case 3:
    case 4:
      return shape.in * shape.out * shape.kernel * shape.kernel * 4 + 512;
    case 5:
      return 64 * KiB + bits % 977 * 512;
    case 6:
      return out / 2 + 16 * KiB;
    default:
      return std::min<std::uint64_t>(out * (2 + bits % 3), 2 * GiB);
  }
}

Var convolve(Autograd& graph, Parameter* weight, const Var& x, const ConvShape& shape) {
  const std::uint64_t width = graph.width;
  Tensor input = x.data;
  if (x.width != width) input = graph.session().alloc(x.elements * width);
  Operator op{.inputs = {x},
              .elements = shape.batch * shape.out * shape.height * shape.width,
              .width = width,
              .saves = {input, graph.weight(weight, width)},
              .parameters = {weight}};
  if (const auto bytes = conv_workspace(shape, 0)) op.scratch.push_back(bytes);
  if (const auto bytes = conv_workspace(shape, 1)) op.backward_scratch.push_back(bytes);
  return graph.apply(op);
}

Var normalize(Autograd& graph, Parameter* gain, const Var& x, std::uint64_t channels) {
  return graph.apply({.inputs = {x},
                      .elements = x.elements,
                      .saves = {x.data},
                      .makes = {channels * 4, channels * 4},
                      .parameters = {gain}});
}

Var activate_in_place(Autograd& graph, const Var& x) {
  return graph.apply({.inputs = {x}, .elements = x.elements, .saves = {x.data}, .in_place = true});
}

Var concatenate(Autograd& graph, const Var& a, const Var& b) {
  return graph.apply({.inputs = {a, b}, .elements = a.elements + b.elements});
}

Var resample(Autograd& graph, const Var& x, std::uint64_t elements) {
  return graph.apply({.inputs = {x}, .elements = elements});
}

}  // namespace gapless::bench
