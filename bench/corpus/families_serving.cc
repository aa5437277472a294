// Families that generate: forward passes alone, serving with key-value caches, and training by
// what was generated (RLHF).
#include "bench/corpus/setup.h"
#include "bench/corpus/transformer.h"

namespace gapless::bench {
namespace {

enum class CacheKind : std::uint8_t {
  concatenated,  // a token longer in every step: a new block, then the old one goes
  chunked,       // grows by many tokens at a time
  whole,         // as long as it may become, from the begin
};

// A sequence that is being generated, with the keys and values of all layers.
struct Sequence {
  std::uint64_t batch = 1;
  std::uint64_t tokens = 0;
  std::uint64_t end = 0;
  std::uint64_t room = 0;
  std::vector<Tensor> keys, values;
};

class Generator {
 public:
  Generator(Setup& setup, const Transformer& model, CacheKind kind)
      : setup_(setup), model_(model), kind_(kind) {}

  Sequence begin(std::uint64_t batch, std::uint64_t prompt, std::uint64_t more) {
    Sequence sequence{batch, prompt, prompt + more, 0, {}, {}};
    sequence.room = room_for(sequence);
    const TransformerShape& shape = model_.shape;
    Session& session = setup_.session();
    const std::uint64_t rows = batch * prompt;
    const Tensor ids = setup_.feed(rows * 8);
    Var x = embedding(setup_.graph, model_.table, rows, shape.hidden);
    for (const TransformerBlock& block : model_.blocks) {
      sequence.keys.push_back(session.alloc(cache_bytes(sequence)));
      sequence.values.push_back(session.alloc(cache_bytes(sequence)));
      x = run_block(setup_, model_, block, x, batch, prompt, prompt);
    }
    choose(batch, layer_norm(setup_.graph, model_.norm, x, shape.hidden));
    return sequence;
  }

  void step(Sequence& sequence) {
    const TransformerShape& shape = model_.shape;
    Session& session = setup_.session();
    ++sequence.tokens;
    const bool full = sequence.tokens > sequence.room;
    if (full) sequence.room = room_for(sequence);
    const std::uint64_t width = setup_.graph.width;
    const std::uint64_t row = sequence.batch * shape.hidden * width;
    Tensor x = session.alloc(row);
    for (std::size_t i = 0; i < model_.blocks.size(); ++i) {
      const Tensor normed = session.alloc(row);
      const Tensor query = session.alloc(row);
      const Tensor key = session.alloc(row);
      const Tensor value = session.alloc(row);
      if (full) {
        sequence.keys[i] = session.alloc(cache_bytes(sequence));
        sequence.values[i] = session.alloc(cache_bytes(sequence));
      }
      if (!shape.flash) {
        session.scratch(sequence.batch * shape.heads * sequence.tokens * 4);
      }
      const Tensor seen = session.alloc(row);
      const Tensor middle = session.alloc(row);
      const Tensor inner = session.alloc(sequence.batch * shape.inner * width);
      session.scratch(sequence.batch * shape.inner * width);
      x = session.alloc(row);
    }
    choose(sequence.batch, {x, nullptr, sequence.batch * shape.hidden, width});
  }

 private:
  [[nodiscard]] std::uint64_t room_for(const Sequence& sequence) const {
    constexpr std::uint64_t kChunk = 128;
    switch (kind_) {
      case CacheKind::concatenated:
        return sequence.tokens;
      case CacheKind::chunked:
        return (sequence.tokens + kChunk - 1) / kChunk * kChunk;
      case CacheKind::whole:
        break;
    }
    return sequence.end;
  }
  [[nodiscard]] std::uint64_t cache_bytes(const Sequence& sequence) const {
    return sequence.batch * sequence.room * model_.shape.key_heads * model_.shape.head *
           setup_.graph.width;
  }
  // The next token of each sequence.
  void choose(std::uint64_t batch, const Var& last) {
    Session& session = setup_.session();
    const Var row = setup_.graph.apply({.inputs = {last}, .elements = batch * model_.shape.hidden});
    const Var logits = linear(setup_.graph, model_.head, row);
    const Tensor likely = session.alloc(logits.elements * 4);
    session.scratch(logits.elements * 4);
    const Tensor sorted = session.alloc(logits.elements * 12);
    session.scratch(batch * 8);
  }

  Setup& setup_;
  const Transformer& model_;
  CacheKind kind_;
};

TransformerShape generating_shape(Setup& setup, std::uint64_t most_layers) {
  TransformerShape shape = draw_shape(setup, 1024, 5120);
  shape.layers = std::min(shape.layers, most_layers);
  shape.drops = false;
  shape.checkpoints_every = 0;
  setup.graph.width = 2;
  return shape;
}

}  // namespace

void run_forward(Setup& setup) {
  Draw& draw = setup.draw;
  const std::uint64_t width = setup.choose_precision();
  TransformerShape shape = draw_shape(setup, 512, 4096);
  shape.checkpoints_every = 0;
  shape.drops = false;
  const std::uint64_t batch = setup.batch(draw.octaves(1, 64));
  const std::uint64_t most = draw.of<std::uint64_t>({128, 512, 1024, 2048});
  const bool varies = draw.percent(60);
  const bool keeps = draw.percent(40);  // what each batch came to
  // A program that forgot no_grad holds a graph through the pass.
  setup.graph.grad_enabled = draw.percent(25);
  const Transformer model = make_transformer(setup, shape, width);
  std::vector<Tensor> kept;
  Session& session = setup.session();
  for (std::uint64_t step = 0; step < 200 && session.events() < setup.limit.events * 2 / 3;
       ++step) {
    const std::uint64_t length = varies ? session.draw().between(most / 8, most) : most;
    const std::uint64_t here = varies ? session.draw().between(batch / 2 + 1, batch) : batch;
    const Var logits = run_transformer(setup, model, here, length, draw.percent(50) ? here : 0);
    if (keeps) kept.push_back(session.alloc(here * shape.hidden * 4));
    session.scratch(here * 8);
    setup.graph.drop_casts();
  }
}

void run_serving(Setup& setup) {
  Draw& draw = setup.draw;
  const TransformerShape shape = generating_shape(setup, 12);
  const CacheKind kind = draw.of({CacheKind::concatenated, CacheKind::concatenated,
                                  CacheKind::chunked, CacheKind::chunked, CacheKind::whole});
  const std::uint64_t slots = setup.batch(draw.octaves(2, 16));
  const std::uint64_t batch = draw.of<std::uint64_t>({1, 1, 2, 4, 8, 16});
  const std::uint64_t longest = draw.of<std::uint64_t>({256, 1024, 2048, 4096});
  const std::uint64_t answers = draw.of<std::uint64_t>({8, 16, 32, 64});
  setup.graph.grad_enabled = false;
  const Transformer model = make_transformer(setup, shape, 2);
  Generator generator(setup, model, kind);
  Session& session = setup.session();
  std::vector<Sequence> active;
  while (session.events() < setup.limit.events * 4 / 5) {
    if (active.size() < slots) {
      const StreamScope scope(session, setup.branch());
      active.push_back(generator.begin(session.draw().between(1, batch),
                                       session.draw().octaves(16, longest),
                                       session.draw().octaves(2, answers)));
    }
    for (Sequence& sequence : active) generator.step(sequence);
    std::erase_if(active, [](const Sequence& one) { return one.tokens >= one.end; });
  }
}

void run_rlhf(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const TransformerShape shape = generating_shape(setup, 8);
  const CacheKind kind = draw.of({CacheKind::concatenated, CacheKind::chunked, CacheKind::whole});
  const std::uint64_t batch = setup.batch(draw.octaves(4, 64));
  const std::uint64_t longest = draw.of<std::uint64_t>({64, 128, 256, 512, 1024});
  const std::uint64_t answers = draw.of<std::uint64_t>({4, 8, 16, 32});
  TransformerShape small = shape;
  if (draw.percent(50)) small.layers = (shape.layers + 1) / 2;
  const std::uint64_t chunks = draw.of<std::uint64_t>({1, 2, 4});
  const Transformer actor = make_transformer(setup, shape, 2);
  const std::size_t split = graph.parameters().size();
  const Transformer critic = make_transformer(setup, small, 2);
  const std::size_t end = graph.parameters().size();
  const Transformer reference = make_transformer(setup, shape, 2, true);
  const Transformer reward = make_transformer(setup, small, 2, true);
  TrainingPlan plan = draw_plan(draw);
  plan.accumulates = chunks;
  plan.evaluates_every = 0;
  Optimizer acting(graph, trained(graph, 0, split), plan);
  Optimizer judging(graph, trained(graph, split, end), plan);
  Generator generator(setup, actor, kind);
  Session& session = setup.session();
  std::uint64_t length = 1;
  std::uint64_t left = 0;  // chunks of what was generated
  std::vector<Tensor> kept;
  train(graph, acting, plan, setup.limit, [&](bool) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, batch / chunks);
    if (left == 0) {
      left = chunks;
      kept.clear();
      graph.grad_enabled = false;
      const std::uint64_t prompt = session.draw().between(longest / 4, longest);
      const std::uint64_t answer = session.draw().between(answers / 2 + 1, answers);
      length = prompt + answer;
      {
        Sequence sequence = generator.begin(batch, prompt, answer);
        while (sequence.tokens < sequence.end) generator.step(sequence);
      }
      for (const Transformer* model : {&actor, &reference, &critic, &reward}) {
        const Var logits = run_transformer(setup, *model, batch, length,
                                           model == &critic || model == &reward ? batch : 0);
        kept.push_back(session.alloc(batch * length * 4));
        session.scratch(logits.elements * 4);
      }
      graph.grad_enabled = true;
    }
    --left;
    const Var value = run_transformer(setup, critic, rows, length, rows);
    graph.backward(mean_loss(graph, value));
    if (left == 0) {
      judging.step();
      judging.zero_grad();
    }
    return cross_entropy(graph, run_transformer(setup, actor, rows, length), true);
  });
}

}  // namespace gapless::bench
