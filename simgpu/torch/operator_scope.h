// Inside an operator: what stands in the place of a kernel tells the simulated GPU where the thread
// is, and computes with the CPU's operators.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "simgpu/process/values.h"

namespace gapless::simgpu {

// Estimate of process_record.h.
constexpr int kNumber = 0;
constexpr int kInteger = 1;
constexpr int kBound = 2;
constexpr int kFlag = 3;
constexpr int kSize = 4;

/// Whether as many are taken to be chosen as there can be (--unknown most).
inline bool takes_most() {
  static const bool most = simgpu_unknown().most;
  return most;
}

/// The CPU's operators run by themselves: no autograd, no autocast, nobody who listens.
class OnCpu {
  c10::impl::ForceDispatchKeyGuard keys_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
          c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView)};
  at::DisableRecordFunctionGuard unheard_;
};

/// Inside an operator, for the calling thread.
class Inside {
 public:
  explicit Inside(bool computes) : where_(*simgpu_operator()), before_(where_) {
    ++where_.operators;
    if (computes) ++where_.computing;
    where_.graph = nullptr;
  }
  ~Inside() {
    void* const graph = where_.graph != nullptr ? where_.graph : before_.graph;
    where_ = before_;
    where_.graph = graph;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  SimgpuOperator& where() { return where_; }

 private:
  SimgpuOperator& where_;
  SimgpuOperator before_;
};

}  // namespace gapless::simgpu
