#include "simgpu/torch/certain_flags.h"

#include "simgpu/torch/storage_notes.h"

namespace gapless::simgpu {
namespace {

struct AllAre {
  bool value = false;
  std::uint32_t version = 0;  // of the tensor, when that was so
};

// A check makes a few and asks at once.
StorageNotes<AllAre, 64>& noted() {
  static auto& all = *new StorageNotes<AllAre, 64>;  // as long as there are tensors
  return all;
}

// Of tensors whose version nobody counts, it is not seen where they are written to.
std::optional<std::uint32_t> version_of(const at::Tensor& tensor) {
  if (tensor.is_inference()) return std::nullopt;
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

bool is_flags(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() && tensor.scalar_type() == at::kBool &&
         tensor.has_storage();
}

std::optional<bool> certain_of(const c10::IValue& value) {
  return value.isTensor() ? certain(value.toTensor()) : std::nullopt;
}

}  // namespace

bool finite_answer(const std::string& base, const c10::IValue* compared_with) {
  if (compared_with == nullptr) return false;
  if (compared_with->isTensor()) {  // itself
    return base == "aten::eq" || base == "aten::le" || base == "aten::ge";
  }
  const bool above = compared_with->toScalar().toDouble() > 0;
  const bool is_less = base == "aten::lt" || base == "aten::le";
  const bool is_more = base == "aten::gt" || base == "aten::ge";
  return base == "aten::ne" || (above ? is_less : is_more);
}

void note_certain(const at::Tensor& flags, bool value) {
  const auto version = is_flags(flags) ? version_of(flags) : std::nullopt;
  // What lies in others' memory is not fresh.
  if (!version || flags.storage_offset() != 0 ||
      flags.storage().nbytes() != static_cast<std::size_t>(flags.numel())) {
    return;
  }
  noted().note(flags, {value, *version});
}

std::optional<bool> certain(const at::Tensor& flags) {
  if (!is_flags(flags)) return std::nullopt;
  const auto found = noted().of(flags);
  if (!found || version_of(flags) != found->version) return std::nullopt;
  return found->value;
}

std::optional<std::int64_t> follows_from_certain(const OperatorFacts& facts,
                                                 const c10::IValue* arguments) {
  if (!noted().any() || facts.arguments.empty()) return std::nullopt;
  const auto first = certain_of(arguments[0]);
  if (!first) return std::nullopt;
  const std::string& base = facts.base;
  if (base == "aten::any" || base == "aten::all") return *first;
  if (base == "aten::logical_not" || base == "aten::bitwise_not") return !*first;
  if (base == "aten::sum" || base == "aten::count_nonzero") {
    return *first ? arguments[0].toTensor().numel() : 0;
  }
  if (facts.arguments.size() < 2) return std::nullopt;
  const auto second = certain_of(arguments[1]);
  if (!second) return std::nullopt;
  if (base == "aten::mul" || base == "aten::bitwise_and" || base == "aten::logical_and") {
    return *first && *second;
  }
  if (base == "aten::bitwise_or" || base == "aten::logical_or") return *first || *second;
  return std::nullopt;
}

}  // namespace gapless::simgpu
