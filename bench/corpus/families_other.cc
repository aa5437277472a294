// Families that are neither of text nor of images: embedding tables, recurrences, graphs.
#include "bench/corpus/layers.h"
#include "bench/corpus/setup.h"

namespace gapless::bench {
namespace {

// Some linear layers with an activation between them.
using Perceptron = std::vector<Dense>;

Perceptron make_perceptron(Setup& setup, std::uint64_t in, std::uint64_t inner, std::uint64_t out,
                           std::uint64_t layers, std::uint64_t width) {
  Perceptron made;
  for (std::uint64_t i = 0; i < layers; ++i) {
    made.push_back(dense(setup.graph, i == 0 ? in : inner, i + 1 == layers ? out : inner, width));
  }
  return made;
}

Var run_perceptron(Setup& setup, const Perceptron& layers, Var x) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = linear(setup.graph, layers[i], x);
    if (i + 1 < layers.size()) x = activate_in_place(setup.graph, x);
  }
  return x;
}

}  // namespace

void run_recommender(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const std::uint64_t width = setup.choose_precision();
  const std::uint64_t features = setup.depth(draw.between(8, 48));
  const std::uint64_t row = draw.of<std::uint64_t>({16, 32, 64, 128});
  const std::uint64_t batch = setup.batch(draw.octaves(1024, 65536));
  const bool sparse = draw.percent(60);
  struct Table {
    Parameter* rows = nullptr;
    std::uint64_t count = 0;
    std::uint64_t hot = 1;  // ids of a sample, at most
    std::vector<Tensor> states;
  };
  std::vector<Table> tables;
  for (std::uint64_t i = 0; i < features; ++i) {
    const std::uint64_t count = setup.width(draw.octaves(64, 8 << 20), 1);
    tables.push_back({graph.parameter(count * row, 4), count, draw.octaves(1, 16), {}});
  }
  const std::size_t split = sparse ? graph.parameters().size() : 0;
  const Perceptron below = make_perceptron(setup, 13, 512, row, 3, width);
  const std::uint64_t pairs = (features + 1) * features / 2;
  const Perceptron above = make_perceptron(setup, row + pairs, draw.of<std::uint64_t>({512, 1024}),
                                           1, draw.between(3, 6), width);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(graph, trained(graph, split), plan);
  train(graph, optimizer, plan, setup.limit, [&](bool trains) {
    Session& session = setup.session();
    const Var dense_features{setup.feed(batch * 13 * 4), nullptr, batch * 13, 4};
    std::vector<Tensor> gradients;
    Var together = run_perceptron(setup, below, dense_features);
    std::vector<Var> rows = {together};
    for (Table& table : tables) {
      const StreamScope scope(session, setup.branch());
      const std::uint64_t ids = batch * session.draw().between((table.hot + 1) / 2, table.hot);
      const Tensor indices = setup.feed(ids * 8);
      const Tensor offsets = session.alloc(batch * 8);
      Operator look{.inputs = {{indices, nullptr, ids, 8}},
                    .elements = batch * row,
                    .width = 4,
                    .saves = {indices, offsets},
                    .makes = {ids * 8, batch * 8},
                    .backward_scratch = {ids * 8, ids * 8, ids * 4}};
      if (!sparse) look.parameters.push_back(table.rows);
      if (trains && sparse) {
        // The gradient's rows are those that the batch names; so are the optimizer's temporaries.
        const std::uint64_t distinct =
            std::min(table.count, std::max<std::uint64_t>(1, session.draw().between(ids / 4, ids)));
        look.backward_scratch.push_back(distinct * row * 4);
        gradients.push_back(session.alloc(distinct * 8));
        gradients.push_back(session.alloc(distinct * row * 4));
        session.scratch(distinct * row * 4);
        if (table.states.empty()) table.states.push_back(session.alloc(table.count * 4));
      }
      rows.push_back(graph.apply(look));
    }
    const Var stacked = graph.apply({.inputs = rows, .elements = batch * (features + 1) * row});
    const Var products = graph.apply({.inputs = {stacked},
                                      .elements = batch * (features + 1) * (features + 1),
                                      .saves = {stacked.data}});
    const Var chosen =
        graph.apply({.inputs = {products}, .elements = batch * pairs, .makes = {pairs * 16}});
    const Var joined =
        graph.apply({.inputs = {together, chosen}, .elements = batch * (row + pairs)});
    together = {};
    rows.clear();
    return mean_loss(graph, run_perceptron(setup, above, joined));
  });
}

void run_recurrent(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const std::uint64_t width = setup.choose_precision();
  const std::uint64_t hidden = setup.width(draw.octaves(256, 2048), 64);
  const std::uint64_t layers = std::min<std::uint64_t>(setup.depth(draw.between(1, 6)), 6);
  const std::uint64_t batch = setup.batch(draw.octaves(16, 512));
  const std::uint64_t vocabulary = draw.of<std::uint64_t>({128, 1000, 10000, 33278});
  const std::uint64_t longest = draw.of<std::uint64_t>({35, 70, 128, 256, 512});
  const bool varies = draw.percent(60);
  const bool by_cells = draw.percent(40);  // written in Python, a few operators for each token
  Parameter* const table = graph.parameter(vocabulary * hidden, width);
  std::vector<Dense> from_below, from_before;
  for (std::uint64_t l = 0; l < layers; ++l) {
    from_below.push_back(dense(graph, hidden, 4 * hidden, width));
    from_before.push_back(dense(graph, hidden, 4 * hidden, width));
  }
  const Dense head = dense(graph, hidden, vocabulary, width);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(graph, trained(graph), plan);
  train(graph, optimizer, plan, setup.limit, [&](bool) {
    std::uint64_t length =
        varies ? setup.session().draw().between(longest / 4 + 1, longest) : longest;
    if (by_cells) length = std::min<std::uint64_t>(length, 32);
    const std::uint64_t numbers = batch * length * hidden;
    const Tensor ids = setup.feed(batch * length * 8);
    Var x = embedding(graph, table, batch * length, hidden);
    for (std::uint64_t l = 0; l < layers; ++l) {
      if (!by_cells) {
        // The library's: what it keeps for the backward pass, and a workspace.
        x = graph.apply({.inputs = {x},
                         .elements = numbers,
                         .saves = {x.data},
                         .saves_output = true,
                         .makes = {5 * numbers * graph.width, batch * hidden * graph.width,
                                   batch * hidden * graph.width},
                         .scratch = {batch * hidden * 16 + 64 * 1024},
                         .backward_scratch = {batch * hidden * 32 + 64 * 1024, 4 * numbers},
                         .parameters = {from_below[l].weight, from_before[l].weight,
                                        from_below[l].bias, from_before[l].bias}});
        x = dropout(graph, x);
        continue;
      }
      Var state{setup.session().alloc(batch * hidden * 4), nullptr, batch * hidden, 4};
      Var cell{setup.session().alloc(batch * hidden * 4), nullptr, batch * hidden, 4};
      const Var projected = linear(graph, from_below[l], x);
      std::vector<Var> outputs;
      for (std::uint64_t t = 0; t < length; ++t) {
        const StreamScope scope(setup.session(), t % 8 == 0 ? setup.branch() : std::uint16_t{0});
        Var gates = linear(graph, from_before[l], state);
        gates = graph.apply({.inputs = {gates, projected}, .elements = 4 * batch * hidden});
        const Var opened =
            graph.apply({.inputs = {gates}, .elements = 4 * batch * hidden, .saves_output = true});
        cell = graph.apply({.inputs = {opened, cell},
                            .elements = batch * hidden,
                            .saves = {opened.data, cell.data}});
        state = graph.apply({.inputs = {opened, cell},
                             .elements = batch * hidden,
                             .saves = {cell.data},
                             .saves_output = true});
        outputs.push_back(state);
      }
      x = graph.apply({.inputs = outputs, .elements = numbers});
    }
    return cross_entropy(graph, linear(graph, head, x), true);
  });
}

void run_graph(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const std::uint64_t width = setup.choose_precision();
  const std::uint64_t hidden = setup.width(draw.of<std::uint64_t>({64, 128, 256, 512}), 16);
  const std::uint64_t layers = setup.depth(draw.between(3, 16));
  const std::uint64_t nodes_most = setup.batch(draw.octaves(4096, 262144));
  const std::uint64_t degree = draw.between(3, 24);
  const bool gathers_edges = draw.percent(60);  // a perceptron over each edge
  const Perceptron in = make_perceptron(setup, 100, hidden, hidden, 2, width);
  struct GraphLayer {
    Perceptron edge, node;
    Parameter* norm = nullptr;
  };
  std::vector<GraphLayer> made;
  for (std::uint64_t l = 0; l < layers; ++l) {
    made.push_back({make_perceptron(setup, 2 * hidden, hidden, hidden, 2, width),
                    make_perceptron(setup, 2 * hidden, hidden, hidden, 2, width),
                    graph.parameter(hidden, width)});
  }
  const Dense head = dense(graph, hidden, 47, width);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(graph, trained(graph), plan);
  train(graph, optimizer, plan, setup.limit, [&](bool) {
    Draw& sizes = setup.session().draw();
    const std::uint64_t nodes = sizes.between(nodes_most / 3 + 1, nodes_most);
    const std::uint64_t edges = nodes * degree / 2 + sizes.between(0, nodes * degree / 2);
    const Tensor ends = setup.feed(edges * 16);
    const Var features{setup.feed(nodes * 400), nullptr, nodes * 100, 4};
    const Tensor degrees = setup.session().alloc(nodes * 4);
    Var x = run_perceptron(setup, in, features);
    for (const GraphLayer& layer : made) {
      Var messages = graph.apply({.inputs = {x}, .elements = edges * hidden, .saves = {ends}});
      if (gathers_edges) {
        const StreamScope scope(setup.session(), setup.branch());
        const Var both = graph.apply({.inputs = {x, messages}, .elements = edges * 2 * hidden});
        messages = run_perceptron(setup, layer.edge, both);
      }
      const Var gathered = graph.apply({.inputs = {messages},
                                        .elements = nodes * hidden,
                                        .saves = {ends},
                                        .makes = {nodes * hidden * 8 / 4},
                                        .scratch = {edges * 8}});
      messages = {};
      const Var joined = concatenate(graph, x, gathered);
      const Var moved = run_perceptron(setup, layer.node, joined);
      x = normalize(graph, layer.norm, add(graph, x, moved), hidden);
      x = dropout(graph, activate(graph, x));
    }
    return cross_entropy(graph, linear(graph, head, x), false);
  });
}

}  // namespace gapless::bench
