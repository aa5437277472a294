// The kernels of this library as a module of CUDA's driver: they lie in the library as a fat binary
// and are loaded on first use, once a context.
//
//   launch("cross_entropy_losses", {{rows / 256, 256}, stream}, &argument)
//     context A:  no module yet  ->  cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel
//                 again          ->  cuLaunchKernel
//
// Nothing links against CUDA: the driver is the process's libcuda.so.1. For any thread.
#pragma once

#include <string>

namespace gapless::kernels {

struct Shape {
  unsigned blocks;
  unsigned threads;
};

/// `argument`: what the kernel takes, by value. Empty, or what went wrong.
std::string launch(const char* kernel, Shape shape, void* stream, const void* argument);

/// Keeps what went wrong for gapless_kernels_last_error; 0 where nothing did, else 1.
int answer(std::string error);

}  // namespace gapless::kernels
