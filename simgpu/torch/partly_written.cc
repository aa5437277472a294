#include "simgpu/torch/partly_written.h"

#include <algorithm>
#include <exception>

#include "simgpu/torch/operator_scope.h"

namespace gapless::simgpu {
namespace {

// Each may be looked at by itself, for up to a microsecond.
constexpr std::int64_t kMostInPart = 1 << 18;

// Makes that number of all those in the twin of a tensor of which nothing is known. Returns the
// least that is known of the others.
int fill_unknown(const at::Tensor& twin, const at::Tensor& tensor, int number) {
  const KnownWhere known = known_where(tensor);
  twin.masked_fill_(known.flags.logical_not(), number);
  return known.least;
}

}  // namespace

std::optional<InPart> prepare_part(const OperatorFacts& facts, const c10::IValue* arguments) {
  if (!facts.in_part || !facts.computable || !arguments[0].isTensor()) return std::nullopt;
  const at::Tensor& tensor = arguments[0].toTensor();
  if (!is_on_device(tensor) || !is_small(tensor) || tensor.numel() > kMostInPart) {
    return std::nullopt;
  }
  const int knowledge = least_known(facts, arguments, 1);
  if (knowledge == kNone) return std::nullopt;
  const OnCpu on_cpu;
  InPart made{prepare(facts, arguments, knowledge), prepare(facts, arguments, knowledge)};
  try {
    fill_unknown(made.with_ones.written.front(), tensor, 1);
    const int least = fill_unknown(made.with_zeros.written.front(), tensor, 0);
    made.with_zeros.knowledge = std::min(knowledge, least);
  } catch (const std::exception&) {  // numbers of a type that has no such operators
    return std::nullopt;
  }
  return made;
}

bool keep_part(const c10::OperatorHandle& op, InPart& part, const at::Tensor& tensor) {
  if (!compute(op, part.with_zeros) || !compute(op, part.with_ones)) return false;
  const at::Tensor& with_zeros = part.with_zeros.written.front();
  try {
    const OnCpu on_cpu;
    write_values(tensor, with_zeros, part.with_zeros.knowledge);
    forget_where(tensor, with_zeros.ne(part.with_ones.written.front()));
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace gapless::simgpu
