// Families of language models in training.
#include "bench/corpus/setup.h"
#include "bench/corpus/transformer.h"

namespace gapless::bench {
namespace {

// A length for each batch: always the same, or another one within a range.
class Lengths {
 public:
  Lengths(Setup& setup, std::uint64_t most, std::uint64_t chance_percent)
      : draw_(setup.session().draw()), most_(most), varies_(setup.draw.percent(chance_percent)) {
    least_ = most / setup.draw.of<std::uint64_t>({2, 4, 8});
    multiple_ = setup.draw.of<std::uint64_t>({1, 1, 8, 64});
  }
  std::uint64_t next() {
    if (!varies_) return most_;
    const std::uint64_t drawn = draw_.between(std::max<std::uint64_t>(1, least_), most_);
    return (drawn + multiple_ - 1) / multiple_ * multiple_;
  }

 private:
  Draw& draw_;
  std::uint64_t most_;
  std::uint64_t least_ = 1;
  std::uint64_t multiple_ = 1;
  bool varies_;
};

void train_language_model(Setup& setup, const Transformer& model, std::uint64_t batch,
                          Lengths& lengths, bool in_float) {
  const TrainingPlan plan = draw_plan(setup.draw);
  Optimizer optimizer(setup.graph, trained(setup.graph), plan);
  train(setup.graph, optimizer, plan, setup.limit, [&](bool) {
    return cross_entropy(setup.graph, run_transformer(setup, model, batch, lengths.next()),
                         in_float);
  });
}

}  // namespace

void run_decoder(Setup& setup) {
  const std::uint64_t width = setup.choose_precision();
  const TransformerShape shape = draw_shape(setup, 384, 4096);
  const std::uint64_t batch = setup.batch(setup.draw.octaves(1, 64));
  Lengths lengths(setup, setup.draw.of<std::uint64_t>({128, 256, 512, 512, 1024, 1024, 2048, 4096}),
                  40);
  const bool in_float = setup.draw.percent(70);
  const Transformer model = make_transformer(setup, shape, width);
  train_language_model(setup, model, batch, lengths, in_float);
}

void run_lora(Setup& setup) {
  Draw& draw = setup.draw;
  setup.graph.width = 2;
  const TransformerShape shape = draw_shape(setup, 1024, 5120);
  setup.graph.quantized = draw.percent(50);
  const AdapterPlan adapters{draw.of<std::uint64_t>({4, 8, 16, 16, 32, 64}), draw.percent(50)};
  const std::uint64_t batch = setup.batch(draw.octaves(1, 16));
  Lengths lengths(setup, draw.of<std::uint64_t>({256, 512, 1024, 2048, 4096}), 80);
  const Transformer model = make_transformer(setup, shape, 2, true, adapters);
  train_language_model(setup, model, batch, lengths, true);
}

void run_encoder_decoder(Setup& setup) {
  Draw& draw = setup.draw;
  const std::uint64_t width = setup.choose_precision();
  TransformerShape shape = draw_shape(setup, 384, 2048);
  shape.layers = (shape.layers + 1) / 2;
  const std::uint64_t batch = setup.batch(draw.octaves(4, 64));
  Lengths source(setup, draw.of<std::uint64_t>({128, 256, 512, 1024}), 85);
  Lengths target(setup, draw.of<std::uint64_t>({64, 128, 256, 512}), 85);
  const Transformer encoder = make_transformer(setup, shape, width);
  const Transformer decoder = make_transformer(setup, shape, width, false, {}, true);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(setup.graph, trained(setup.graph), plan);
  train(setup.graph, optimizer, plan, setup.limit, [&](bool) {
    const std::uint64_t from = source.next();
    const std::uint64_t to = target.next();
    const Tensor ids = setup.feed(batch * from * 8);
    const Tensor labels = setup.feed(batch * to * 8);
    const Var x = embedding(setup.graph, encoder.table, batch * from, shape.hidden);
    const Var memory = run_blocks(setup, encoder, x, batch, from);
    const Var y = embedding(setup.graph, decoder.table, batch * to, shape.hidden);
    const Var last = run_blocks(setup, decoder, y, batch, to, &memory);
    return cross_entropy(setup.graph, linear(setup.graph, decoder.head, last), true);
  });
}

void run_experts(Setup& setup) {
  Draw& draw = setup.draw;
  const std::uint64_t width = setup.choose_precision();
  TransformerShape shape = draw_shape(setup, 384, 2048);
  shape.experts = draw.of<std::uint64_t>({4, 8, 8, 16});
  shape.layers = std::max<std::uint64_t>(2, shape.layers / 3);
  shape.checkpoints_every = 0;  // who gets what must not be drawn twice
  const std::uint64_t batch = setup.batch(draw.octaves(1, 32));
  Lengths lengths(setup, draw.of<std::uint64_t>({256, 512, 1024, 2048}), 30);
  const Transformer model = make_transformer(setup, shape, width);
  train_language_model(setup, model, batch, lengths, true);
}

}  // namespace gapless::bench
