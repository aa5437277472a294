// What the files of libcudnn share.
#pragma once

#define CUDNN extern "C" __attribute__((visibility("default")))

namespace gapless::simgpu::cudnn {

// cudnnStatus_t
inline constexpr int kSuccess = 0;
inline constexpr int kBadParam = 2000;
inline constexpr int kNotSupported = 3000;

}  // namespace gapless::simgpu::cudnn
