// OutOfMemoryReport: why a request failed, as data: what was asked, what is live, what was free and
// why it could not be used, and what would have made it fit.
//
//   asked 1.23 GiB on stream 0x0
//   live   14.94 GiB in 812 blocks     by size, stream and pool
//   free    3.18 GiB    0.40 whole pages, 0.12 parts of pages, 2.66 of private pools
//   short of 0.83 GiB    1.40 GiB for the largest such request so far
//   would fit when pool {0, 3} is released
//
// Made of a HeapReport, after the fact: nothing here is on the path of a request that succeeds.
#pragma once

#include <string>
#include <vector>

#include "allocator/device/device_allocator.h"

namespace gapless {

/// The largest request of the program so far from the same place as one that failed.
struct LargestSuch {
  std::uint64_t bytes = 0;  // 0: none is known
  std::string place;        // "train.py:12 (loss)"
};

struct OutOfMemoryReport {
  FailedRequest request;
  std::string device_name;
  std::uint64_t total_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t live_blocks = 0;

  /// Live blocks that have something in common.
  struct Group {
    std::string name;  // "1 MiB to 2 MiB", "stream 0x7f10", "pool {0, 3}"
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
  };
  std::vector<Group> by_size;  // all by bytes, the most first
  std::vector<Group> by_stream;
  std::vector<Group> by_pool;  // private pools only

  /// Free memory: in whole pages, which windows join; in parts of pages, which one request can use
  /// two of; and in private pools that the request was not for.
  std::uint64_t free_page_bytes = 0;
  std::uint64_t free_part_bytes = 0;
  std::uint64_t free_parts = 0;
  std::vector<Group> free_in_pools;
  /// Left on the device for other private pools that lent what was free in them.
  std::vector<Group> owed_to_pools;
  /// What is in use on the device by others: other processes, and memory not of this allocator.
  std::uint64_t elsewhere_bytes = 0;
  /// How much more memory would have made it fit.
  std::uint64_t missing_bytes = 0;
  /// Where it is larger than this one: whoever makes room for this one only fails at that. What is
  /// missing for it, as things are now.
  LargestSuch largest;
  std::uint64_t largest_missing_bytes = 0;
  /// Host memory that stands in for the device's, and whether more could (option spill).
  std::uint64_t spilled_bytes = 0;
  bool could_spill = false;
  /// Freed, but pinned or shared with another process.
  std::uint64_t held_bytes = 0;
  /// What would help, in words, the best first.
  std::vector<std::string> advice;
};

/// `device_free_bytes`: what the driver says is free on the device now.
OutOfMemoryReport explain(const HeapReport& heap, const FailedRequest& request,
                          std::uint64_t device_free_bytes, LargestSuch largest = {});

/// What would have made it fit, and by how much, in a sentence: "It is 1.41 GiB short: ...". Empty
/// where nothing is known to help.
std::string headline(const OutOfMemoryReport& report);
/// For people; several lines.
std::string to_text(const OutOfMemoryReport& report);
/// Every field, as JSON.
std::string to_json(const OutOfMemoryReport& report);

}  // namespace gapless
