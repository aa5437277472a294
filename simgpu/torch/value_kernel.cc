#include "simgpu/torch/value_kernel.h"

#include <algorithm>
#include <optional>

#include <ATen/EmptyTensor.h>
#include <c10/util/irange.h>

#include "simgpu/torch/certain_flags.h"
#include "simgpu/torch/computation.h"
#include "simgpu/torch/device_tensor.h"
#include "simgpu/torch/drawn_numbers.h"
#include "simgpu/torch/guesses.h"
#include "simgpu/torch/list_elements.h"
#include "simgpu/torch/operator_scope.h"
#include "simgpu/torch/partly_known.h"
#include "simgpu/torch/tensors_in.h"

namespace gapless::simgpu {
namespace {

using Role = OperatorFacts::Role;
using Guess = OperatorFacts::Guess;

// What the host may steer by, and how many: no more than could be guessed. Bytes are images and
// packed weights.
bool may_steer(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return is_integer(tensor) && type != at::kByte && type != at::kChar && is_small(tensor);
}

}  // namespace

ValueKernel::ValueKernel(OperatorFacts facts, c10::SafeKernelFunction kernel)
    : facts_(std::move(facts)), kernel_(std::move(kernel)) {}

template <class F>
bool ValueKernel::each_made(const Stack& results, const std::vector<at::Tensor>& written,
                            F&& f) const {
  for (const at::Tensor& tensor : written) {
    if (is_on_device(tensor) && !f(tensor)) return false;
  }
  if (results.empty()) return true;  // there are none yet
  const std::size_t first = results.size() - facts_.fresh.size();
  for (const std::size_t i : c10::irange(facts_.fresh.size())) {
    if (!facts_.fresh[i]) continue;
    const bool all = each_tensor(results[first + i], [&](const at::Tensor& tensor) {
      return !is_on_device(tensor) || f(tensor);
    });
    if (!all) return false;
  }
  return true;
}

void ValueKernel::forget(const Stack& results, const std::vector<at::Tensor>& written) const {
  (void)each_made(results, written, [](const at::Tensor& tensor) {
    forget_values(tensor);
    return true;
  });
}

void ValueKernel::note_captured(void* graph, const Stack& results,
                                const std::vector<at::Tensor>& written) const {
  (void)each_made(results, written, [&](const at::Tensor& tensor) {
    note_written_by(graph, tensor);
    return true;
  });
}

// Null where the operator looks at one tensor alone.
const c10::IValue* ValueKernel::compared_with(const c10::IValue* arguments) const {
  return facts_.base.rfind("aten::is", 0) == 0 ? nullptr : &arguments[1];
}

bool ValueKernel::only_asks_if_finite(const c10::IValue* arguments) const {
  return facts_.guess == Guess::predicate && arguments[0].isTensor() &&
         asks_if_finite(arguments[0].toTensor(), compared_with(arguments));
}

// With --unknown most: the size of what numbers choose that nobody knows.
std::optional<std::int64_t> ValueKernel::most_of_size(const c10::IValue* arguments) const {
  if (facts_.sized_by.empty() || !takes_most() || simgpu_captures()) return std::nullopt;
  const at::Tensor& from = arguments[facts_.sized_by.front()].toTensor();
  return most_of(facts_, from, dim_given(arguments));
}

std::int64_t ValueKernel::least_size(const c10::IValue* arguments) const {
  return facts_.one_at_least && arguments[0].toTensor().numel() != 0 ? 1 : 0;
}

// What the program says itself; 0 where it says nothing. With more bins than it takes them for it
// would end.
std::int64_t ValueKernel::told_size(const c10::IValue* arguments) const {
  const bool is_told = facts_.told_size >= 0 && arguments[facts_.told_size].isInt();
  return is_told ? arguments[facts_.told_size].toInt() : 0;
}

std::optional<std::int64_t> ValueKernel::dim_given(const c10::IValue* arguments) const {
  if (facts_.dim < 0 || !arguments[facts_.dim].isInt()) return std::nullopt;
  return arguments[facts_.dim].toInt();
}

// Whether flags that nobody knows are counted with --unknown most. (What is counted by rows stays
// as it is, guess_count(): there it is as likely to end something, as a text at its last word.)
bool ValueKernel::counts_unknown(const c10::IValue* arguments) const {
  return (facts_.guess == Guess::any || facts_.guess == Guess::count) && takes_most() &&
         !simgpu_captures() && arguments[0].isTensor() && is_on_device(arguments[0].toTensor()) &&
         arguments[0].toTensor().scalar_type() == at::kBool;
}

void ValueKernel::keep_certain(std::int64_t value, const Stack& results) const {
  const c10::IValue& result = results.back();
  if (facts_.fresh.size() != 1 || !facts_.fresh[0] || !result.isTensor()) return;
  const at::Tensor& made = result.toTensor();
  if (!is_on_device(made) || made.numel() == 0) return;
  if (facts_.guess == Guess::count) value /= made.numel();
  const OnCpu on_cpu;
  if (!is_small(made)) return note_certain(made, value != 0);
  at::Tensor values(
      at::detail::empty_strided_cpu(made.sizes(), made.strides(), made.scalar_type()));
  values.fill_(value);
  write_values(made, values, kKnown);
}

void ValueKernel::keep_no_failures(const Stack& results) const {
  const std::size_t first = results.size() - facts_.fresh.size();
  const c10::IValue& result = results[first + static_cast<std::size_t>(facts_.failures)];
  if (!result.isTensor() || !is_on_device(result.toTensor()) || !is_small(result.toTensor()))
    return;
  const OnCpu on_cpu;
  const at::Tensor none = empty_twin_of(result.toTensor());
  none.zero_();
  write_values(result.toTensor(), none, kKnown);
}

// Of an operator whose arguments are not all known.
void ValueKernel::guess(const std::vector<c10::IValue>& arguments, const Stack& results) const {
  const OnCpu on_cpu;
  std::vector<at::Tensor> made;  // results, or what was given to hold them
  const std::size_t first = results.size() - facts_.fresh.size();
  for (const std::size_t i : c10::irange(facts_.fresh.size())) {
    if (results[first + i].isTensor()) made.push_back(results[first + i].toTensor());
  }
  if (made.empty() || !is_on_device(made.back()) || !arguments[0].isTensor()) return;
  const at::Tensor& result = made.back();
  const at::Tensor& from = arguments[0].toTensor();
  if (facts_.guess == Guess::index) {
    const bool samples = facts_.base == "aten::multinomial";
    std::optional<std::int64_t> dim;
    if (facts_.dim >= 0) {
      const c10::IValue& given = arguments[static_cast<std::size_t>(facts_.dim)];
      if (given.isInt()) dim = given.toInt();
    } else if (samples) {
      dim = -1;
    }
    if (from.dim() == 0) return;
    if (dim && *dim < 0) *dim += from.dim();
    const std::int64_t choices = dim ? from.size(*dim) : from.numel();
    guess_indices(result, result.dim() == from.dim() ? dim : std::nullopt, choices);
  } else if (facts_.guess == Guess::predicate) {
    const at::Tensor flags =
        guess_predicate(facts_.base, from, compared_with(arguments.data()), result);
    const bool is_certain = only_asks_if_finite(arguments.data());
    if (flags.defined()) {
      write_values(result, flags, is_certain ? kKnown : kLikely);
    } else if (is_certain && facts_.fresh[0]) {
      note_certain(result, finite_answer(facts_.base, compared_with(arguments.data())));
    }
  } else if (facts_.guess == Guess::any || facts_.guess == Guess::count) {
    guess_count(facts_, from, result);
  } else if (!facts_.sized_by.empty()) {
    guess_all_chosen(facts_, from, result);
  } else if (facts_.guess == Guess::choice) {
    const at::Tensor& flags = from;
    if (!is_on_device(flags) || !is_small(flags) || !is_small(result)) return;
    int knowledge = knowledge_of(flags);
    if (knowledge == kNone) return;
    const auto known = [&](const at::Tensor& tensor) {
      return tensor.is_cpu() ||
             (is_on_device(tensor) && is_small(tensor) && knowledge_of(tensor) != kNone);
    };
    const at::Tensor& yes = arguments[1].toTensor();
    const at::Tensor& no = arguments[2].toTensor();
    if (known(yes) == known(no)) return;
    const at::Tensor& chosen = known(yes) ? yes : no;
    if (chosen.is_cuda()) knowledge = std::min(knowledge, knowledge_of(chosen));
    const at::Tensor values =
        (chosen.is_cuda() ? twin_of(chosen) : chosen).to(result.scalar_type());
    write_values(result, values.expand(result.sizes()), knowledge);
    const at::Tensor unknown = known(yes) ? twin_of(flags).logical_not() : twin_of(flags);
    forget_where(result, unknown.to(at::kBool).expand(result.sizes()));
  }
}

// A number comes to the host: what is known of it lies in the device's memory.
void ValueKernel::read_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            Stack* stack) const {
  Inside inside(/*computes=*/false);
  const at::Tensor tensor = stack->back().toTensor();
  if (is_on_device(tensor)) {
    inside.where().reads = tensor.scalar_type() == at::kBool ? kFlag
                           : is_integer(tensor)              ? kInteger
                                                             : kNumber;
    // What an operator reads for itself is answered where it computes.
    if (inside.where().computing == 0 && knowledge_of(tensor) == kNone) {
      const OnCpu on_cpu;
      guess_noise(tensor);
    }
  }
  kernel_.callBoxed(op, keys, stack);
}

void ValueKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             Stack* stack) {
  if (facts_.reads_back) return read_back(op, keys, stack);
  const std::size_t count = facts_.arguments.size();
  const c10::IValue* const arguments = stack->data() + (stack->size() - count);
  const bool to_host = facts_.copies && !arguments[0].toTensor().is_cuda();
  const bool captures = simgpu_captures();
  if (to_host) {
    Inside inside(/*computes=*/false);
    inside.where().reads = may_steer(arguments[1].toTensor()) ? kInteger : kNumber;
    if (const at::Tensor& source = arguments[1].toTensor();
        inside.where().computing == 0 && !captures && is_on_device(source) && is_small(source) &&
        knowledge_of(source) == kNone) {
      const OnCpu on_cpu;
      guess_noise(source);
    }
    return kernel_.callBoxed(op, keys, stack);
  }

  if (!captures) {
    if (const auto failure = facts_.indices.failure(arguments)) simgpu_asserts(failure->c_str());
  }
  if (facts_.for_ampere || (facts_.for_ampere_in_bfloat16 && arguments[0].isTensor() &&
                            arguments[0].toTensor().scalar_type() == at::kBFloat16)) {
    simgpu_needs_capability(80);
  }
  int size_known = kKnown;
  std::optional<std::int64_t> certain_size;
  for (const std::size_t i : facts_.sized_by) {
    const at::Tensor& from = arguments[i].toTensor();
    if (!captures && is_on_device(from) && knowledge_of(from) == kNone) {
      const OnCpu on_cpu;
      guess_noise(from);
    }
    if (certain(from)) {
      certain_size = certain(from) == false ? 0 : most_of(facts_, from, dim_given(arguments));
      if (!certain_size) size_known = kNone;
    } else if (!is_on_device(from) || !is_small(from)) {
      size_known = kNone;
    } else {
      size_known = std::min(size_known, captures ? kNone : knowledge_of(from));
    }
  }
  const int knowledge = captures ? kNone : least_known(facts_, arguments);
  const auto most = size_known == kKnown ? std::nullopt : most_of_size(arguments);
  const bool counts = knowledge != kKnown && counts_unknown(arguments);
  const bool computes = facts_.computable && knowledge != kNone && !most;
  std::optional<InPart> part;
  std::optional<SomeElements> some;
  if (!computes && !captures) {
    part = prepare_part(facts_, arguments);
    some = prepare_elements(facts_, arguments);
  }
  const std::vector<at::Tensor> written = written_by(facts_, arguments, computes);
  Computation computation;
  if (computes) {
    computation = prepare(facts_, arguments, only_asks_if_finite(arguments) ? kKnown : knowledge);
  }
  const auto follows =
      computes || captures ? std::nullopt : follows_from_certain(facts_, arguments);
  std::vector<c10::IValue> kept;
  const bool guesses =
      facts_.guess != Guess::none && facts_.guess != Guess::any && facts_.guess != Guess::count;
  if ((counts || (!computes && (guesses || most))) && !captures) {
    kept.assign(arguments, arguments + count);
  }
  Inside inside(/*computes=*/true);
  if (!facts_.sized_by.empty()) {
    inside.where().has_answer = true;
    inside.where().answer = most ? *most : certain_size.value_or(least_size(arguments));
    const std::int64_t told = told_size(arguments);
    if (computes && compute(op, computation) && computation.stack[0].isTensor()) {
      const at::Tensor& result = computation.stack[0].toTensor();
      const bool along = facts_.dim >= 0 && arguments[facts_.dim].isInt();
      const std::int64_t dim = along ? arguments[facts_.dim].toInt() : 0;
      inside.where().answer = result.dim() == 0 ? 0 : result.size(dim);
    }
    if (size_known != kKnown && (told == 0 || inside.where().answer > told)) {
      simgpu_estimated(most ? kBound : kSize);
    }
  }
  if (facts_.base == "aten::equal" && knowledge != kKnown && !captures) simgpu_estimated(kFlag);
  if (!written.empty()) forget({}, written);
  for (const at::Tensor& tensor : written) note_written(facts_, arguments, tensor);
  kernel_.callBoxed(op, keys, stack);
  if (inside.where().graph != nullptr) {
    note_captured(inside.where().graph, *stack, written);
  }
  const auto compute_now = [&] {
    return each_made(*stack, written, is_worth_knowing) && compute(op, computation);
  };
  const bool computed = computes && (computation.done || compute_now());
  if (computed) {
    keep(facts_, computation, *stack, written);
  } else if (!facts_.copies) {  // what is copied as bytes takes along what is known of them
    forget(*stack, written);
    if (some) keep_elements(op, facts_, *some, *stack);
    if (facts_.failures >= 0) keep_no_failures(*stack);
    if (follows) return keep_certain(*follows, *stack);
  }
  if (!kept.empty() && (counts || !computed)) guess(kept, *stack);
  if (part && each_made(*stack, written, is_small)) {
    keep_part(op, facts_, *part, *stack, written);
  }
}

}  // namespace gapless::simgpu
