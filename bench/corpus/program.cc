#include "bench/corpus/program.h"

#include <algorithm>
#include <stdexcept>

#include "bench/corpus/setup.h"

namespace gapless::bench {
namespace {

std::uint64_t own_seed(const ProgramId& id) {
  return Draw::mixed(id.seed * 0x9e3779b97f4a7c15 + id.index + 1);
}

StreamUse draw_streams(Draw& draw) {
  StreamUse use;
  if (!draw.percent(25)) return use;
  use.streams = static_cast<std::uint16_t>(draw.octaves(2, 10));
  use.prefetches = draw.percent(60);
  use.gathers = draw.percent(35);
  use.branches = draw.percent(35);
  use.offloads = draw.percent(20);
  if (!use.gathers && !use.branches && !use.offloads) use.prefetches = true;
  return use;
}

const Family& family_named(const std::string& name) {
  for (const Family& family : families()) {
    if (family.name == name) return family;
  }
  throw std::invalid_argument("there is no family \"" + name + "\"");
}

Trace run_once(const Family& family, const ProgramId& id, const ProgramScale& scale) {
  const std::uint64_t seed = own_seed(id);
  Draw choices(seed, 0);
  const StreamUse use = draw_streams(choices);
  Session session(family.name + "-" + std::to_string(id.seed) + "-" + std::to_string(id.index),
                  "generator: " + family.name + ", seed " + std::to_string(id.seed) + ", program " +
                      std::to_string(id.index),
                  seed);
  session.use_streams(use.streams);
  Setup setup(session, choices, scale, use);
  setup.graph.offloads = use.offloads;
  setup.limit.steps = choices.between(3, 6);
  // Some ask for much, some for little.
  setup.limit.events = choices.octaves(6000, kMostProgramEvents - 2000);
  session.scratch(1);
  const Tensor workspace = session.alloc(choices.of<std::uint64_t>({8519680, 33554432}));
  family.run(setup);
  session.end();
  return session.take();
}

std::uint64_t less(std::uint64_t scale, std::uint64_t most, std::uint64_t was) {
  return std::max<std::uint64_t>(1, std::min(scale * 3 / 4, scale * most / was * 9 / 10));
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"decoder", run_decoder},
      {"lora", run_lora},
      {"encoder-decoder", run_encoder_decoder},
      {"vision", run_vision},
      {"diffusion", run_diffusion},
      {"gan", run_adversarial},
      {"moe", run_experts},
      {"recommender", run_recommender},
      {"rnn", run_recurrent},
      {"graph", run_graph},
      {"forward", run_forward},
      {"serving", run_serving},
      {"rlhf", run_rlhf},
  };
  return all;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.name);
  return names;
}

std::string family_of(const ProgramId& id) {
  Draw draw(own_seed(id), 2);
  return families()[draw.between(0, families().size() - 1)].name;
}

bool is_unseen(const ProgramId& id) { return Draw(own_seed(id), 3).percent(50); }

Trace corpus_program(const ProgramId& id, const std::string& family) {
  const Family& made = family_named(family.empty() ? family_of(id) : family);
  // A peak that is drawn, not what comes out: models that fill a card are as likely as small ones.
  Draw draw(own_seed(id), 4);
  const std::uint64_t most_bytes = draw.octaves(2ULL << 30, kMostProgramBytes);
  const std::uint64_t least_bytes = std::max(kLeastProgramBytes, most_bytes / 6);
  constexpr std::uint64_t kLargestBatch = std::uint64_t{64} * 64;
  ProgramScale scale;
  bool was_too_large = false;
  constexpr int kTries = 24;
  for (int i = 0; i < kTries; ++i) {
    Trace trace = run_once(made, id, scale);
    const std::uint64_t events = trace.events.size();
    const std::uint64_t bytes = peak_live_bytes(trace);
    const ProgramScale before = scale;
    if (events > kMostProgramEvents) {
      scale.depth = less(scale.depth, kMostProgramEvents, events);
    } else if (events < kLeastProgramEvents) {
      scale.depth *= 2;
    }
    if (bytes > most_bytes) {
      was_too_large = true;
      // Fewer samples first; a model that is too large for one comes out narrower.
      if (scale.batch > 1) {
        scale.batch = less(scale.batch, most_bytes, bytes);
      } else {
        scale.width = less(scale.width, most_bytes, bytes);
      }
      if (i >= 4) scale.width = std::max<std::uint64_t>(1, scale.width * 7 / 8);
    } else if (bytes < kLeastProgramBytes) {
      scale.batch *= 2;
      scale.width = scale.width * 5 / 4 + 1;
    } else if (bytes < least_bytes && !was_too_large && scale.batch < kLargestBatch) {
      scale.batch *= 2;
    }
    if (scale == before) return trace;
  }
  throw std::runtime_error(made.name + ", seed " + std::to_string(id.seed) + ", program " +
                           std::to_string(id.index) + ": no size of it is within bounds");
}

std::uint64_t digest_of(const Trace& trace) {
  std::uint64_t digest = trace.blocks;
  for (const TraceEvent& event : trace.events) {
    const std::uint64_t what = static_cast<std::uint64_t>(event.kind) << 48 |
                               std::uint64_t{event.stream} << 32 | event.block;
    digest = Draw::mixed(digest ^ what) + Draw::mixed(event.bytes);
  }
  return digest;
}

}  // namespace gapless::bench
