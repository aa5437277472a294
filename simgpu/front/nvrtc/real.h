// The real NVRTC, where one is installed: it needs no GPU, and what it compiles can be run as PTX.
//
//   $CUDA_HOME/lib64, /usr/local/cuda/lib64, torch's own wheels (site-packages/nvidia/cu13/lib)
#pragma once

namespace gapless::simgpu::nvrtc {

/// The address of one of its functions; nullptr where there is no library, or none of that name.
void* real_function(const char* name);

/// One of its functions, called; `otherwise` where there is none.
template <class... Parameters, class... Arguments>
bool forward(int& status, int (*)(Parameters...), const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<int (*)(Parameters...)>(real_function(name));
  if (function == nullptr) return false;
  status = function(arguments...);
  return true;
}

}  // namespace gapless::simgpu::nvrtc
