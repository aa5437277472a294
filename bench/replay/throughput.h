// Throughput: what an allocation and a free cost when several threads share a device.
//
//   thread 1   [free one of its blocks, allocate another] x n
//   thread 2   [free one of its blocks, allocate another] x n     all on one device's allocator
#pragma once

#include "bench/peers/peer.h"

namespace gapless::bench {

/// Wall time for a pair of a free and an allocation of 512 B to 128 KiB, in ns, over all threads
/// (10 ns: a hundred million pairs a second together). Each thread keeps 64 blocks on a stream of
/// its own (`streams`, one each). The best of several rounds.
double pair_ns(Peer& peer, const std::vector<StreamHandle>& streams);

}  // namespace gapless::bench
