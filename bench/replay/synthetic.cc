#include "bench/replay/synthetic.h"

#include <algorithm>
#include <random>
#include <stdexcept>

namespace gapless::bench {
namespace {

// Writes events; random numbers are drawn by hand, since the distributions of the standard library
// differ between implementations.
class Program {
 public:
  Program(const std::string& kind, std::uint64_t seed) : random_(seed) {
    trace_.name = kind;
    trace_.source = "generator: " + kind + ", seed " + std::to_string(seed);
    trace_.starts_empty = true;
  }

  std::uint32_t alloc(std::uint64_t bytes) {
    TraceEvent event;
    event.kind = EventKind::alloc;
    event.block = trace_.blocks++;
    event.bytes = std::max<std::uint64_t>(bytes, 1);
    trace_.events.push_back(event);
    return event.block;
  }
  void free(std::uint32_t block) {
    TraceEvent event;
    event.kind = EventKind::free;
    event.block = block;
    trace_.events.push_back(event);
  }
  void free_all(std::vector<std::uint32_t>& blocks) {
    while (!blocks.empty()) {
      free(blocks.back());
      blocks.pop_back();
    }
  }
  /// A temporary: allocated and freed at once.
  void scratch(std::uint64_t bytes) { free(alloc(bytes)); }

  /// Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + random_() % (high - low + 1);
  }

  /// Adds to what is said of the trace's origin.
  void note(const std::string& text) { trace_.source += text; }

  Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::mt19937_64 random_;
};

constexpr std::uint64_t kHalf = 2;  // bytes of a bf16 number
constexpr std::uint64_t kFloat = 4;

// Weights and AdamW's two states in float32, layer by layer.
void model_states(Program& program, std::uint64_t layers, std::uint64_t hidden) {
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    for (int state = 0; state < 3; ++state) {
      program.alloc(4 * hidden * hidden * kFloat);
      program.alloc(8 * hidden * hidden * kFloat);
      program.alloc(hidden * kFloat);
      program.alloc(hidden * kFloat);
    }
  }
}

// What the operators of a layer allocate and free at once, beside what they leave. The recordings
// in examples/traces have 108 to 170 blocks per layer and training step (lm-small-train, gpt2, t5),
// and some 33 per layer of a forward pass (lm-forward-bf16). An operator here has four.
constexpr int kTrainingOperators = 10;
constexpr int kServingOperators = 7;

void operators(Program& program, int count, std::uint64_t row, std::uint64_t tokens) {
  for (int i = 0; i < count; ++i) {
    const std::uint32_t view = program.alloc(row * kHalf);
    program.scratch(tokens * kFloat);
    program.scratch(4096);
    program.free(view);
    program.scratch(512);
  }
}

// `keeps`: one small tensor of each layer and step, for good.
Trace varlen(const std::string& kind, bool keeps, const SyntheticOptions& options) {
  Program program(kind, options.seed);
  if (options.batch != SyntheticOptions{}.batch) {
    program.note(", " + std::to_string(options.batch) + " sequences in a step");
  }
  constexpr std::uint64_t kLayers = 16;
  constexpr std::uint64_t kHidden = 1024;
  constexpr std::uint64_t kHeads = 16;
  const std::uint64_t batch = options.batch;
  constexpr std::uint64_t kVocabulary = 50257;
  constexpr std::size_t kLosses = 16;  // kept for the log
  model_states(program, kLayers, kHidden);
  std::vector<std::uint32_t> gradients;
  std::vector<std::uint32_t> losses;
  std::uint64_t length = program.between(64, 768);
  std::uint32_t input = program.alloc(batch * length * 8);
  for (int step = 0; step < options.steps; ++step) {
    const std::uint64_t tokens = batch * length;
    const std::uint64_t row = tokens * kHidden;
    std::vector<std::vector<std::uint32_t>> saved(kLayers);
    for (auto& layer : saved) {
      layer.push_back(program.alloc(row * kFloat));     // residual
      layer.push_back(program.alloc(row * kHalf));      // normalised
      layer.push_back(program.alloc(tokens * kFloat));  // its mean and deviation
      layer.push_back(program.alloc(3 * row * kHalf));  // queries, keys, values
      const std::uint32_t scores = program.alloc(batch * kHeads * length * length * kHalf);
      layer.push_back(program.alloc(batch * kHeads * length * length * kHalf));
      program.free(scores);
      layer.push_back(program.alloc(row * kHalf));      // attention
      layer.push_back(program.alloc(4 * row * kHalf));  // feed forward
      layer.push_back(program.alloc(4 * row * kHalf));
      program.scratch(row * kFloat);
      operators(program, kTrainingOperators, row, tokens);
      if (keeps) program.alloc(512 * program.between(1, 8));
    }
    std::vector<std::uint32_t> head;
    head.push_back(program.alloc(tokens * kVocabulary * kHalf));   // logits
    head.push_back(program.alloc(tokens * kVocabulary * kFloat));  // in float32
    losses.push_back(program.alloc(kFloat));
    // The gradients of the step before go when the new backward begins, and come back layer by
    // layer between activations that leave.
    program.free_all(gradients);
    const std::uint32_t wide_gradient = program.alloc(tokens * kVocabulary * kFloat);
    program.free_all(head);
    const std::uint32_t half = program.alloc(tokens * kVocabulary * kHalf);
    program.free(wide_gradient);
    std::uint32_t flowing = program.alloc(row * kFloat);
    program.free(half);
    const std::uint64_t next_length = program.between(64, 768);
    const std::uint32_t next_input = program.alloc(batch * next_length * 8);  // prefetched
    for (std::uint64_t i = kLayers; i-- > 0;) {
      const std::uint32_t wide = program.alloc(4 * row * kHalf);
      gradients.push_back(program.alloc(8 * kHidden * kHidden * kFloat));
      const std::uint32_t narrow = program.alloc(row * kHalf);
      program.free(wide);
      const std::uint32_t joint = program.alloc(3 * row * kHalf);
      gradients.push_back(program.alloc(4 * kHidden * kHidden * kFloat));
      gradients.push_back(program.alloc(kHidden * kFloat));
      const std::uint32_t next = program.alloc(row * kFloat);
      program.free(joint);
      program.free(narrow);
      program.free(flowing);
      program.free_all(saved[i]);
      operators(program, kTrainingOperators, row, tokens);
      flowing = next;
    }
    for (std::uint64_t i = 0; i < 4 * kLayers; ++i) {  // the optimizer's temporaries
      program.scratch(kHidden * kFloat);
      program.scratch(8 * kHidden * kHidden * kFloat);
    }
    program.free(flowing);
    program.free(input);
    input = next_input;
    length = next_length;
    if (losses.size() == kLosses) program.free_all(losses);
  }
  return program.take();
}

Trace moe(const SyntheticOptions& options) {
  Program program("moe", options.seed);
  constexpr std::uint64_t kLayers = 12;
  constexpr std::uint64_t kExperts = 16;
  constexpr std::uint64_t kHidden = 1024;
  constexpr std::uint64_t kTokens = 8192;
  model_states(program, kLayers, kHidden);
  std::vector<std::uint32_t> gradients;
  for (int step = 0; step < options.steps; ++step) {
    std::vector<std::vector<std::uint32_t>> saved(kLayers);
    for (auto& layer : saved) {
      layer.push_back(program.alloc(kTokens * kHidden * kHalf));
      layer.push_back(program.alloc(kTokens * kExperts * kFloat));  // router
      std::uint64_t left = 2 * kTokens;                             // two experts a token
      std::vector<std::uint32_t> outputs;
      for (std::uint64_t expert = 0; expert < kExperts; ++expert) {
        const std::uint64_t share = left / (kExperts - expert);
        const std::uint64_t count =
            expert + 1 == kExperts ? left : std::min(left, program.between(share / 4, 2 * share));
        left -= count;
        layer.push_back(program.alloc(count * 8));
        layer.push_back(program.alloc(count * kHidden * kHalf));
        layer.push_back(program.alloc(4 * count * kHidden * kHalf));
        program.scratch(4 * count * kHidden * kHalf);
        outputs.push_back(program.alloc(count * kHidden * kHalf));
      }
      layer.push_back(program.alloc(kTokens * kHidden * kHalf));
      program.free_all(outputs);
    }
    program.free_all(gradients);
    std::uint32_t flowing = program.alloc(kTokens * kHidden * kFloat);
    for (std::uint64_t i = kLayers; i-- > 0;) {
      const std::uint32_t next = program.alloc(kTokens * kHidden * kFloat);
      gradients.push_back(program.alloc(8 * kHidden * kHidden * kFloat));
      program.free_all(saved[i]);
      program.free(flowing);
      flowing = next;
    }
    program.free(flowing);
  }
  return program.take();
}

// Caches grow when they are full, by `chunk` tokens at a time: 1 is torch.cat in every step.
Trace serve(const std::string& kind, std::uint64_t chunk, const SyntheticOptions& options) {
  Program program(kind, options.seed);
  constexpr std::uint64_t kLayers = 24;
  constexpr std::uint64_t kHidden = 2048;
  constexpr std::size_t kSlots = 8;
  constexpr std::uint64_t kGrowth = 64;  // tokens a cache grows by at a time
  for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
    program.alloc(12 * kHidden * kHidden * kHalf);
  }
  struct Request {
    std::uint64_t tokens = 0;
    std::uint64_t end = 0;
    std::uint64_t room = 0;            // tokens the cache has room for
    std::vector<std::uint32_t> cache;  // one block per layer: keys and values
  };
  std::vector<Request> active;
  const auto cache_bytes = [&](std::uint64_t tokens) { return 2 * tokens * kHidden * kHalf; };
  for (int step = 0; step < options.steps; ++step) {
    if (active.size() < kSlots) {
      Request request;
      request.tokens = program.between(16, 1500);
      request.end = request.tokens + program.between(64, 1024);
      request.room = (request.tokens + chunk - 1) / chunk * chunk;
      for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
        const std::uint32_t hidden = program.alloc(request.tokens * kHidden * kHalf);
        program.scratch(4 * request.tokens * kHidden * kHalf);
        request.cache.push_back(program.alloc(cache_bytes(request.room)));
        program.free(hidden);
      }
      active.push_back(std::move(request));
    }
    for (Request& request : active) {
      const std::uint64_t added = program.between(1, kGrowth);
      request.tokens += added;
      const bool full = request.tokens > request.room;
      if (full) request.room = (request.tokens + chunk - 1) / chunk * chunk;
      for (std::uint32_t& cache : request.cache) {
        if (full) {  // a longer one, then the old one goes
          const std::uint32_t longer = program.alloc(cache_bytes(request.room));
          program.free(cache);
          cache = longer;
        }
        program.scratch(request.tokens * 32 * kFloat);
        operators(program, kServingOperators, added * kHidden, added);
      }
      program.scratch(151936 * kFloat);
    }
    for (Request& request : active) {
      if (request.tokens >= request.end) program.free_all(request.cache);
    }
    std::erase_if(active, [](const Request& request) { return request.tokens >= request.end; });
  }
  return program.take();
}

}  // namespace

std::vector<std::string> synthetic_kinds() {
  return {"varlen", "metrics", "moe", "serve", "serve-concat"};
}

Trace synthetic_trace(const std::string& kind, const SyntheticOptions& options) {
  if (kind == "varlen" || kind == "metrics") return varlen(kind, kind == "metrics", options);
  if (kind == "moe") return moe(options);
  if (kind == "serve") return serve(kind, 256, options);
  if (kind == "serve-concat") return serve(kind, 1, options);
  throw std::invalid_argument("unknown kind \"" + kind + "\"");
}

}  // namespace gapless::bench
