#include "bench/corpus/transformer.h"

#include <algorithm>

namespace gapless::bench {
namespace {

// A layer's weights come together on a side stream, are read, and go.
void gather(Setup& setup, std::uint64_t bytes) {
  if (setup.use.gathers) {
    (void)setup.session().alloc_elsewhere(bytes, setup.session().side_stream());
  }
}

// Leaves its memory to the backward pass: weights once more, or gradients on their way.
Var passes_through(Setup& setup, const Var& x, std::uint64_t bytes) {
  if (!setup.use.gathers || !x.node) return x;
  return setup.graph.apply({.inputs = {x},
                            .elements = x.elements,
                            .gathers = {bytes},
                            .passes_grad = true,
                            .in_place = true});
}

Var rotate(Autograd& graph, const Var& x) {
  graph.session().scratch(x.bytes() / 2);
  const Var turned = contiguous(graph, x);
  return graph.apply({.inputs = {x, turned}, .elements = x.elements});
}

Var feed_forward(Setup& setup, const TransformerShape& shape, const TransformerBlock& block,
                 const Var& x) {
  Autograd& graph = setup.graph;
  if (!shape.gated) return linear(graph, block.down, activate(graph, linear(graph, block.up, x)));
  const Var gate = activate(graph, linear(graph, block.gate, x));
  return linear(graph, block.down, multiply(graph, gate, linear(graph, block.up, x)));
}

// Each expert gets some of the rows, another number every time.
Var experts(Setup& setup, const TransformerShape& shape, const TransformerBlock& block,
            const Var& x) {
  Autograd& graph = setup.graph;
  Draw& draw = setup.session().draw();
  const std::uint64_t tokens = x.elements / shape.hidden;
  const Var likely = graph.apply({.inputs = {x},
                                  .elements = tokens * shape.experts,
                                  .width = 4,
                                  .saves = {x.data},
                                  .saves_output = true,
                                  .makes = {tokens * 16, tokens * 16},
                                  .parameters = {block.router}});
  Var sum = graph.apply({.inputs = {x}, .elements = x.elements});
  std::uint64_t left = 2 * tokens;
  for (std::uint64_t i = 0; i < shape.experts && left > 0; ++i) {
    const std::uint64_t share = std::max<std::uint64_t>(1, left / (shape.experts - i));
    const std::uint64_t count =
        i + 1 == shape.experts ? left : std::min(left, draw.between(share / 4, 2 * share));
    left -= count;
    if (count == 0) continue;
    const StreamScope scope(graph.session(), setup.branch());
    const Var rows = graph.apply(
        {.inputs = {x}, .elements = count * shape.hidden, .makes = {count * 8, count * 8}});
    const Var out = linear(graph, block.expert_down[i],
                           activate(graph, linear(graph, block.expert_up[i], rows)));
    const Var weighed =
        graph.apply({.inputs = {out, likely}, .elements = out.elements, .saves = {out.data}});
    sum = graph.apply({.inputs = {sum, weighed},
                       .elements = x.elements,
                       .saves = {},
                       .makes = {count * 8},
                       .in_place = true});
  }
  return sum;
}

}  // namespace

TransformerShape draw_shape(Setup& setup, std::uint64_t least_hidden, std::uint64_t most_hidden) {
  Draw& draw = setup.draw;
  TransformerShape shape;
  shape.head = draw.of<std::uint64_t>({64, 64, 80, 96, 128, 128});
  shape.heads = std::max<std::uint64_t>(
      2, setup.width(draw.octaves(least_hidden, most_hidden), 1) / shape.head);
  shape.hidden = shape.heads * shape.head;
  shape.key_heads = shape.heads;
  if (draw.percent(40) && shape.heads % 4 == 0) shape.key_heads = shape.heads / 4;
  shape.layers = setup.depth(draw.between(6, 32));
  shape.gated = draw.percent(60);
  shape.inner = shape.gated ? shape.hidden * 8 / 3 / 64 * 64 : shape.hidden * 4;
  shape.vocabulary = draw.of<std::uint64_t>({30522, 32000, 32128, 50257, 50304, 128256, 151936});
  shape.rotary = draw.percent(60);
  shape.fused = draw.percent(30);
  shape.flash = draw.percent(65);
  shape.drops = draw.percent(35);
  shape.tied = draw.percent(40);
  shape.checkpoints_every = draw.of<std::uint64_t>({0, 0, 0, 1, 1, 2});
  return shape;
}

Transformer make_transformer(Setup& setup, const TransformerShape& shape, std::uint64_t width,
                             bool frozen, const AdapterPlan& adapters, bool crosses) {
  Autograd& graph = setup.graph;
  Transformer model;
  model.shape = shape;
  const std::uint64_t hidden = shape.hidden;
  const bool biased = !shape.gated;
  const bool quantized = std::exchange(graph.quantized, false);
  model.table = graph.parameter(shape.vocabulary * hidden, width, frozen);
  graph.quantized = quantized;
  const auto layer = [&](std::uint64_t in, std::uint64_t out, bool adapted) {
    Dense made = dense(graph, in, out, width, biased, frozen);
    if (adapted && adapters.rank != 0) adapt(graph, made, adapters.rank, 4);
    return made;
  };
  for (std::uint64_t i = 0; i < shape.layers; ++i) {
    TransformerBlock block;
    const std::uint64_t keys = shape.key_heads * shape.head;
    if (shape.fused) {
      block.q = layer(hidden, hidden + 2 * keys, true);
    } else {
      block.q = layer(hidden, hidden, true);
      block.k = layer(hidden, keys, adapters.everywhere);
      block.v = layer(hidden, keys, true);
    }
    block.out = layer(hidden, hidden, adapters.everywhere);
    block.bytes = (2 * hidden * hidden + 2 * hidden * keys) * width;
    if (shape.experts != 0) {
      block.router = graph.parameter(hidden * shape.experts, width);
      for (std::uint64_t e = 0; e < shape.experts; ++e) {
        block.expert_up.push_back(layer(hidden, shape.inner, false));
        block.expert_down.push_back(layer(shape.inner, hidden, false));
      }
      block.bytes += 2 * shape.experts * hidden * shape.inner * width;
    } else {
      block.up = layer(hidden, shape.inner, adapters.everywhere);
      if (shape.gated) block.gate = layer(hidden, shape.inner, adapters.everywhere);
      block.down = layer(shape.inner, hidden, adapters.everywhere);
      block.bytes += (shape.gated ? 3 : 2) * hidden * shape.inner * width;
    }
    if (crosses) {
      block.cross_q = layer(hidden, hidden, false);
      block.cross_k = layer(hidden, hidden, false);
      block.cross_v = layer(hidden, hidden, false);
      block.cross_out = layer(hidden, hidden, false);
      block.cross_norm = graph.parameter(hidden, width, frozen);
    }
    block.first_norm = graph.parameter(hidden, width, frozen);
    block.second_norm = graph.parameter(hidden, width, frozen);
    model.blocks.push_back(block);
  }
  model.norm = graph.parameter(hidden, width, frozen);
  if (shape.tied) {
    model.head.in = hidden;
    model.head.out = shape.vocabulary;
    model.head.weight = model.table;
  } else {
    graph.quantized = false;
    model.head = dense(graph, hidden, shape.vocabulary, width, false, frozen);
    graph.quantized = quantized;
  }
  return model;
}

Var run_block(Setup& setup, const Transformer& model, const TransformerBlock& block, const Var& x,
              std::uint64_t batch, std::uint64_t length, std::uint64_t keys, const Var* memory) {
  Autograd& graph = setup.graph;
  const TransformerShape& shape = model.shape;
  gather(setup, block.bytes);
  const Var begin = passes_through(setup, x, block.bytes);
  const Var normed = layer_norm(graph, block.first_norm, begin, shape.hidden);
  AttentionShape look{batch, shape.heads, length, keys, shape.head};
  Var q = linear(graph, block.q, normed);
  Var k = q;
  Var v = q;
  if (shape.fused) {
    q = contiguous(graph, {q.data, q.node, batch * length * shape.hidden, q.width});
  } else {
    k = linear(graph, block.k, normed);
    v = linear(graph, block.v, normed);
  }
  if (shape.rotary) {
    q = rotate(graph, q);
    if (!shape.fused) k = rotate(graph, k);
  }
  if (shape.key_heads != shape.heads && !shape.fused) {  // repeated for the queries
    k = graph.apply({.inputs = {k}, .elements = q.elements});
    v = graph.apply({.inputs = {v}, .elements = q.elements});
  }
  const Var seen = attention(graph, q, k, v, look, shape.flash);
  const bool drops = shape.drops && graph.grad_enabled;
  Var mixed = linear(graph, block.out, contiguous(graph, seen));
  if (drops) mixed = dropout(graph, mixed);
  Var middle = add(graph, begin, mixed);
  if (memory != nullptr) {
    const StreamScope scope(graph.session(), setup.branch());
    const Var asked = layer_norm(graph, block.cross_norm, middle, shape.hidden);
    look.keys = memory->elements / shape.hidden / batch;
    const Var other =
        attention(graph, linear(graph, block.cross_q, asked), linear(graph, block.cross_k, *memory),
                  linear(graph, block.cross_v, *memory), look, shape.flash);
    middle = add(graph, middle, linear(graph, block.cross_out, other));
  }
  const Var inner = layer_norm(graph, block.second_norm, middle, shape.hidden);
  Var out;
  if (shape.experts != 0) {
    out = experts(setup, shape, block, inner);
  } else {
    const StreamScope scope(graph.session(), setup.branch());
    out = feed_forward(setup, shape, block, inner);
  }
  if (drops) out = dropout(graph, out);
  return passes_through(setup, add(graph, middle, out), block.bytes);
}

Var run_blocks(Setup& setup, const Transformer& model, Var x, std::uint64_t batch,
               std::uint64_t length, const Var* memory) {
  const std::uint64_t every = model.shape.checkpoints_every;
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const TransformerBlock& block = model.blocks[i];
    // What another model made is no input of a checkpoint here.
    if (every != 0 && i % every == 0 && memory == nullptr) {
      x = setup.graph.checkpoint(
          [&setup, &model, &block, batch, length](const Var& in) {
            return run_block(setup, model, block, in, batch, length, length);
          },
          x);
    } else {
      x = run_block(setup, model, block, x, batch, length, length, memory);
    }
  }
  return layer_norm(setup.graph, model.norm, x, model.shape.hidden);
}

Var run_transformer(Setup& setup, const Transformer& model, std::uint64_t batch,
                    std::uint64_t length, std::uint64_t rows) {
  const TransformerShape& shape = model.shape;
  const Tensor ids = setup.feed(batch * length * 8);
  const Tensor mask = setup.session().alloc(batch * length * 8);
  Tensor angles;
  if (shape.rotary) angles = setup.session().alloc(length * shape.head * 4);
  const Var x = embedding(setup.graph, model.table, batch * length, shape.hidden);
  Var last = run_blocks(setup, model, x, batch, length);
  if (rows != 0) {
    last = setup.graph.apply({.inputs = {last}, .elements = rows * shape.hidden});
  }
  return linear(setup.graph, model.head, last);
}

}  // namespace gapless::bench
