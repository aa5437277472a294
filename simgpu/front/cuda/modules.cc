// Modules and kernels that are loaded by hand: Triton's, nvrtc's, Inductor's. Launched, they do
// nothing.
//
// Module, library, function and kernel are each a record of ours; a function's name is kept.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <elf.h>

#include "simgpu/front/cuda/common.h"
#include "simgpu/process/fat_binary.h"
#include "simgpu/process/kernel_parameters.h"
#include "simgpu/process/kernel_writes.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

struct Function {
  std::string name;
  ParameterSizes parameters;
};

struct Module {
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;
  std::unordered_map<std::string, ParameterSizes> parameters;
};

// CUlaunchConfig up to its stream: grid and block (3 unsigned each), bytes of shared memory.
struct LaunchConfig {
  unsigned dims[6];
  unsigned shared_bytes;
  void* stream;
};

// `image`: an ELF file or a fat binary; null where it is not at hand.
int load(void** module, const void* image) {
  const Entry entry;
  entry.process.memory.ensure_context(Process::current());
  auto* const made = new Module;
  made->parameters = kernel_parameters(image);
  for (const DeviceImage& found : device_images(image, DeviceImage::Kind::machine_code)) {
    made->parameters.merge(kernel_parameters(found.bytes.data()));
  }
  *module = made;
  return kSuccess;
}

int function_of(void** function, void* handle, const char* name) {
  const Entry entry;
  if (handle == nullptr) return kInvalidHandle;
  auto* const module = static_cast<Module*>(handle);
  auto& known = module->functions[name];
  if (known == nullptr)
    known = std::make_unique<Function>(Function{name, module->parameters[name]});
  *function = known.get();
  return kSuccess;
}

int launch(void* function, void** arguments, void* stream_handle) {
  const Entry entry;
  Stream* stream = entry.process.streams.find(stream_handle, Process::current());
  if (function == nullptr || stream == nullptr) return kInvalidHandle;
  const auto& launched = *static_cast<const Function*>(function);
  entry.process.streams.submit(
      *stream, NodeKind::kernel,
      forgets_what_it_writes(entry.process.memory, launched.name, launched.parameters, arguments),
      0, function);
  return kSuccess;
}

// CUfunction_attribute: 0 threads per block, 1 static shared, 3 local bytes, 4 registers, 5 PTX and
// 6 binary version, 8 dynamic shared.
int attribute_of(int* value, int attribute) {
  const Entry entry;
  const GpuProfile& gpu = entry.process.gpu(Process::current());
  switch (attribute) {
    case 0:
      *value = 1024;
      break;
    case 4:
      *value = 32;
      break;
    case 5:
    case 6:
      *value = gpu.major * 10 + gpu.minor;
      break;
    case 8:
      *value = static_cast<int>(gpu.shared_per_block_optin_bytes);
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

int active_blocks(int* blocks, int block_size) {
  const Entry entry;
  const int threads = entry.process.gpu(Process::current()).threads_per_multiprocessor;
  *blocks = block_size <= 0 ? 1 : std::max(1, threads / block_size);
  return kSuccess;
}

}  // namespace

CUDA int cuModuleLoad(void** module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  image.resize(std::max(image.size(), sizeof(Elf64_Ehdr)));  // as much is read in any case
  return load(module, image.data());
}
CUDA int cuModuleLoadData(void** module, const void* image) { return load(module, image); }
CUDA int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return load(module, image);
}
CUDA int cuModuleLoadFatBinary(void** module, const void* image) { return load(module, image); }
CUDA int cuModuleUnload(void* module) {
  delete static_cast<Module*>(module);
  return kSuccess;
}
CUDA int cuModuleGetFunction(void** function, void* module, const char* name) {
  return function_of(function, module, name);
}
CUDA int cuModuleGetGlobal_v2(std::uint64_t*, std::size_t*, void*, const char*) {
  return kNotFound;
}
CUDA int cuModuleGetLoadingMode(int* mode) {
  *mode = 1;  // eager
  return kSuccess;
}
CUDA int cuLibraryLoadData(void** library, const void* image, int*, void**, unsigned, int*, void**,
                           unsigned) {
  return load(library, image);
}
CUDA int cuLibraryLoadFromFile(void** library, const char*, int*, void**, unsigned, int*, void**,
                               unsigned) {
  return load(library, nullptr);
}
CUDA int cuLibraryUnload(void* library) { return cuModuleUnload(library); }
CUDA int cuLibraryGetModule(void** module, void* library) {
  *module = library;
  return kSuccess;
}
CUDA int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return function_of(kernel, library, name);
}
CUDA int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}
CUDA int cuKernelGetAttribute(int* value, int attribute, void*, int) {
  return attribute_of(value, attribute);
}
CUDA int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
CUDA int cuKernelSetCacheConfig(void*, int, int) { return kSuccess; }

CUDA int cuFuncGetAttribute(int* value, int attribute, void*) {
  return attribute_of(value, attribute);
}
CUDA int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
CUDA int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
CUDA int cuFuncSetSharedMemConfig(void*, int) { return kSuccess; }
CUDA int cuFuncLoad(void*) { return kSuccess; }
CUDA int cuFuncGetName(const char** name, void* function) {
  *name = static_cast<Function*>(function)->name.c_str();
  return kSuccess;
}
CUDA int cuFuncGetModule(void**, void*) { return kNotSupported; }

CUDA int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, void* stream, void** arguments, void**) {
  return launch(function, arguments, stream);
}
CUDA int cuLaunchCooperativeKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, void* stream, void** arguments) {
  return launch(function, arguments, stream);
}
CUDA int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  return launch(function, arguments, config->stream);
}

CUDA int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int block_size,
                                                     std::size_t) {
  return active_blocks(blocks, block_size);
}
CUDA int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void*, int block_size,
                                                              std::size_t, unsigned) {
  return active_blocks(blocks, block_size);
}
CUDA int cuOccupancyMaxActiveClusters(int* clusters, void*, const LaunchConfig*) {
  *clusters = 1;
  return kSuccess;
}
CUDA int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void*, void*, std::size_t, int) {
  *grid = 1;
  *block = 256;
  return kSuccess;
}
CUDA int cuTensorMapEncodeTiled(void*, int, unsigned, void*, const std::uint64_t*,
                                const std::uint64_t*, const unsigned*, const unsigned*, int, int,
                                int, int) {
  return kSuccess;
}
