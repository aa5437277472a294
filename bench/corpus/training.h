// Training: optimizers and the loop around a model, as programs write them.
//
//   step 1   forward, backward            optimizer states made: they come after the gradients
//   step 2   forward, backward, step      ... [evaluation] ...
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/corpus/autograd.h"
#include "bench/corpus/draw.h"

namespace gapless::bench {

enum class OptimizerKind : std::uint8_t { adam, adam_fused, sgd, adam_8bit, adafactor };

struct TrainingPlan {
  OptimizerKind optimizer = OptimizerKind::adam;
  bool foreach = true;          // temporaries of all parameters together, not one by one
  bool master_weights = false;  // a float32 copy of each parameter that is smaller
  bool clips = true;
  bool zero_before_forward = false;   // gradients go before the forward pass, not after the step
  bool keeps_grads = false;           // set to zero, not given up
  bool averages = false;              // keeps a moving average of the weights
  std::uint64_t accumulates = 1;      // backward passes in a step
  std::uint64_t evaluates_every = 0;  // steps; 0: never
  std::uint64_t evaluation_batches = 2;
};

/// As programs choose: most use Adam with foreach, some nothing usual at all.
TrainingPlan draw_plan(Draw& draw);

class Optimizer {
 public:
  Optimizer(Autograd& graph, std::vector<Parameter*> parameters, const TrainingPlan& plan)
      : graph_(graph), parameters_(std::move(parameters)), plan_(plan) {}
  void step();
  void zero_grad();

 private:
  void clip();
  void make_states(Parameter& parameter);

  Autograd& graph_;
  std::vector<Parameter*> parameters_;
  TrainingPlan plan_;
  bool first_ = true;
};

/// Parameters that are trained, of those made since the one with number `from`.
std::vector<Parameter*> trained(const Autograd& graph, std::size_t from = 0,
                                std::size_t to = SIZE_MAX);

/// How many steps fit into so many events: the loop looks after each.
struct StepLimit {
  std::uint64_t steps = 4;
  std::uint64_t events = 30000;       // in all, about
  std::uint64_t least_events = 2500;  // steps are added for so many
};

/// `forward(train)` gives the loss of the next batch.
void train(Autograd& graph, Optimizer& optimizer, const TrainingPlan& plan, const StepLimit& limit,
           const std::function<Var(bool)>& forward);

}  // namespace gapless::bench
