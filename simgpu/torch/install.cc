// Puts a ValueKernel in the place of every CUDA kernel that is in torch's dispatcher, and a
// SparseKernel in that of those for sparse tensors.
//
// aten::copy_ and what else has one kernel for all devices that launches CUDA's directly gets one
// for CUDA. The dispatcher keeps what was there before, and would warn of it: that is not the
// program's doing.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "simgpu/torch/sparse_kernel.h"
#include "simgpu/torch/value_kernel.h"

namespace gapless::simgpu {
namespace {

class Quiet final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

template <class Kernel>
void put(const c10::OperatorName& name, c10::DispatchKey key, std::unique_ptr<Kernel> kernel) {
  // Kept for as long as the process runs: other libraries' destructors still use operators.
  static auto* const registered = new std::vector<c10::RegistrationHandleRAII>;
  registered->push_back(c10::Dispatcher::singleton().registerImpl(
      name, key, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), std::nullopt,
      nullptr, "the simulated GPU's"));
}

void install_for(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op || has_no_values(*op)) return;
  put(name, c10::DispatchKey::CUDA,
      std::make_unique<ValueKernel>(OperatorFacts::of(*op),
                                    op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA)));
}

void install_for_sparse(const c10::OperatorName& name, c10::DispatchKey key) {
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op || !is_for_sparse(*op)) return;
  put(name, key, std::make_unique<SparseKernel>(*op, op->getComputedKernelForDispatchKey(key)));
}

}  // namespace
}  // namespace gapless::simgpu

extern "C" SIMGPU_API void simgpu_torch_install() {
  static auto* const done = new std::set<std::string>;  // by the caller's lock
  gapless::simgpu::Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> names =
      dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA);
  if (done->empty()) names.emplace_back("aten::copy_", "");
  for (const c10::OperatorName& name : names) {
    if (!done->insert(name.name + "." + name.overload_name).second) continue;
    gapless::simgpu::install_for(name);
  }
  for (const auto key : {c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCsrCUDA}) {
    for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(key)) {
      const std::string whole = name.name + "." + name.overload_name;
      if (!done->insert(c10::toString(key) + std::string(" ") + whole).second) continue;
      gapless::simgpu::install_for_sparse(name, key);
    }
  }
}
