// Models of PyTorch's two CUDA caching allocators, for comparison: "native" (cudaMalloc segments)
// and "expandable" (expandable_segments:True). Constants and order of steps are those of PyTorch
// 2.10/2.11; docs/design.md lists them.
//
//   small pool (<= 1 MiB)  segments of 2 MiB           | a | b | hole | c |
//   large pool             segments of 20 MiB, or of   | d        | hole  |   split only if more
//                          the request from 10 MiB on    than 1 MiB remains
//
// Blocks are reused on the stream they were made for only, by best fit (then lowest address). One
// that other streams used (record_stream) waits for an event on each of them first.
// Expandable: one long range of addresses per stream and pool, mapped in steps of 2 or 20 MiB at
// its end, every remainder from 512 B on split off.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "bench/peers/peer.h"
#include "bench/peers/torch_settings.h"

namespace gapless::bench {

class TorchModel final : public Peer {
 public:
  TorchModel(Driver& driver, DeviceIndex device, const TorchSettings& settings);
  ~TorchModel() override;

  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream, std::uint8_t pool) override;
  void free(DeviceAddress address) override;
  void record_stream(DeviceAddress address, StreamHandle stream) override;
  [[nodiscard]] std::uint64_t reserved_bytes() const override { return reserved_; }
  [[nodiscard]] std::uint64_t peak_reserved_bytes() const override { return peak_reserved_; }
  /// Of its blocks: all are free then, and joined as far as they can be.
  [[nodiscard]] std::optional<std::uint64_t> idle_state() const override;

 private:
  struct Range;  // an expandable segment
  struct Pool;
  struct Block {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    StreamHandle stream = 0;
    Pool* pool = nullptr;
    Range* range = nullptr;
    Block* prev = nullptr;
    Block* next = nullptr;
    bool allocated = false;
    bool mapped = true;
    std::uint64_t freed_at = 0;      // of Pool::searches
    std::vector<StreamHandle> uses;  // record_stream: other streams that use it
    std::uint32_t events = 0;        // recorded at its free and not completed yet
  };
  struct Pending {
    EventHandle event = 0;
    Block* block = nullptr;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct Pool {
    bool small = false;
    std::uint64_t searches = 0;  // for a free block, so far
    std::set<Block*, BySize> free;
    std::set<Block*, ByAddress> unmapped;
  };
  struct Range {
    StreamHandle stream = 0;
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t step = 0;
    std::vector<MemHandle> handles;  // by step, up to the last mapped; 0 where nothing is
    std::uint64_t mapped_steps = 0;
  };

  /// Blocks whose events have completed become free.
  void process_events();
  /// The block's event has completed; it is free when that was the last one.
  void settle(const Pending& pending);
  void make_free(Block* block);
  Pool& pool_for(std::uint64_t bytes, std::uint8_t id);
  Block* take_free(Pool& pool, std::uint64_t bytes, StreamHandle stream);
  Block* new_segment(Pool& pool, std::uint64_t bytes, StreamHandle stream);
  Block* extend(Pool& pool, std::uint64_t bytes, StreamHandle stream);
  Block* room_in_ranges(Pool& pool, std::uint64_t bytes, StreamHandle stream);
  bool map_block(Block* block, std::uint64_t bytes);
  /// A whole segment goes back to the driver.
  void release(Block* block);
  /// Of the blocks that are never split, those that a request of that size needs gone.
  bool release_oversize(Pool& pool, std::uint64_t bytes, StreamHandle stream);
  /// Whole segments that were not used for long, while more than the threshold is reserved.
  void collect_garbage(Pool& pool);
  void release_cached();
  void unmap_block(Block* block);
  void unmap_steps(Range& range, std::uint64_t first, std::uint64_t last);
  /// The block in front of what is left after `bytes`; the rest stays free.
  void split(Block* block, std::uint64_t bytes);
  /// Joins a neighbour of `block` to it if both may be one.
  bool absorb(Block* block, Block* neighbour);
  Block* detach_tail(Block* block, std::uint64_t bytes);
  void note_reserved(std::int64_t change);

  Driver& driver_;
  DeviceIndex device_;
  TorchSettings settings_;
  std::uint64_t collect_above_bytes_ = UINT64_MAX;
  std::uint64_t range_bytes_ = 0;
  std::map<std::pair<std::uint8_t, bool>, std::unique_ptr<Pool>> pools_;
  std::vector<std::unique_ptr<Range>> ranges_;
  std::unordered_map<DeviceAddress, Block*> live_;
  std::map<StreamHandle, std::deque<Pending>> pending_;
  std::vector<EventHandle> spare_events_;
  std::uint64_t reserved_ = 0;
  std::uint64_t peak_reserved_ = 0;
};

}  // namespace gapless::bench
