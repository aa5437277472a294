// Transformers: blocks of attention and a feed-forward part, with the choices that models differ
// in.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/corpus/layers.h"
#include "bench/corpus/setup.h"

namespace gapless::bench {

struct TransformerShape {
  std::uint64_t layers = 12;
  std::uint64_t hidden = 768;
  std::uint64_t heads = 12;
  std::uint64_t head = 64;
  std::uint64_t key_heads = 12;  // fewer: grouped queries
  std::uint64_t inner = 3072;    // of the feed-forward part
  std::uint64_t vocabulary = 50257;
  std::uint64_t experts = 0;
  bool gated = false;   // feed-forward part with a gate
  bool rotary = false;  // positions by rotation
  bool fused = false;   // one product for queries, keys and values
  bool flash = true;
  bool drops = false;                   // dropout while training
  bool tied = false;                    // the head is the embedding
  std::uint64_t checkpoints_every = 0;  // layers; 0: none
};

/// As models have them, some small, some large.
TransformerShape draw_shape(Setup& setup, std::uint64_t least_hidden, std::uint64_t most_hidden);

struct TransformerBlock {
  Parameter* first_norm = nullptr;
  Parameter* second_norm = nullptr;
  Parameter* cross_norm = nullptr;
  Dense q, k, v, out;
  Dense cross_q, cross_k, cross_v, cross_out;
  Dense up, gate, down;
  Parameter* router = nullptr;
  std::vector<Dense> expert_up, expert_down;
  std::uint64_t bytes = 0;  // of its weights
};

struct Transformer {
  TransformerShape shape;
  Parameter* table = nullptr;
  std::vector<TransformerBlock> blocks;
  Parameter* norm = nullptr;
  Dense head;
};

/// What the adapters of a low-rank fine-tuning are: rank 0 for none.
struct AdapterPlan {
  std::uint64_t rank = 0;
  bool everywhere = false;  // in the feed-forward part as well
};

Transformer make_transformer(Setup& setup, const TransformerShape& shape, std::uint64_t width,
                             bool frozen = false, const AdapterPlan& adapters = {},
                             bool crosses = false);

/// One block over batch x length rows; `keys`: how many each row looks back on, itself included.
/// `memory` is what a decoder of an encoder's output looks at.
Var run_block(Setup& setup, const Transformer& model, const TransformerBlock& block, const Var& x,
              std::uint64_t batch, std::uint64_t length, std::uint64_t keys,
              const Var* memory = nullptr);

/// All blocks, with checkpoints where the shape has them, and the last norm.
Var run_blocks(Setup& setup, const Transformer& model, Var x, std::uint64_t batch,
               std::uint64_t length, const Var* memory = nullptr);

/// From ids to logits; the rows of logits of the last `rows` only where that is not 0.
Var run_transformer(Setup& setup, const Transformer& model, std::uint64_t batch,
                    std::uint64_t length, std::uint64_t rows = 0);

}  // namespace gapless::bench
