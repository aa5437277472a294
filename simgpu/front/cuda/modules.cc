// Modules and kernels that are loaded by hand: Triton's, nvrtc's, Inductor's. Launched, those that
// come as PTX are run (kernel_run.h), others do nothing.
//
// Module, library, function and kernel are each a record of ours; a function's name is kept.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <elf.h>

#include "allocator/base/text_of_file.h"
#include "simgpu/front/cuda/common.h"
#include "simgpu/process/kernel_run.h"

using namespace gapless;
using namespace gapless::simgpu;

namespace {

struct Module;

struct Function {
  std::string name;
  Module* module = nullptr;
};

struct Module {
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;
  std::unique_ptr<DeviceCode> code;
};

// CUlaunchConfig up to its stream: grid and block (3 unsigned each), bytes of shared memory.
struct LaunchConfig {
  unsigned dims[6];
  unsigned shared_bytes;
  void* stream;
};

std::uint64_t place_of(const ptx::Variable& variable) {
  const Entry entry;
  DeviceAddress address = 0;
  DeviceMemory& memory = entry.process.memory;
  if (memory.alloc(Process::current(), std::max<std::uint64_t>(variable.bytes, 1), address) !=
      DriverStatus::ok) {
    return 0;
  }
  start_variable(memory, variable, address);
  return address;
}

// `image`: an ELF file, PTX or a fat binary; null where it is not at hand. `ptx`: what it was made
// of, where that is known.
int load(void** module, const void* image, const std::string& ptx) {
  const Entry entry;
  entry.process.memory.ensure_context(Process::current());
  auto* const made = new Module;
  made->code = std::make_unique<DeviceCode>(image, place_of);
  made->code->read();
  if (!ptx.empty()) made->code->made_of(ptx);
  *module = made;
  return kSuccess;
}

int load(void** module, const void* image) { return load(module, image, taken_ptx()); }

int function_of(void** function, void* handle, const char* name) {
  const Entry entry;
  if (handle == nullptr) return kInvalidHandle;
  auto* const module = static_cast<Module*>(handle);
  auto& known = module->functions[name];
  if (known == nullptr) known = std::make_unique<Function>(Function{name, module});
  *function = known.get();
  return kSuccess;
}

int launch(void* function, const KernelShape& shape, void** arguments, void* stream_handle) {
  if (!is_launchable(shape)) return kInvalidValue;
  const Entry entry;
  Process& process = entry.process;
  Stream* stream = process.streams.find(stream_handle, Process::current());
  if (function == nullptr || stream == nullptr) return kInvalidHandle;
  if (!has_shared_memory(process, shape)) return kInvalidValue;
  // PyTorch's own kernels come another way, and it chooses them by the GPU.
  process.recorder.launched(Process::current(), shape.dynamic_shared_bytes);
  const auto& launched = *static_cast<const Function*>(function);
  process.streams.submit(
      *stream, NodeKind::kernel,
      kernel_work(process, *launched.module->code, launched.name, shape, arguments), 0, function);
  return process.kernel_error;
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

int set_attribute(int attribute, int value) {
  const Entry entry;
  return may_have_attribute(entry.process, attribute, value) ? kSuccess : kInvalidValue;
}

int active_blocks(int* blocks, int block_size) {
  const Entry entry;
  const int threads = entry.process.gpu(Process::current()).threads_per_multiprocessor;
  *blocks = block_size <= 0 ? 1 : std::max(1, threads / block_size);
  return kSuccess;
}

}  // namespace

CUDA int cuModuleLoad(void** module, const char* path) {
  std::string image = text_of_file(path);
  image.resize(std::max(image.size(), sizeof(Elf64_Ehdr)) + 1);  // as much is read in any case
  // Triton leaves a kernel's PTX beside its machine code, in its cache.
  const std::string ptx = text_of_file(std::filesystem::path(path).replace_extension(".ptx"));
  return load(module, image.data(), ptx);
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
CUDA int cuModuleGetGlobal_v2(std::uint64_t* address, std::size_t* bytes, void* module,
                              const char* name) {
  const Entry entry;
  if (module == nullptr) return kInvalidHandle;
  const ptx::Variable* const found = static_cast<Module*>(module)->code->variable(name);
  if (found == nullptr) return kNotFound;
  if (address != nullptr) *address = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return kSuccess;
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
CUDA int cuKernelSetAttribute(int attribute, int value, void*, int) {
  return set_attribute(attribute, value);
}
CUDA int cuKernelSetCacheConfig(void*, int, int) { return kSuccess; }

CUDA int cuFuncGetAttribute(int* value, int attribute, void*) {
  return attribute_of(value, attribute);
}
CUDA int cuFuncSetAttribute(void*, int attribute, int value) {
  return set_attribute(attribute, value);
}
CUDA int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
CUDA int cuFuncSetSharedMemConfig(void*, int) { return kSuccess; }
CUDA int cuFuncLoad(void*) { return kSuccess; }
CUDA int cuFuncGetName(const char** name, void* function) {
  *name = static_cast<Function*>(function)->name.c_str();
  return kSuccess;
}
CUDA int cuFuncGetModule(void**, void*) { return kNotSupported; }

CUDA int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        void* stream, void** arguments, void**) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                arguments, stream);
}
CUDA int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, void* stream,
                                   void** arguments) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                arguments, stream);
}
CUDA int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** arguments, void**) {
  const auto& [grid_x, grid_y, grid_z, block_x, block_y, block_z] = config->dims;
  return launch(function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, config->shared_bytes},
                arguments, config->stream);
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
