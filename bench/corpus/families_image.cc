// Families of models of images: convolutions with workspaces, and transformers over patches.
#include "bench/corpus/setup.h"
#include "bench/corpus/transformer.h"

namespace gapless::bench {
namespace {

struct Conv {
  Parameter* weight = nullptr;
  Parameter* gain = nullptr;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t kernel = 3;
};

Conv make_conv(Setup& setup, std::uint64_t in, std::uint64_t out, std::uint64_t kernel,
               std::uint64_t width, bool frozen = false) {
  return {setup.graph.parameter(in * out * kernel * kernel, width, frozen),
          setup.graph.parameter(2 * out, width, frozen), in, out, kernel};
}

struct Image {
  Var pixels;
  std::uint64_t batch = 1;
  std::uint64_t channels = 3;
  std::uint64_t side = 1;
};

Image run_conv(Setup& setup, const Conv& conv, const Image& image, std::uint64_t stride = 1) {
  const std::uint64_t side = std::max<std::uint64_t>(1, image.side / stride);
  return {convolve(setup.graph, conv.weight, image.pixels,
                   {image.batch, conv.in, conv.out, side, side, stride, conv.kernel}),
          image.batch, conv.out, side};
}

Image run_unit(Setup& setup, const Conv& conv, const Image& image, std::uint64_t stride = 1) {
  Image out = run_conv(setup, conv, image, stride);
  out.pixels =
      activate_in_place(setup.graph, normalize(setup.graph, conv.gain, out.pixels, out.channels));
  return out;
}

struct Residual {
  Conv first, second, third, shortcut;
  bool bottleneck = false;
  std::uint64_t stride = 1;
};

Image run_residual(Setup& setup, const Residual& unit, const Image& image) {
  Image out = run_unit(setup, unit.first, image, unit.bottleneck ? 1 : unit.stride);
  if (unit.bottleneck) out = run_unit(setup, unit.second, out, unit.stride);
  out = run_conv(setup, unit.bottleneck ? unit.third : unit.second, out);
  const Conv& last = unit.bottleneck ? unit.third : unit.second;
  out.pixels = normalize(setup.graph, last.gain, out.pixels, out.channels);
  Image beside = image;
  if (unit.shortcut.weight != nullptr) {
    const StreamScope scope(setup.session(), setup.branch());
    beside = run_conv(setup, unit.shortcut, image, unit.stride);
    beside.pixels = normalize(setup.graph, unit.shortcut.gain, beside.pixels, beside.channels);
  }
  out.pixels = activate_in_place(setup.graph, add(setup.graph, out.pixels, beside.pixels));
  return out;
}

Residual make_residual(Setup& setup, std::uint64_t in, std::uint64_t out, bool bottleneck,
                       std::uint64_t stride, std::uint64_t width) {
  Residual unit;
  unit.bottleneck = bottleneck;
  unit.stride = stride;
  const std::uint64_t inner = bottleneck ? out / 4 : out;
  unit.first = make_conv(setup, in, inner, bottleneck ? 1 : 3, width);
  unit.second = make_conv(setup, inner, bottleneck ? inner : out, 3, width);
  if (bottleneck) unit.third = make_conv(setup, inner, out, 1, width);
  if (in != out || stride != 1) unit.shortcut = make_conv(setup, in, out, 1, width);
  return unit;
}

void train_residual_network(Setup& setup) {
  Draw& draw = setup.draw;
  const std::uint64_t width = setup.choose_precision();
  const bool bottleneck = draw.percent(60);
  const std::uint64_t base = setup.width(draw.of<std::uint64_t>({64, 64, 96, 128}), 16);
  const std::uint64_t batch = setup.batch(draw.octaves(8, 256));
  const std::uint64_t side = draw.of<std::uint64_t>({64, 128, 224, 224, 256, 384});
  const bool many_sizes = draw.percent(30);
  const Conv stem = make_conv(setup, 3, base, 7, width);
  std::vector<Residual> units;
  std::uint64_t channels = base;
  for (std::uint64_t stage = 0; stage < 4; ++stage) {
    const std::uint64_t out = (base << stage) * (bottleneck ? 4 : 1);
    const std::uint64_t count = setup.depth(draw.between(2, stage == 2 ? 23 : 6));
    for (std::uint64_t i = 0; i < count; ++i) {
      units.push_back(
          make_residual(setup, channels, out, bottleneck, i == 0 && stage != 0 ? 2 : 1, width));
      channels = out;
    }
  }
  const Dense head = dense(setup.graph, channels, 1000, width);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(setup.graph, trained(setup.graph), plan);
  train(setup.graph, optimizer, plan, setup.limit, [&](bool) {
    const std::uint64_t pixels =
        many_sizes ? side + 32 * setup.session().draw().between(0, 4) : side;
    const Tensor labels = setup.feed(batch * 8);
    Image image{
        {setup.feed(batch * 3 * pixels * pixels * 4), nullptr, batch * 3 * pixels * pixels, 4},
        batch,
        3,
        pixels};
    image = run_unit(setup, stem, image, 2);
    image.side /= 2;
    image.pixels =
        setup.graph.apply({.inputs = {image.pixels},
                           .elements = batch * image.channels * image.side * image.side,
                           .saves = {image.pixels.data},
                           .makes = {batch * image.channels * image.side * image.side * 8}});
    for (const Residual& unit : units) image = run_residual(setup, unit, image);
    const Var mean = setup.graph.apply({.inputs = {image.pixels}, .elements = batch * channels});
    return cross_entropy(setup.graph, linear(setup.graph, head, mean), true);
  });
}

void train_patch_transformer(Setup& setup) {
  Draw& draw = setup.draw;
  const std::uint64_t width = setup.choose_precision();
  TransformerShape shape = draw_shape(setup, 384, 1280);
  shape.vocabulary = 1000;
  shape.gated = false;
  shape.rotary = false;
  shape.inner = 4 * shape.hidden;
  const std::uint64_t batch = setup.batch(draw.octaves(8, 256));
  const std::uint64_t side = draw.of<std::uint64_t>({224, 224, 384});
  const std::uint64_t patch = draw.of<std::uint64_t>({14, 16, 32});
  const std::uint64_t patches = (side / patch) * (side / patch) + 1;
  const Transformer model = make_transformer(setup, shape, width);
  const Conv cut = make_conv(setup, 3, shape.hidden, patch, width);
  const TrainingPlan plan = draw_plan(draw);
  Optimizer optimizer(setup.graph, trained(setup.graph), plan);
  train(setup.graph, optimizer, plan, setup.limit, [&](bool) {
    const Var pixels{setup.feed(batch * 3 * side * side * 4), nullptr, batch * 3 * side * side, 4};
    const Var cuts = convolve(setup.graph, cut.weight, pixels,
                              {batch, 3, shape.hidden, side / patch, side / patch, patch, patch});
    const Var x = setup.graph.apply({.inputs = {cuts}, .elements = batch * patches * shape.hidden});
    const Var last = run_blocks(setup, model, x, batch, patches);
    const Var first = setup.graph.apply({.inputs = {last}, .elements = batch * shape.hidden});
    return cross_entropy(setup.graph, linear(setup.graph, model.head, first), true);
  });
}

// One level of a U-Net: units on the way down, as many on the way up, attention where it is small.
struct Level {
  std::vector<Residual> down, up;
  Dense q, k, v, out;
  Parameter* norm = nullptr;
  bool attends = false;
};

Image attend(Setup& setup, const Level& level, const Image& image) {
  Autograd& graph = setup.graph;
  const Var normed = normalize(graph, level.norm, image.pixels, image.channels);
  const std::uint64_t places = image.side * image.side;
  const std::uint64_t heads = std::max<std::uint64_t>(1, image.channels / 64);
  const Var seen =
      attention(graph, linear(graph, level.q, normed), linear(graph, level.k, normed),
                linear(graph, level.v, normed),
                {image.batch, heads, places, places, image.channels / heads}, places > 1024);
  return {add(graph, image.pixels, linear(graph, level.out, contiguous(graph, seen))), image.batch,
          image.channels, image.side};
}

}  // namespace

void run_vision(Setup& setup) {
  setup.draw.percent(65) ? train_residual_network(setup) : train_patch_transformer(setup);
}

void run_diffusion(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const std::uint64_t width = setup.choose_precision();
  const std::uint64_t base = setup.width(draw.of<std::uint64_t>({96, 128, 192, 256, 320}), 64);
  const std::uint64_t depth = setup.depth(draw.between(1, 3));
  const std::uint64_t batch = setup.batch(draw.octaves(2, 64));
  const std::uint64_t side = draw.of<std::uint64_t>({32, 64, 64, 96, 128});
  const bool many_sizes = draw.percent(30);
  const bool encodes = draw.percent(60);  // by a frozen model, to what is trained on
  const Conv encoder = make_conv(setup, 3, 128, 3, 2, true);
  const Conv encoder_end = make_conv(setup, 128, 8, 3, 2, true);
  const Conv in = make_conv(setup, 4, base, 3, width);
  std::vector<Level> levels;
  std::uint64_t channels = base;
  for (std::uint64_t l = 0; l < 4; ++l) {
    const std::uint64_t out = base * std::min<std::uint64_t>(l + 1, 4);
    Level level;
    for (std::uint64_t i = 0; i < depth; ++i) {
      level.down.push_back(make_residual(setup, channels, out, false, 1, width));
      channels = out;
      level.up.push_back(make_residual(setup, 2 * out, out, false, 1, width));
    }
    level.attends = l > 0;
    if (level.attends) {
      level.norm = graph.parameter(2 * out, width);
      level.q = dense(graph, out, out, width);
      level.k = dense(graph, out, out, width);
      level.v = dense(graph, out, out, width);
      level.out = dense(graph, out, out, width);
    }
    levels.push_back(std::move(level));
  }
  std::vector<Conv> narrows;
  for (std::uint64_t l = 0; l < 4; ++l) {
    const std::uint64_t from = base * std::min<std::uint64_t>(l + 2, 4);
    narrows.push_back(make_conv(setup, from, base * std::min<std::uint64_t>(l + 1, 4), 3, width));
  }
  const Conv out = make_conv(setup, base, 4, 3, width);
  TrainingPlan plan = draw_plan(draw);
  plan.averages = draw.percent(60);
  Optimizer optimizer(graph, trained(graph), plan);
  train(graph, optimizer, plan, setup.limit, [&](bool) {
    const std::uint64_t here = many_sizes ? side + 8 * setup.session().draw().between(0, 6) : side;
    Tensor latents;
    if (encodes) {
      const bool before = std::exchange(graph.grad_enabled, false);
      const std::uint64_t pixels = batch * 3 * 64 * here * here;
      Image image{{setup.feed(pixels * 4), nullptr, pixels, 4}, batch, 3, 8 * here};
      image = run_unit(setup, encoder, image, 2);
      image = run_conv(setup, encoder_end, image, 4);
      graph.grad_enabled = before;
    }
    latents = setup.feed(batch * 4 * here * here * graph.width);
    const Tensor noise = setup.session().alloc(batch * 4 * here * here * graph.width);
    const Tensor times = setup.session().alloc(batch * 8);
    Image image{{latents, nullptr, batch * 4 * here * here, graph.width}, batch, 4, here};
    image = run_conv(setup, in, image);
    std::vector<Image> skips;
    for (std::size_t l = 0; l < levels.size(); ++l) {
      for (const Residual& unit : levels[l].down) {
        image = run_residual(setup, unit, image);
        if (levels[l].attends) image = attend(setup, levels[l], image);
        skips.push_back(image);
      }
      if (l + 1 < levels.size()) {
        image.side = std::max<std::uint64_t>(1, image.side / 2);
        image.pixels =
            resample(graph, image.pixels, batch * image.channels * image.side * image.side);
      }
    }
    for (std::size_t l = levels.size(); l-- > 0;) {
      if (l + 1 < levels.size()) {
        image.side = skips.back().side;
        image.pixels =
            resample(graph, image.pixels, batch * image.channels * image.side * image.side);
        image = run_conv(setup, narrows[l], image);
      }
      for (const Residual& unit : levels[l].up) {
        image.pixels = concatenate(graph, image.pixels, skips.back().pixels);
        image.channels += skips.back().channels;
        skips.pop_back();
        image = run_residual(setup, unit, image);
        if (levels[l].attends) image = attend(setup, levels[l], image);
      }
    }
    return mean_loss(graph, run_conv(setup, out, image).pixels);
  });
}

void run_adversarial(Setup& setup) {
  Draw& draw = setup.draw;
  Autograd& graph = setup.graph;
  const std::uint64_t width = setup.choose_precision();
  const std::uint64_t base = setup.width(draw.of<std::uint64_t>({32, 48, 64, 96}), 16);
  const std::uint64_t levels = draw.between(3, 6);
  const std::uint64_t units = setup.depth(draw.between(1, 3));
  const std::uint64_t batch = setup.batch(draw.octaves(4, 128));
  const std::uint64_t small = draw.of<std::uint64_t>({4, 4, 7, 8});
  const auto channels_at = [&](std::uint64_t level) {
    return base << std::min<std::uint64_t>(levels - level, 4);
  };
  std::vector<Residual> maker;
  for (std::uint64_t l = 0; l < levels; ++l) {
    for (std::uint64_t i = 0; i < units; ++i) {
      maker.push_back(make_residual(setup, channels_at(i == 0 ? l : l + 1), channels_at(l + 1),
                                    false, 1, width));
    }
  }
  const Dense first = dense(graph, 128, channels_at(0) * small * small, width);
  const Conv to_pixels = make_conv(setup, channels_at(levels), 3, 3, width);
  const std::size_t split = graph.parameters().size();
  std::vector<Residual> judge;
  const Conv from_pixels = make_conv(setup, 3, channels_at(levels), 3, width);
  for (std::uint64_t l = levels; l-- > 0;) {
    judge.push_back(make_residual(setup, channels_at(l + 1), channels_at(l), false, 2, width));
  }
  const Dense verdict = dense(graph, channels_at(0) * small * small, 1, width);

  const auto make = [&] {
    const Var noise{setup.session().alloc(batch * 128 * 4), nullptr, batch * 128, 4};
    Image image{linear(graph, first, noise), batch, channels_at(0), small};
    for (std::size_t i = 0; i < maker.size(); ++i) {
      if (i % units == 0) {
        image.side *= 2;
        image.pixels =
            resample(graph, image.pixels, batch * image.channels * image.side * image.side);
      }
      image = run_residual(setup, maker[i], image);
    }
    return run_conv(setup, to_pixels, image);
  };
  const auto judged = [&](const Image& pixels) {
    Image image = run_conv(setup, from_pixels, pixels);
    for (const Residual& unit : judge) image = run_residual(setup, unit, image);
    return mean_loss(graph, linear(graph, verdict, image.pixels));
  };
  TrainingPlan plan = draw_plan(draw);
  plan.accumulates = 1;
  Optimizer making(graph, trained(graph, 0, split), plan);
  Optimizer judging(graph, trained(graph, split), plan);
  // The judge's step is part of every forward pass of the maker's.
  train(graph, making, plan, setup.limit, [&](bool trains) {
    if (trains) {
      const std::uint64_t side = small << levels;
      const Image real{
          {setup.feed(batch * 3 * side * side * 4), nullptr, batch * 3 * side * side, 4},
          batch,
          3,
          side};
      const Var real_loss = judged(real);
      graph.grad_enabled = false;
      const Image made = make();
      graph.grad_enabled = true;
      const Var made_loss = judged(made);
      graph.backward(add(graph, real_loss, made_loss));
      graph.drop_casts();
      judging.step();
      judging.zero_grad();
    }
    return judged(make());
  });
}

}  // namespace gapless::bench
