// cudaGetDriverEntryPoint: names of the driver's functions to what libcuda.so.1 has, which is
// loaded beside this library.
#include "simgpu/front/cudart/common.h"
#include "simgpu/process/driver_function.h"

using namespace gapless::simgpu;

namespace {

constexpr int kNewest = 13000;

int entry_point(const char* name, void** function, int version, int* status) {
  *function = driver_function(name, version);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;  // symbol not found: success
  return abi::success;
}

}  // namespace

CUDART int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                   int* status) {
  return entry_point(name, function, kNewest, status);
}
CUDART int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                            unsigned long long, int* status) {
  return entry_point(name, function, static_cast<int>(version), status);
}
