// The kernels of this library as modules of CUDA's driver: they lie in the library as fat binaries
// and are loaded on first use, once a context.
//
//   launch(gapless_cross_entropy_fat_binary, "cross_entropy_losses", {9, 256}, stream, &argument)
//     context A:  no module yet  ->  cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel
//                 again          ->  cuLaunchKernel
//
// Nothing links against CUDA: the driver is the process's libcuda.so.1. For any thread.
#pragma once

#include <string>

#define KERNELS_API extern "C" __attribute__((visibility("default")))

// embedded.cc's.
extern "C" const unsigned char gapless_cross_entropy_fat_binary[];
extern "C" const unsigned char gapless_integrity_fat_binary[];

namespace gapless::kernels {

struct Shape {
  unsigned blocks;
  unsigned threads;
};

/// `argument`: what the kernel takes, by value. Empty, or what went wrong.
std::string launch(const unsigned char* fat_binary, const char* kernel, Shape shape, void* stream,
                   const void* argument);

/// Keeps what went wrong for gapless_kernels_last_error; 0 where nothing did, else 1.
int answer(std::string error);

}  // namespace gapless::kernels
