#include "simgpu/torch/index_checks.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/core/List.h>

#include "simgpu/torch/device_tensor.h"
#include "simgpu/torch/operator_scope.h"

namespace gapless::simgpu {
namespace {

// As their kernels assert it (Indexing.cu, ScatterGatherKernel.cu, IndexKernel.cu, NLLLoss.cu).
constexpr std::array<std::string_view, 8> kAlongDim = {
    "index_select",   "gather",    "scatter",    "scatter_add",
    "scatter_reduce", "index_add", "index_copy", "index_fill"};
constexpr std::array<std::string_view, 3> kLists = {"index", "index_put", "_index_put_impl"};
constexpr std::array<std::string_view, 2> kTargets = {"nll_loss_forward", "nll_loss2d_forward"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of more it would take too long: a graph's million edges are looked up dozens of times in a step.
// So many are the tokens of 64 texts of 4,096.
constexpr std::int64_t kMostIndices = 1 << 18;

// Numbers that may be looked at: nothing where any of them is not known.
std::optional<at::Tensor> known_numbers(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.numel() > kMostIndices)
    return std::nullopt;
  if (tensor.is_cpu()) return tensor.to(at::kLong).contiguous();
  if (!is_on_device(tensor) || knowledge_of(tensor) != kKnown) return std::nullopt;
  return twin_of(tensor).to(at::kLong).contiguous();
}

// The first that is not from `least` to below `end`, and not `ignored`.
std::optional<std::int64_t> first_outside(const at::Tensor& indices, std::int64_t least,
                                          std::int64_t end, std::optional<std::int64_t> ignored) {
  const std::optional<at::Tensor> numbers = known_numbers(indices);
  if (!numbers) return std::nullopt;
  const auto* const begin = numbers->const_data_ptr<std::int64_t>();
  const auto* const behind = begin + numbers->numel();
  const auto* const found = std::find_if(begin, behind, [&](std::int64_t index) {
    return (index < least || index >= end) && index != ignored;
  });
  return found == behind ? std::nullopt : std::optional(*found);
}

std::string text_of(const char* what, std::int64_t index, const std::string& name,
                    std::int64_t count) {
  return what + (" " + std::to_string(index)) + " in " + name + ", where there are " +
         std::to_string(count);
}

}  // namespace

IndexCheck IndexCheck::of(const c10::OperatorHandle& op) {
  IndexCheck check;
  const c10::FunctionSchema& schema = op.schema();
  std::string_view name = schema.name();
  if (!name.starts_with("aten::")) return check;
  name.remove_prefix(6);
  if (name.ends_with('_')) name.remove_suffix(1);
  const auto place = [&](const char* argument) { return schema.argumentIndexWithName(argument); };
  if (is_one_of(name, kAlongDim) && place("dim") && place("index")) {
    check.kind_ = Kind::along_dim;
    check.index_ = static_cast<std::size_t>(*place("index"));
    check.dim_ = static_cast<std::size_t>(*place("dim"));
    check.from_end_ = name == "index_fill";
  } else if (is_one_of(name, kLists) && place("indices")) {
    check.kind_ = Kind::list;
    check.index_ = static_cast<std::size_t>(*place("indices"));
    check.from_end_ = true;
  } else if (is_one_of(name, kTargets) && place("target") && place("ignore_index")) {
    check.kind_ = Kind::target;
    check.index_ = static_cast<std::size_t>(*place("target"));
    check.ignore_ = static_cast<std::size_t>(*place("ignore_index"));
  }
  check.name_ = name;
  return check;
}

std::optional<std::string> IndexCheck::failure(const c10::IValue* arguments) const {
  if (kind_ == Kind::none || !arguments[0].isTensor()) return std::nullopt;
  const at::Tensor& from = arguments[0].toTensor();
  if (!from.is_cuda() || from.dim() == 0) return std::nullopt;
  const OnCpu on_cpu;
  const auto outside = [&](const at::Tensor& indices, std::int64_t count) {
    return first_outside(indices, from_end_ ? -count : 0, count, std::nullopt);
  };
  if (kind_ == Kind::target) {
    const std::int64_t classes = from.size(from.dim() == 1 ? 0 : 1);
    const auto label =
        first_outside(arguments[index_].toTensor(), 0, classes, arguments[ignore_].toInt());
    if (label) return text_of("class", *label, name_, classes);
    return std::nullopt;
  }
  if (kind_ == Kind::along_dim) {
    if (!arguments[dim_].isInt() || !arguments[index_].isTensor()) return std::nullopt;
    const std::int64_t dim = arguments[dim_].toInt();
    const std::int64_t count = from.size(dim);
    if (const auto index = outside(arguments[index_].toTensor(), count)) {
      return text_of("index", *index, name_, count);
    }
    return std::nullopt;
  }
  std::int64_t dim = 0;
  for (const c10::IValue& each : arguments[index_].toListRef()) {
    const at::Tensor indices = each.isTensor() ? each.toTensor() : at::Tensor();
    const bool is_mask = indices.defined() &&
                         (indices.scalar_type() == at::kBool || indices.scalar_type() == at::kByte);
    if (dim >= from.dim()) break;
    if (indices.defined() && !is_mask) {
      if (const auto index = outside(indices, from.size(dim))) {
        return text_of("index", *index, name_, from.size(dim));
      }
    }
    dim += is_mask ? indices.dim() : 1;
  }
  return std::nullopt;
}

}  // namespace gapless::simgpu
