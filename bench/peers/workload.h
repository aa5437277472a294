// Workload: requests as benchmarks of a single allocation make them.
//
//   pair     allocates a block of a random size and frees it, beside so many live blocks
//   churn    frees one of the live blocks, chosen at random, and allocates another of a random size
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/peers/peer.h"

namespace gapless::bench {

enum class Sizes { small, large, mixed };

/// Sizes with every octave of a range equally likely.
inline std::uint64_t draw(Sizes sizes, std::mt19937_64& random) {
  const auto between = [&](int low, int high) {
    const int octave = low + static_cast<int>(random() % static_cast<unsigned>(high - low));
    const std::uint64_t base = std::uint64_t{1} << octave;
    return base + random() % base;
  };
  switch (sizes) {
    case Sizes::small:
      return between(9, 17);  // 512 B to 128 KiB
    case Sizes::large:
      return between(20, 24);  // 1 to 16 MiB
    case Sizes::mixed:
      break;
  }
  return random() % 8 == 0 ? between(20, 23) : between(9, 20);
}

struct Workload {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> picks;
  std::vector<DeviceAddress> live;
};

inline constexpr std::size_t kDraws = 1 << 16;

/// What is asked for, and in which order `live` blocks are freed for it; none of them is there yet.
inline Workload draw_work(Sizes sizes, std::size_t live, std::mt19937_64& random) {
  Workload work;
  work.sizes.resize(kDraws);
  work.picks.resize(kDraws);
  for (std::uint64_t& size : work.sizes) size = draw(sizes, random);
  for (std::uint32_t& pick : work.picks) pick = static_cast<std::uint32_t>(random() % live);
  return work;
}

/// `live` blocks, with a fifth as much memory free between them.
inline Workload prepare(Peer& peer, Sizes sizes, std::size_t live, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Workload work = draw_work(sizes, live, random);
  std::vector<DeviceAddress> all;
  const std::size_t extra = live / 5 + 16;
  for (std::size_t i = 0; i < live + extra; ++i) {
    all.push_back(peer.alloc(draw(sizes, random), 0, 0));
  }
  std::shuffle(all.begin(), all.end(), random);
  for (std::size_t i = 0; i < extra; ++i) peer.free(all[live + i]);
  all.resize(live);
  work.live = std::move(all);
  return work;
}

inline void pair(Peer& peer, Workload& work, std::size_t i) {
  peer.free(peer.alloc(work.sizes[i % kDraws], 0, 0));
}

inline void churn(Peer& peer, Workload& work, std::size_t i) {
  DeviceAddress& slot = work.live[work.picks[i % kDraws]];
  peer.free(slot);
  slot = peer.alloc(work.sizes[i % kDraws], 0, 0);
}

}  // namespace gapless::bench
