#include "simgpu/torch/drawn_numbers.h"

#include "simgpu/torch/storage_notes.h"

namespace gapless::simgpu {
namespace {

StorageNotes<double, 8>& drawn() {
  static auto& all = *new StorageNotes<double, 8>;  // as long as there are tensors
  return all;
}

bool may_be_drawn(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() && tensor.has_storage();
}

std::optional<double> drawn_by(const OperatorFacts& facts, const c10::IValue* arguments) {
  const bool normal = facts.name == "aten::normal_";
  if (!normal && facts.name != "aten::uniform_") return std::nullopt;
  if (!arguments[1].isDouble() || !arguments[2].isDouble()) return std::nullopt;
  const double first = arguments[1].toDouble();
  const double second = arguments[2].toDouble();
  return normal ? first + second / 2 : (first + second) / 2;
}

}  // namespace

void note_written(const OperatorFacts& facts, const c10::IValue* arguments,
                  const at::Tensor& written) {
  if (!may_be_drawn(written)) return;
  if (const auto like = drawn_by(facts, arguments)) return drawn().note(written, *like);
  drawn().forget(written);
}

std::optional<double> drawn_number(const at::Tensor& tensor) {
  return may_be_drawn(tensor) ? drawn().of(tensor) : std::nullopt;
}

}  // namespace gapless::simgpu
