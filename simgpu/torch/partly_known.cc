#include "simgpu/torch/partly_known.h"

#include <algorithm>
#include <exception>
#include <limits>

#include <ATen/EmptyTensor.h>
#include <c10/util/irange.h>

#include "simgpu/torch/operator_scope.h"
#include "simgpu/torch/tensors_in.h"

namespace gapless::simgpu {
namespace {

using Role = OperatorFacts::Role;
using Kind = OperatorFacts::InPart;

// Each may be looked at by itself, for up to a microsecond.
constexpr std::int64_t kMostInPart = 1 << 18;

// Calls f(tensor, fact) for what an operator reads, until f is false; returns whether it never was.
template <class F>
bool each_read(const OperatorFacts& facts, const c10::IValue* arguments, F&& f) {
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    const OperatorFacts::Argument& fact = facts.arguments[i];
    if (fact.role == Role::other || fact.role == Role::writes) continue;
    if (!each_tensor(arguments[i], [&](const at::Tensor& tensor) { return f(tensor, fact); })) {
      return false;
    }
  }
  return true;
}

// Whether anything of its results could be known: no more than a look at each argument, for this is
// asked of nearly all that a network computes.
bool can_be_known(const OperatorFacts& facts, const c10::IValue* arguments) {
  const bool carries = facts.in_part == Kind::carries;
  bool any = false;
  bool written_alone = facts.writes;  // with numbers that are no tensor's
  const bool all = each_read(facts, arguments, [&](const at::Tensor& tensor, const auto& fact) {
    written_alone = written_alone && (fact.chooses || fact.role == Role::reads_and_writes);
    if (!is_on_device(tensor) || (carries && fact.chooses)) {
      any = any || !fact.chooses;
      return known_of(tensor, fact) != kNone;
    }
    if (!is_small(tensor) || tensor.numel() > kMostInPart) return false;
    const bool knows = knows_any(tensor);
    any = any || knows;
    return knows || carries;
  });
  return all && (any || written_alone);
}

// Makes what is not known of a twin that number.
void fill_unknown(const at::Tensor& twin, const at::Tensor& known, double number) {
  without_repeats(twin, twin).masked_fill_(without_repeats(known, twin).logical_not(), number);
}

// In place of zero. Of integers those of the first argument and of the others differ, for one may
// be taken off the other (index_add with alpha -1).
double other_number(const at::Tensor& tensor, bool is_first) {
  if (!is_integer(tensor)) return std::numeric_limits<double>::quiet_NaN();
  return is_first ? 1 : 3;
}

// Each argument that lies on the device, with its twin in a computation.
template <class F>
void each_twin(const OperatorFacts& facts, const c10::IValue* arguments,
               const Computation& computation, F&& f) {
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    const OperatorFacts::Argument& fact = facts.arguments[i];
    if (fact.role == Role::other || fact.role == Role::writes) continue;
    std::vector<at::Tensor> twins;
    each_tensor(computation.stack[i], [&](const at::Tensor& twin) {
      twins.push_back(twin);
      return true;
    });
    std::size_t next = 0;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (is_on_device(tensor)) f(tensor, twins[next], i == 0);
      ++next;
      return true;
    });
  }
}

// The places of a result whose numbers follow from none that nobody knows.
at::Tensor known_places(const InPart& part, const at::Tensor& result, const at::Tensor& other) {
  if (part.other) return result.eq(other).logical_or_(result.isnan());  // a NaN of its own
  at::Tensor known(at::detail::empty_cpu(result.sizes(), at::kBool));
  known.fill_(true);
  for (const at::Tensor& unknown : part.unknown_places) known.logical_and_(unknown.logical_not());
  return known;
}

}  // namespace

std::optional<InPart> prepare_part(const OperatorFacts& facts, const c10::IValue* arguments) {
  if (facts.in_part == Kind::no || !facts.computable) return std::nullopt;
  if (!can_be_known(facts, arguments)) return std::nullopt;
  const OnCpu on_cpu;
  InPart made;
  try {
    const bool carries = facts.in_part == Kind::carries;
    made.computed = prepare(facts, arguments, kKnown);
    each_twin(facts, arguments, made.computed,
              [&](const at::Tensor& tensor, const at::Tensor& twin, bool) {
                const KnownWhere known = known_where(tensor);
                made.computed.knowledge = std::min(made.computed.knowledge, known.least);
                if (!carries) made.unknown_places.push_back(known.flags.logical_not());
                fill_unknown(twin, known.flags, carries ? 0 : 1);
              });
    if (!carries) return made;
    made.other = prepare(facts, arguments, kKnown);
    each_twin(facts, arguments, *made.other,
              [&](const at::Tensor& tensor, const at::Tensor& twin, bool is_first) {
                made.of_floats = made.of_floats || !is_integer(tensor);
                fill_unknown(twin, known_where(tensor).flags, other_number(tensor, is_first));
              });
  } catch (const std::exception&) {  // numbers of a type that has no such operators
    return std::nullopt;
  }
  return made;
}

void keep_part(const c10::OperatorHandle& op, const OperatorFacts& facts, InPart& part,
               const torch::jit::Stack& results, const std::vector<at::Tensor>& written) {
  if (!compute(op, part.computed) || (part.other && !compute(op, *part.other))) return;
  const auto take = [&](const at::Tensor& there, const at::Tensor& here, const at::Tensor& other) {
    const bool loses_nan = part.of_floats && is_integer(here);  // sum(dtype=torch.int8)
    if (!is_on_device(there) || loses_nan || there.sizes() != here.sizes() ||
        there.scalar_type() != here.scalar_type()) {
      return;
    }
    write_where(there, here, known_places(part, here, other), part.computed.knowledge);
  };
  try {
    const OnCpu on_cpu;
    for (const std::size_t i : c10::irange(written.size())) {
      take(written[i], part.computed.written[i],
           part.other ? part.other->written[i] : at::Tensor());
    }
    const std::size_t first = results.size() - facts.fresh.size();
    for (const std::size_t i : c10::irange(facts.fresh.size())) {
      if (!facts.fresh[i] || !results[first + i].isTensor()) continue;
      take(results[first + i].toTensor(), part.computed.stack[i].toTensor(),
           part.other ? part.other->stack[i].toTensor() : at::Tensor());
    }
  } catch (const std::exception&) {
  }
}

}  // namespace gapless::simgpu
