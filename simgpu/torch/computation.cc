#include "simgpu/torch/computation.h"

#include <algorithm>
#include <exception>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/util/irange.h>

#include "simgpu/torch/drawn_numbers.h"
#include "simgpu/torch/guesses.h"
#include "simgpu/torch/operator_scope.h"
#include "simgpu/torch/tensors_in.h"

namespace gapless::simgpu {
namespace {

using Role = OperatorFacts::Role;

std::optional<at::Device> device_in(const c10::IValue* arguments, std::size_t count) {
  std::optional<at::Device> device;
  for (std::size_t i = 0; i < count && !device; ++i) {
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) device = tensor.device();
      return !device;
    });
    if (arguments[i].isDevice()) device = arguments[i].toDevice();
  }
  return device;
}

}  // namespace

int known_of(const at::Tensor& tensor, const OperatorFacts::Argument& fact) {
  const bool on_device = is_on_device(tensor);
  if (!on_device && !(tensor.is_cpu() && tensor.layout() == at::kStrided)) return kNone;
  if (fact.resized) return kKnown;
  if (!is_small(tensor)) return kNone;
  return on_device && fact.role != Role::writes ? knowledge_of(tensor) : kKnown;
}

int least_known(const OperatorFacts& facts, const c10::IValue* arguments, std::size_t from) {
  int least = kKnown;
  for (const std::size_t i : c10::irange(from, facts.arguments.size())) {
    const OperatorFacts::Argument& fact = facts.arguments[i];
    if (fact.role == Role::other) continue;
    const bool is_known = each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      least = std::min(least, known_of(tensor, fact));
      return least != kNone;
    });
    if (!is_known) return kNone;
  }
  return least;
}

std::vector<at::Tensor> written_by(const OperatorFacts& facts, const c10::IValue* arguments,
                                   bool computes) {
  std::vector<at::Tensor> written;
  if (!facts.writes) return written;
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    const Role role = facts.arguments[i].role;
    if (role != Role::writes && role != Role::reads_and_writes) continue;
    if (facts.arguments[i].tells_infinite && !computes) continue;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      written.push_back(tensor);
      return true;
    });
  }
  return written;
}

Computation prepare(const OperatorFacts& facts, const c10::IValue* arguments, int knowledge) {
  Computation made;
  made.knowledge = knowledge;
  for (const std::size_t i : c10::irange(facts.arguments.size())) {
    const OperatorFacts::Argument& fact = facts.arguments[i];
    if (static_cast<int>(i) == facts.generator) {
      const auto device = device_in(arguments, facts.arguments.size());
      made.stack.emplace_back(at::make_generator<at::CPUGeneratorImpl>(
          seed_for(arguments[i], device.value_or(at::Device(at::kCUDA, 0)))));
      // Any permutation is as good; of draws, others would come.
      if (facts.base != "aten::randperm") made.knowledge = std::min(made.knowledge, kLikely);
      continue;
    }
    if (arguments[i].isDevice()) {
      made.stack.emplace_back(at::Device(at::kCPU));
      continue;
    }
    made.stack.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) {
        if (fact.role != Role::reads) made.written.push_back(tensor);
        return tensor;
      }
      const at::Tensor twin =
          fact.resized ? at::Tensor(at::detail::empty_strided_cpu({0}, {1}, tensor.scalar_type()))
          : fact.role == Role::writes ? empty_twin_of(tensor)
                                      : twin_of(tensor);
      if (fact.role != Role::reads) made.written.push_back(twin);
      return twin;
    }));
  }
  return made;
}

bool compute(const c10::OperatorHandle& op, Computation& computation) {
  try {
    const OnCpu on_cpu;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &computation.stack);
    computation.done = true;
  } catch (const std::exception&) {
    // It cannot be had there, or is an error that a GPU asserts.
    computation.done = false;
  }
  return computation.done;
}

void keep(const OperatorFacts& facts, const Computation& computation, torch::jit::Stack& results,
          const std::vector<at::Tensor>& written) {
  const OnCpu on_cpu;
  const auto take = [&](const at::Tensor& there, const at::Tensor& here) {
    if (!is_on_device(there)) return;
    if (here.defined() && there.sizes() == here.sizes() &&
        there.scalar_type() == here.scalar_type()) {
      write_values(there, here, computation.knowledge);
    } else {
      forget_values(there);
    }
  };
  for (const std::size_t i : c10::irange(written.size())) take(written[i], computation.written[i]);
  const std::size_t first = results.size() - facts.fresh.size();
  for (const std::size_t i : c10::irange(facts.fresh.size())) {
    c10::IValue& there = results[first + i];
    if (!facts.fresh[i]) {
      if (!there.isTensor() && !there.isList()) there = computation.stack[i];  // aten::equal's
      continue;
    }
    std::vector<at::Tensor> here;
    each_tensor(computation.stack[i], [&](const at::Tensor& tensor) {
      here.push_back(tensor);
      return true;
    });
    std::size_t next = 0;
    each_tensor(there, [&](const at::Tensor& tensor) {
      take(tensor, next < here.size() ? here[next] : at::Tensor());
      ++next;
      return true;
    });
  }
}

}  // namespace gapless::simgpu
