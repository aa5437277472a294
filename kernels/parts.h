// What is known of a vocabulary's shards, as the kernel that combines them takes it
// (gapless_cross_entropy_combine).
#pragma once

#include "kernels/cross_entropy.h"

namespace gapless::kernels {

struct Parts {
  gapless_cross_entropy rows;
  const float* parts;
  std::int64_t shards;
  std::int64_t shard_stride;
};

}  // namespace gapless::kernels
