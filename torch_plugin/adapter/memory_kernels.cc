#include "torch_plugin/adapter/memory_kernels.h"

#include <memory>
#include <string>

#include <dlfcn.h>

#include "kernels/integrity.h"
#include "torch_plugin/adapter/call_sites.h"
#include "torch_plugin/adapter/torch_types.h"

namespace gapless::torch_plugin {
namespace {

using Verify = decltype(&gapless_memory_verify);

Verify find_verify() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<void*>(&find_verify), &own) == 0) return nullptr;
  const std::string path = own.dli_fname;
  // An adapter that was built on first use lies elsewhere than what the package brought.
  for (const std::string& folder : {path.substr(0, path.rfind('/')), package_folder() + "/lib"}) {
    void* const library =
        dlopen((folder + "/libgapless_kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    return reinterpret_cast<Verify>(dlsym(library, "gapless_memory_verify"));
  }
  return nullptr;
}

// Where the device writes what it found; made at the first comparison, and never given back: it
// goes with the context.
struct Verdict {
  void* on_device = nullptr;
};

}  // namespace

Contents::Comparer memory_kernels(DeviceIndex device) {
  static const Verify verify = find_verify();
  if (verify == nullptr) return {};
  return [device, verdict = std::make_shared<Verdict>()](DeviceAddress address, std::uint64_t bytes,
                                                         std::uint32_t word, StreamHandle stream,
                                                         Difference& difference) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    gapless_memory_verdict found{};
    if (verdict->on_device == nullptr &&
        cudaMalloc(&verdict->on_device, sizeof found) != cudaSuccess) {
      verdict->on_device = nullptr;
      return false;
    }
    const gapless_memory_pattern pattern{GAPLESS_PATTERN_WORD, word, 0};
    auto* const on_stream = static_cast<cudaStream_t>(pointer_of(stream));
    if (verify(&pattern, pointer_of(address), bytes,
               static_cast<gapless_memory_verdict*>(verdict->on_device), on_stream) != 0) {
      return false;
    }
    if (cudaMemcpyAsync(&found, verdict->on_device, sizeof found, cudaMemcpyDeviceToHost,
                        on_stream) != cudaSuccess ||
        cudaStreamSynchronize(on_stream) != cudaSuccess) {
      return false;
    }
    if (found.checked != bytes) return false;
    difference = {found.mismatches, found.mismatches == 0 ? 0 : address + found.first};
    return true;
  };
}

}  // namespace gapless::torch_plugin
