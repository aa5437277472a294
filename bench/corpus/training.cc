#include "bench/corpus/training.h"

#include <algorithm>

namespace gapless::bench {

TrainingPlan draw_plan(Draw& draw) {
  TrainingPlan plan;
  plan.optimizer = draw.of({OptimizerKind::adam, OptimizerKind::adam, OptimizerKind::adam,
                            OptimizerKind::adam, OptimizerKind::adam_fused, OptimizerKind::sgd,
                            OptimizerKind::adam_8bit, OptimizerKind::adafactor});
  plan.foreach = draw.percent(75);
  plan.master_weights = draw.percent(30);
  plan.clips = draw.percent(60);
  plan.zero_before_forward = draw.percent(40);
  plan.keeps_grads = draw.percent(10);
  plan.averages = draw.percent(10);
  plan.accumulates = draw.of<std::uint64_t>({1, 1, 1, 1, 2, 2, 4});
  plan.evaluates_every = draw.of<std::uint64_t>({0, 0, 0, 1, 2, 2});
  plan.evaluation_batches = draw.between(1, 3);
  return plan;
}

void Optimizer::make_states(Parameter& parameter) {
  Session& session = graph_.session();
  const std::uint64_t elements = parameter.elements;
  const std::uint64_t width = parameter.width;
  if (plan_.master_weights && width < 4) parameter.states.push_back(session.alloc(elements * 4));
  const std::uint64_t state_width = plan_.master_weights ? 4 : width;
  switch (plan_.optimizer) {
    case OptimizerKind::adam_fused:
      parameter.states.push_back(session.alloc(4));  // the count of steps
      [[fallthrough]];
    case OptimizerKind::adam:
      parameter.states.push_back(session.alloc(elements * state_width));
      parameter.states.push_back(session.alloc(elements * state_width));
      break;
    case OptimizerKind::sgd:
      parameter.states.push_back(session.alloc(elements * state_width));
      break;
    case OptimizerKind::adam_8bit:
      for (int state = 0; state < 2; ++state) {
        parameter.states.push_back(session.alloc(elements));
        parameter.states.push_back(session.alloc(elements / 256 * 4));
      }
      break;
    case OptimizerKind::adafactor: {  // a row and a column of a matrix
      std::uint64_t side = 1;
      while (side * side < elements) side *= 2;
      parameter.states.push_back(session.alloc(side * 4));
      parameter.states.push_back(session.alloc(elements / side * 4));
      break;
    }
  }
}

void Optimizer::clip() {
  Session& session = graph_.session();
  std::vector<Tensor> norms;
  for (const Parameter* parameter : parameters_) {
    if (parameter->grad) norms.push_back(session.alloc(4));
  }
  const Tensor together = session.alloc(norms.size() * 4);
  norms.clear();
  const Tensor norm = session.alloc(4);
  session.scratch(4);
  const Tensor factor = session.alloc(4);
  if (!plan_.foreach) return;
  session.scratch(4);
}

void Optimizer::step() {
  Session& session = graph_.session();
  if (plan_.clips) clip();
  std::vector<Parameter*> due;
  std::copy_if(parameters_.begin(), parameters_.end(), std::back_inserter(due),
               [](const Parameter* parameter) { return parameter->grad != nullptr; });
  if (first_) {
    for (Parameter* parameter : due) make_states(*parameter);
  }
  std::vector<Tensor> wide;  // gradients for the master weights
  if (plan_.master_weights) {
    for (const Parameter* parameter : due) {
      if (parameter->width < 4) wide.push_back(session.alloc(parameter->elements * 4));
    }
  }
  const bool temporaries =
      plan_.optimizer == OptimizerKind::adam || plan_.optimizer == OptimizerKind::adafactor;
  if (temporaries && plan_.foreach && plan_.optimizer == OptimizerKind::adam) {
    std::vector<Tensor> roots;
    for (const Parameter* parameter : due) {
      roots.push_back(
          session.alloc(parameter->elements * (plan_.master_weights ? 4 : parameter->width)));
    }
  } else if (temporaries) {
    for (const Parameter* parameter : due) {
      const Tensor root = session.alloc(parameter->elements * 4);
      session.scratch(parameter->elements * 4);
    }
  }
  wide.clear();
  if (plan_.averages) {
    for (Parameter* parameter : due) {
      if (first_) {
        parameter->states.push_back(session.alloc(parameter->elements * parameter->width));
      }
      session.scratch(parameter->elements * parameter->width);
    }
  }
  first_ = false;
}

void Optimizer::zero_grad() {
  if (plan_.keeps_grads) return;
  for (Parameter* parameter : parameters_) parameter->grad.reset();
}

std::vector<Parameter*> trained(const Autograd& graph, std::size_t from, std::size_t to) {
  std::vector<Parameter*> found;
  const auto& all = graph.parameters();
  for (std::size_t i = from; i < std::min(to, all.size()); ++i) {
    if (!all[i]->frozen) found.push_back(all[i].get());
  }
  return found;
}

void train(Autograd& graph, Optimizer& optimizer, const TrainingPlan& plan, const StepLimit& limit,
           const std::function<Var(bool)>& forward) {
  Session& session = graph.session();
  std::vector<Tensor> losses;  // kept for the log
  constexpr std::size_t kLosses = 8;
  const std::uint64_t start = session.events();
  // Programs of few operators are recorded for longer.
  const auto goes_on = [&](std::uint64_t step) {
    return step < limit.steps || session.events() < limit.least_events;
  };
  for (std::uint64_t step = 0; goes_on(step); ++step) {
    if (plan.zero_before_forward) optimizer.zero_grad();
    for (std::uint64_t i = 0; i < plan.accumulates; ++i) {
      Var loss = forward(true);
      losses.push_back(session.alloc(4));
      graph.backward(std::move(loss));
      graph.drop_casts();
    }
    optimizer.step();
    if (!plan.zero_before_forward) optimizer.zero_grad();
    if (losses.size() >= kLosses) losses.clear();
    if (plan.evaluates_every != 0 && (step + 1) % plan.evaluates_every == 0) {
      graph.grad_enabled = false;
      for (std::uint64_t i = 0; i < plan.evaluation_batches; ++i) {
        (void)forward(false);
        graph.drop_casts();
      }
      graph.grad_enabled = true;
    }
    // Three steps at least, so that it repeats itself.
    const std::uint64_t each = (session.events() - start) / (step + 1);
    if (step >= 2 && session.events() + each > limit.events) break;
  }
}

}  // namespace gapless::bench
