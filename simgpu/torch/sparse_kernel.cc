#include "simgpu/torch/sparse_kernel.h"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string_view>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_ops.h>

#include "simgpu/torch/device_tensor.h"
#include "simgpu/torch/operator_facts.h"
#include "simgpu/torch/operator_scope.h"

namespace gapless::simgpu {
namespace {

bool is_sparse_on_device(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda() &&
         value.toTensor().is_sparse();
}

bool is_compressed(const at::Tensor& tensor) {
  const at::Layout layout = tensor.layout();
  return layout == at::kSparseCsr || layout == at::kSparseCsc || layout == at::kSparseBsr ||
         layout == at::kSparseBsc;
}

// The arguments on the CPU, and what is known of them.
struct Twins {
  torch::jit::Stack stack;
  int knowledge = kKnown;
  bool with_values = true;  // else the places alone are right
};

// Of a tensor whose places are known. Where its values are not, each is one zero.
at::Tensor sparse_twin(const at::Tensor& tensor, bool with_values) {
  const at::Tensor indices = twin_of(tensor._indices());
  const std::int64_t dense = with_values ? tensor.dense_dim() : 0;
  at::Tensor values;
  if (with_values) {
    values = twin_of(tensor._values());
  } else {
    values = at::Tensor(at::detail::empty_cpu({indices.size(1)}, tensor.scalar_type()));
    values.zero_();
  }
  const auto sizes = tensor.sym_sizes().slice(0, tensor.sparse_dim() + dense);
  return at::_ops::_sparse_coo_tensor_with_dims_and_tensors::call(
      tensor.sparse_dim(), dense, sizes, indices, values, tensor.scalar_type(), at::kSparse,
      at::Device(at::kCPU), /*pin_memory=*/false, tensor.is_coalesced());
}

std::optional<Twins> twins_of(const c10::IValue* arguments, std::size_t count) {
  Twins made;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_sparse_on_device(arguments[i])) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    const at::Tensor indices = tensor._indices();
    const at::Tensor values = tensor._values();
    if (!is_on_device(indices) || !is_small(indices)) return std::nullopt;
    made.knowledge = std::min(made.knowledge, knowledge_of(indices));
    if (made.knowledge == kNone) return std::nullopt;
    made.with_values = made.with_values && is_on_device(values) && is_small(values) &&
                       knowledge_of(values) != kNone;
  }
  for (std::size_t i = 0; i < count; ++i) {
    made.stack.push_back(is_sparse_on_device(arguments[i])
                             ? sparse_twin(arguments[i].toTensor(), made.with_values)
                             : arguments[i]);
  }
  return made;
}

// The result that the CPU's operator has.
at::Tensor computed(const c10::OperatorHandle& op, Twins& twins) {
  try {
    op.callBoxed(&twins.stack);
    return twins.stack.back().toTensor();
  } catch (const std::exception&) {  // it cannot be had there
    return {};
  }
}

// No more places than that, where nobody knows which.
std::int64_t most_places(const c10::IValue* arguments, std::size_t count) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_sparse_on_device(arguments[i])) {
      most = std::max(most, arguments[i].toTensor()._nnz());
    }
  }
  return most;
}

bool is_sized_by_indices(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 5> kNames = {
      "aten::_coalesce", "aten::_sparse_sparse_matmul", "aten::_sparse_mask_projection",
      "aten::mul", "aten::mul_"};
  return std::find(kNames.begin(), kNames.end(), op.schema().name()) != kNames.end();
}

std::vector<at::Tensor> indices_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return {tensor._indices()};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {tensor.crow_indices(), tensor.col_indices()};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {tensor.ccol_indices(), tensor.row_indices()};
    default:
      return {};
  }
}

// A dense tensor's are itself.
at::Tensor numbers_of(const at::Tensor& tensor) {
  return tensor.is_sparse() ? tensor._values() : is_compressed(tensor) ? tensor.values() : tensor;
}

void forget_dense(const at::Tensor& tensor) {
  if (is_on_device(tensor)) forget_values(tensor);
}

}  // namespace

bool is_for_sparse(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  const bool makes = std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType;
  });
  return makes && !has_no_values(op) && op.schema().name() != "aten::copy_";
}

SparseKernel::SparseKernel(const c10::OperatorHandle& op, c10::SafeKernelFunction kernel)
    : kernel_(std::move(kernel)),
      sized_(is_sized_by_indices(op)),
      selects_(op.schema().name() == "aten::index_select") {
  for (const c10::Argument& argument : op.schema().arguments()) {
    reads_.push_back(argument.type()->kind() == c10::TypeKind::TensorType &&
                     argument.alias_info() == nullptr);
  }
}

void SparseKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              Stack* stack) {
  if (simgpu_captures()) return kernel_.callBoxed(op, keys, stack);
  const c10::IValue* const arguments = stack->data() + (stack->size() - reads_.size());
  bool sized = sized_;
  int compressed = 0;
  std::vector<at::Tensor> unchanged;
  {
    const OnCpu on_cpu;
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
      const at::Tensor& tensor = arguments[i].toTensor();
      sized = sized && is_sparse_on_device(arguments[i]);
      if (!reads_[i]) continue;
      if (is_compressed(tensor)) ++compressed;
      if (tensor.is_cuda()) unchanged.push_back(numbers_of(tensor));
    }
  }
  if (sized) return call_sized(op, keys, stack);
  {
    Inside inside(/*computes=*/false);
    inside.where().reads = kSize;
    kernel_.callBoxed(op, keys, stack);
  }
  // How many places two of these make is cuSPARSE's to say, which computes nothing here.
  const bool places_unknown = selects_ || compressed > 1;
  if (places_unknown) simgpu_estimated(kSize);
  const OnCpu on_cpu;
  for (std::size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined()) continue;
    const at::Tensor& result = (*stack)[i].toTensor();
    const at::Tensor values = numbers_of(result);
    const bool is_argument =
        std::any_of(unchanged.begin(), unchanged.end(), [&](const at::Tensor& tensor) {
          return tensor.has_storage() && tensor.is_alias_of(values);
        });
    if (!is_argument) forget_dense(values);
    if (!places_unknown) continue;  // they came from the arguments', by operators of their own
    for (const at::Tensor& indices : indices_of(result)) forget_dense(indices);
  }
}

void SparseKernel::call_sized(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              Stack* stack) const {
  const std::size_t count = reads_.size();
  const c10::IValue* const arguments = stack->data() + (stack->size() - count);
  const std::int64_t most = most_places(arguments, count);
  std::optional<Twins> twins;
  at::Tensor made;
  {
    const OnCpu on_cpu;
    twins = twins_of(arguments, count);
    if (twins) made = computed(op, *twins);
  }
  Inside inside(/*computes=*/true);
  inside.where().has_answer = true;
  inside.where().answer = made.defined() ? made._nnz() : most;
  kernel_.callBoxed(op, keys, stack);
  const at::Tensor& result = stack->back().toTensor();
  const OnCpu on_cpu;
  const at::Tensor indices = result._indices();
  const at::Tensor values = result._values();
  forget_dense(indices);
  forget_dense(values);
  if (!made.defined() || result._nnz() != made._nnz()) {
    const bool all_differ = !made.defined() && result._nnz() == most;
    simgpu_estimated(all_differ && takes_most() ? kBound : kSize);
    return;
  }
  if (twins->knowledge != kKnown) simgpu_estimated(kSize);
  write_values(indices, made._indices(), twins->knowledge);
  if (twins->with_values) write_values(values, made._values(), twins->knowledge);
}

}  // namespace gapless::simgpu
