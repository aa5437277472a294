// ValueKernel: stands in the place of one operator's CUDA kernel, which it holds.
//
//   aten::add.Tensor on two CUDA tensors
//     all numbers known, and few:   their twins -> the same operator on the CPU  -> numbers
//     always:                       the CUDA kernel, which allocates as ever     -> memory
//     afterwards                    that memory holds those numbers; or nobody knows them
//
// In torch's dispatcher it is what it replaces: autograd, autocast, threads and compiled graphs
// come to it as they would to the kernel.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "simgpu/process/values.h"
#include "simgpu/torch/operator_facts.h"

namespace gapless::simgpu {

class ValueKernel final : public c10::OperatorKernel {
 public:
  ValueKernel(OperatorFacts facts, c10::SafeKernelFunction kernel);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  using Stack = torch::jit::Stack;

  /// Calls f(tensor) for what the operator has made or written to on the device; false where f was.
  template <class F>
  bool each_made(const Stack& results, const std::vector<at::Tensor>& written, F&& f) const;
  void forget(const Stack& results, const std::vector<at::Tensor>& written) const;
  void note_captured(void* graph, const Stack& results,
                     const std::vector<at::Tensor>& written) const;
  [[nodiscard]] std::optional<std::int64_t> most_of_size(const c10::IValue* arguments) const;
  /// And the least, which is taken without.
  [[nodiscard]] std::int64_t least_size(const c10::IValue* arguments) const;
  [[nodiscard]] std::int64_t told_size(const c10::IValue* arguments) const;
  [[nodiscard]] std::optional<std::int64_t> dim_given(const c10::IValue* arguments) const;
  /// Where nobody knows the numbers, every matrix can be factored: the program that is asked about
  /// works.
  void keep_no_failures(const Stack& results) const;
  /// The one result, of flags that are certain, is that number everywhere.
  void keep_certain(std::int64_t value, const Stack& results) const;
  [[nodiscard]] bool counts_unknown(const c10::IValue* arguments) const;
  void guess(const std::vector<c10::IValue>& arguments, const Stack& results) const;
  const c10::IValue* compared_with(const c10::IValue* arguments) const;
  bool only_asks_if_finite(const c10::IValue* arguments) const;
  void read_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const;

  OperatorFacts facts_;
  c10::SafeKernelFunction kernel_;
};

}  // namespace gapless::simgpu
