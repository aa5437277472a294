// Kernels: registered in their tens of thousands at import, launched to do nothing but make unknown
// what others than PyTorch's operators may have written. What those compute is known another way
// (simgpu/torch).
//
// Host code of CUDA 13 asks for a handle once (__cudaGetKernel) and launches that; older objects
// launch the host function itself. A handle here is the host function.
#include <cstring>

#include "simgpu/front/cudart/common.h"
#include "simgpu/process/fat_binary.h"
#include "simgpu/process/kernel_parameters.h"
#include "simgpu/process/kernel_writes.h"
#include "simgpu/process/values.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

struct CallConfiguration {
  abi::Dim3 grid;
  abi::Dim3 block;
  std::size_t shared_bytes;
  void* stream;
};

std::vector<CallConfiguration>& configurations() {
  thread_local std::vector<CallConfiguration> stack;
  return stack;
}

// What nvcc writes for each file with kernels.
struct FatBinaryWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fat_binary;
  void* unused;
};

const ParameterSizes& parameters_of(const Kernel& kernel) {
  RegisteredModule& module = *kernel.module;
  if (!module.read) {
    module.read = true;
    // Its kernels are the same for every architecture; some have images of few of them only.
    for (const DeviceImage& image :
         device_images(module.fat_binary, DeviceImage::Kind::machine_code)) {
      module.parameters.merge(kernel_parameters(image.bytes.data()));
    }
  }
  return module.parameters[kernel.name];
}

std::function<void()> forgets(Process& process, const Kernel& kernel, void** arguments) {
  if (simgpu_operator()->operators != 0) return {};
  return forgets_what_it_writes(process.memory, kernel.name, parameters_of(kernel), arguments);
}

int launch(const void* function, void** arguments, void* handle) {
  const Entry entry;
  Process& process = entry.process;
  Stream* stream = stream_of(process, handle);
  if (stream == nullptr) return answer(abi::invalid_resource_handle);
  auto& kernels = Process::registered().kernels;
  const auto kernel = kernels.find(function);
  const bool known = kernel != kernels.end() && arguments != nullptr;
  const std::uint64_t busy_ns = known ? duration_ns(kernel->second, arguments) : 0;
  process.streams.submit(
      *stream, NodeKind::kernel,
      known ? forgets(process, kernel->second, arguments) : std::function<void()>(), busy_ns,
      function);
  if (stream->capture) simgpu_operator()->graph = stream->capture->graph;
  return abi::success;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names, which nvcc calls
CUDART void** __cudaRegisterFatBinary(void* wrapper) {
  const std::scoped_lock lock(Process::mutex);
  auto* const module = new RegisteredModule;
  if (wrapper != nullptr) module->fat_binary = static_cast<FatBinaryWrapper*>(wrapper)->fat_binary;
  return reinterpret_cast<void**>(module);
}
CUDART void __cudaRegisterFatBinaryEnd(void**) {}
CUDART void __cudaUnregisterFatBinary(void** handle) {
  // Its kernels may be asked for by name still; its code is gone.
  const std::scoped_lock lock(Process::mutex);
  auto* const module = reinterpret_cast<RegisteredModule*>(handle);
  module->fat_binary = nullptr;
}
CUDART char __cudaInitModule(void**) { return 1; }
CUDART void __cudaRegisterFunction(void** handle, const char* host_function, char*,
                                   const char* name, int, void*, void*, void*, void*, int*) {
  const std::scoped_lock lock(Process::mutex);
  Process::registered().kernels[host_function] = {name, host_function,
                                                  reinterpret_cast<RegisteredModule*>(handle)};
}
CUDART void __cudaRegisterVar(void**, char* host_variable, char*, const char*, int,
                              std::size_t bytes, int, int) {
  const std::scoped_lock lock(Process::mutex);
  Process::registered().variable_bytes[host_variable] = bytes;
}
CUDART void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int,
                                     int) {}

CUDART unsigned __cudaPushCallConfiguration(abi::Dim3 grid, abi::Dim3 block,
                                            std::size_t shared_bytes, void* stream) {
  configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}
CUDART int __cudaPopCallConfiguration(abi::Dim3* grid, abi::Dim3* block, std::size_t* shared_bytes,
                                      void* stream) {
  if (configurations().empty()) return answer(abi::unknown);
  const CallConfiguration top = configurations().back();
  configurations().pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return abi::success;
}

CUDART int __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return abi::success;
}
CUDART int cudaGetKernel(void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}
CUDART int __cudaLaunchKernel(void* kernel, abi::Dim3, abi::Dim3, void** arguments, std::size_t,
                              void* stream) {
  return launch(kernel, arguments, stream);
}
CUDART int cudaLaunchKernel(const void* function, abi::Dim3, abi::Dim3, void** arguments,
                            std::size_t, void* stream) {
  return launch(function, arguments, stream);
}
CUDART int cudaLaunchCooperativeKernel(const void* function, abi::Dim3, abi::Dim3, void** arguments,
                                       std::size_t, void* stream) {
  return launch(function, arguments, stream);
}
CUDART int cudaLaunchKernelExC(const abi::LaunchConfig* config, const void* function,
                               void** arguments) {
  return launch(function, arguments, config->stream);
}

// --- what a kernel is ----------------------------------------------------------------------------

CUDART int cudaFuncGetAttributes(abi::FuncAttributes* attributes, const void*) {
  const Entry entry;
  const GpuProfile& gpu = entry.process.gpu(Process::current());
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  // The highest architecture that wheels are built for and the device can run: torch refuses to
  // train where its kernels seem to be for another one.
  const int version = gpu.major * 10 + gpu.minor;
  int built = 70;
  for (const int known : {75, 80, 86, 90, 100, 120}) {
    if (known <= version) built = known;
  }
  attributes->ptxVersion = attributes->binaryVersion = built;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(gpu.shared_per_block_optin_bytes);
  return abi::success;
}
CUDART int cudaFuncSetAttribute(const void*, int, int) { return abi::success; }
CUDART int cudaFuncSetCacheConfig(const void*, int) { return abi::success; }
CUDART int cudaKernelSetAttributeForDevice(void*, int, int, int) { return abi::success; }
CUDART int cudaFuncGetName(const char** name, const void* function) {
  const Entry entry;
  const auto& kernels = Process::registered().kernels;
  const auto found = kernels.find(function);
  if (found == kernels.end()) return answer(abi::invalid_device_function);
  *name = found->second.name.c_str();
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                         std::size_t) {
  const Entry entry;
  const int threads = entry.process.gpu(Process::current()).threads_per_multiprocessor;
  *blocks = block_size <= 0 ? 1 : std::max(1, threads / block_size);
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                  int block_size,
                                                                  std::size_t shared_bytes,
                                                                  unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared_bytes);
}
CUDART int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void*, int, int) {
  const Entry entry;
  *bytes = entry.process.gpu(Process::current()).shared_per_block_optin_bytes;
  return abi::success;
}
CUDART int cudaOccupancyMaxActiveClusters(int* clusters, const void*, const abi::LaunchConfig*) {
  *clusters = 1;
  return abi::success;
}
// NOLINTEND(bugprone-reserved-identifier)
