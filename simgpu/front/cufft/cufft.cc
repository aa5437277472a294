// libcufft.so.12: plans are numbers; each has a stream. Work areas are not known, and none here.
#include <cstddef>
#include <map>

#include "simgpu/process/library_handle.h"
#include "simgpu/process/process.h"

#define CUFFT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidPlan = 1;

// The stream of each plan; by the lock of the process.
std::map<int, void*>& plans() {
  static auto& known = *new std::map<int, void*>;  // used until the very end of the process
  return known;
}

int make_plan(std::size_t* work_bytes) {
  simgpu_guess("libcufft.so.12");
  if (work_bytes != nullptr) *work_bytes = 0;
  return kSuccess;
}

int execute(int plan) {
  const gapless::simgpu::Entry entry;
  const auto found = plans().find(plan);
  if (found == plans().end()) return kInvalidPlan;
  gapless::simgpu::submit_library_work(found->second);
  return kSuccess;
}

}  // namespace

CUFFT int cufftCreate(int* plan) {
  const gapless::simgpu::Entry entry;
  static int next = 1;
  *plan = next++;
  plans()[*plan] = nullptr;
  return kSuccess;
}
CUFFT int cufftDestroy(int plan) {
  const gapless::simgpu::Entry entry;
  return plans().erase(plan) != 0 ? kSuccess : kInvalidPlan;
}
CUFFT int cufftSetStream(int plan, void* stream) {
  const gapless::simgpu::Entry entry;
  const auto found = plans().find(plan);
  if (found == plans().end()) return kInvalidPlan;
  found->second = stream;
  return kSuccess;
}
CUFFT int cufftSetAutoAllocation(int, int) { return kSuccess; }
CUFFT int cufftSetWorkArea(int, void*) { return kSuccess; }
CUFFT int cufftGetSize(int, std::size_t* bytes) { return make_plan(bytes); }
CUFFT int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int,
                              long long*, long long, long long, int, long long,
                              std::size_t* work_bytes, int) {
  return make_plan(work_bytes);
}
CUFFT int cufftMakePlanMany(int, int, int*, int*, int, int, int*, int, int, int, int,
                            std::size_t* work_bytes) {
  return make_plan(work_bytes);
}
CUFFT int cufftXtExec(int plan, void*, void*, int) { return execute(plan); }
CUFFT int cufftExecC2C(int plan, void*, void*, int) { return execute(plan); }
CUFFT int cufftExecZ2Z(int plan, void*, void*, int) { return execute(plan); }
CUFFT int cufftExecR2C(int plan, void*, void*) { return execute(plan); }
CUFFT int cufftExecD2Z(int plan, void*, void*) { return execute(plan); }
CUFFT int cufftExecC2R(int plan, void*, void*) { return execute(plan); }
CUFFT int cufftExecZ2D(int plan, void*, void*) { return execute(plan); }
CUFFT int cufftGetVersion(int* version) {
  *version = 12000;
  return kSuccess;
}
