// Setup: what a family is given to make one program of: its choices, how large it may become, and
// what it does with streams.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/corpus/autograd.h"
#include "bench/corpus/draw.h"
#include "bench/corpus/training.h"

namespace gapless::bench {

/// In 64ths of what was drawn: a program that comes out too large or too long is made once more.
struct ProgramScale {
  std::uint64_t batch = 64;
  std::uint64_t depth = 64;
  std::uint64_t width = 64;

  bool operator==(const ProgramScale&) const = default;
};

struct StreamUse {
  std::uint16_t streams = 1;
  bool prefetches = false;  // batches come on a stream of their own, a step ahead
  bool gathers = false;     // weights are put together for each layer, gradients sent away
  bool branches = false;    // parts of a layer run beside each other
  bool offloads = false;    // what is saved goes to the host and back
};

enum class Precision : std::uint8_t { single, half, autocast };

class Setup {
 public:
  Setup(Session& session, Draw& choices, const ProgramScale& size, const StreamUse& streams)
      : graph(session), draw(choices), use(streams), scale_(size) {}

  Session& session() { return graph.session(); }

  [[nodiscard]] std::uint64_t batch(std::uint64_t drawn) const {
    return std::max<std::uint64_t>(1, drawn * scale_.batch / 64);
  }
  [[nodiscard]] std::uint64_t depth(std::uint64_t drawn) const {
    return std::max<std::uint64_t>(1, drawn * scale_.depth / 64);
  }
  /// In whole multiples.
  [[nodiscard]] std::uint64_t width(std::uint64_t drawn, std::uint64_t multiple) const {
    return std::max<std::uint64_t>(1, drawn * scale_.width / 64 / multiple) * multiple;
  }

  /// Weights' and activations' types; the width of a weight's number.
  std::uint64_t choose_precision() {
    const auto precision = draw.of({Precision::single, Precision::half, Precision::half,
                                    Precision::autocast, Precision::autocast});
    graph.width = precision == Precision::single ? 4 : 2;
    return precision == Precision::half ? 2 : 4;
  }

  /// A batch's memory. Where batches are prefetched: that of the one asked for last, while the
  /// next is on its way.
  Tensor feed(std::uint64_t bytes) {
    if (!use.prefetches) return session().alloc(bytes);
    Tensor now = next_ ? std::move(next_) : session().alloc_elsewhere(bytes, 1);
    next_ = session().alloc_elsewhere(bytes, 1);
    return now;
  }
  /// The stream for the next of several parts of a layer.
  std::uint16_t branch() { return use.branches ? session().side_stream() : std::uint16_t{0}; }

  Autograd graph;
  Draw& draw;
  StreamUse use;
  StepLimit limit;

 private:
  ProgramScale scale_;
  Tensor next_;
};

/// A family of programs: a function that runs one.
struct Family {
  std::string name;
  std::function<void(Setup&)> run;
};

/// All of them; their order is part of what a seed means.
const std::vector<Family>& families();

// The families, by file.
void run_decoder(Setup& setup);  // families_language.cc
void run_lora(Setup& setup);
void run_encoder_decoder(Setup& setup);
void run_experts(Setup& setup);
void run_vision(Setup& setup);  // families_image.cc
void run_diffusion(Setup& setup);
void run_adversarial(Setup& setup);
void run_recommender(Setup& setup);  // families_other.cc
void run_recurrent(Setup& setup);
void run_graph(Setup& setup);
void run_forward(Setup& setup);  // families_serving.cc
void run_serving(Setup& setup);
void run_rlhf(Setup& setup);

}  // namespace gapless::bench
