// Machine: an allocator on a simulated GPU, run through operations and judged after each.
//
// Judged are: the simulated GPU's own rules (violations()); that no two live blocks share a byte of
// physical memory, whatever addresses they have; that every byte of a block is mapped and
// accessible; alignment; that the statistics equal a plain model's; that reserved equals what the
// device has given and keeps within the limit; that a request is refused only if it would not fit,
// and nothing has changed then (WhatFits says what is free); what a tool is told (check:nvtx); the
// heap's validate(); and that nothing is left at the end.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/base/range_set.h"
#include "allocator/device/device_allocator.h"
#include "allocator/driver/faulty_driver.h"
#include "simgpu/sim_driver.h"
#include "tests/support/expected_statistics.h"
#include "tests/support/nvtx_tool.h"
#include "tests/support/op.h"
#include "tests/support/recorded_events.h"
#include "tests/support/what_fits.h"

namespace gapless::testing {

struct MachineOptions {
  std::uint64_t capacity_bytes = 32ULL << 20;
  std::uint64_t granularity_bytes = 64 << 10;
  bool has_vmm = true;
  std::uint32_t streams = 1;
  bool keep_contents = false;
  bool peer = false;                         // another device that may touch this one's memory
  std::uint64_t host_bytes = 0;              // that the device may map
  std::uint64_t address_bytes = UINT64_MAX;  // that may be reserved
  Options allocator{};
  /// What it does is recorded, and must add up.
  bool record = false;
  /// validate() after every so many operations; 0: only at the end.
  std::uint32_t validate_every = 1;
};

class Machine {
 public:
  explicit Machine(const MachineOptions& options);

  /// Runs one operation. Empty where all is well, else what went wrong.
  std::string run(const Op& op);
  /// Runs a list; the first thing that goes wrong, with the operations up to it.
  std::string run(const std::vector<Op>& ops);
  /// Frees everything, checks that nothing is left behind. The machine is spent then.
  std::string finish();

  [[nodiscard]] std::size_t live() const { return live_.size(); }
  [[nodiscard]] DeviceAllocator& allocator() { return *allocator_; }
  [[nodiscard]] simgpu::SimDriver& gpu() { return gpu_; }
  [[nodiscard]] FaultyDriver& faults() { return faulty_; }

  /// How often each kind of operation ran, by its index in Op.
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }
  /// Allocations that were refused, and those of them while a graph was captured.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t refused_in_captures() const { return refused_in_captures_; }
  /// Checkpoints that were restored, and those whose places were gone.
  [[nodiscard]] std::uint64_t restored() const { return restored_; }
  [[nodiscard]] std::uint64_t not_restored() const { return not_restored_; }

 private:
  struct Live {
    DeviceAddress address = 0;
    DeviceAddress begin = 0;  // of its memory: with checks, what is before the block
    std::uint64_t bytes = 0;
    std::uint64_t requested = 0;
    std::uint32_t stream = 0;     // allocated on
    std::uint32_t last_user = 0;  // the stream whose kernel used it last
    std::vector<simgpu::PhysicalRange> ranges;
    std::uint64_t capture = 0;  // the capture it was made in; 0: none
    PoolId pool;                // whose memory it is; {0, 0}: no private pool's
    bool asleep = false;        // with that pool
    std::uint32_t pins = 0;
    std::uint32_t shares = 0;      // of these
    std::set<std::uint32_t> uses;  // streams of record_stream, beside its own
    bool used_elsewhere = false;   // and the other device's
    bool elsewhere_last = false;   // which used it last
    bool fenced = false;
  };
  // A freed block that PyTorch's allocator would count as active, as long as other streams' work
  // that used it goes on.
  struct Deferred {
    Live block;
    std::uint64_t done_ns = 0;
  };
  // A graph that was captured, or is being captured.
  struct Graph {
    std::uint64_t number = 0;
    PoolId pool;
    std::vector<std::uint32_t> streams;  // while it is captured: those that are
    std::uint64_t began = 0;             // by operations_
    std::uint64_t faults = 0;            // calls that had failed by then
    simgpu::CapturedGraph graph;
  };

  std::string apply(const Alloc& op);
  std::string apply(const Free& op);
  std::string apply(const Touch& op);
  std::string apply(const UseOn& op);
  std::string apply(const UseElsewhere& op);
  std::string apply(const BeginPool& op);
  std::string apply(const EndPool& op);
  std::string apply(const Capture& op);
  std::string apply(const EndCapture& op);
  std::string apply(const Replay& op);
  std::string apply(const DropGraph& op);
  std::string apply(const Pin& op);
  std::string apply(const Unpin& op);
  std::string apply(const Checkpoint& op);
  std::string apply(const Restore& op);
  std::string apply(const Copy& op);
  std::string apply(const Sleep& op);
  std::string apply(const Wake& op);
  std::string apply(const SetPool& op);
  std::string apply(const Share& op);
  std::string apply(const Unshare& op);
  /// Blocks that are pinned, live or held.
  [[nodiscard]] std::vector<Live*> pinned_blocks();
  /// One pin less; where that was the last one of a freed block, it is free.
  void drop_pin(Live& block);
  /// Notes where a block that begins to live lies, which nobody else may.
  std::string occupy(Live& block);
  std::string note_ranges(const Live& block);
  void vacate(const Live& block);
  /// A block is live no more; the allocator knows already.
  void forget(std::size_t index);
  /// Whether that stream is capturing; whether work of the program may go to the block there.
  [[nodiscard]] bool is_capturing(std::uint32_t stream) const;
  [[nodiscard]] bool may_use(const Live& block, std::uint32_t stream) const;
  std::string end_capture();
  /// The pool that a stream's requests go to.
  [[nodiscard]] PoolId pool_of(std::uint32_t stream) const;
  /// Whether the pool has users or blocks.
  [[nodiscard]] bool is_alive(PoolId pool) const;
  void forget_dead_pools();
  [[nodiscard]] std::vector<PoolId> pools() const;
  /// Calls that were made to fail so far.
  [[nodiscard]] std::uint64_t faults_fired() const { return faults_before_ + faulty_.fired(); }
  /// What was asked for, and how the device was before.
  struct Asked {
    std::uint64_t bytes = 0;
    std::uint32_t stream = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t peak_used_bytes = 0;
    std::uint64_t faults = 0;
  };
  /// Whether that may be refused so.
  [[nodiscard]] std::string judge_refusal(const Asked& asked, Status status);
  /// Whether pools are owed no more than they can have lent.
  [[nodiscard]] std::string judge_debts() const;
  /// Empty where it may not fit.
  [[nodiscard]] std::string why_it_fits(const Asked& asked);
  /// Whether a request to that pool may have what is free there.
  [[nodiscard]] bool may_have(const WhatFits::Free& free, PoolId pool, bool faulted) const;
  std::string apply(const Advance& op);
  std::string apply(const SyncStream& op);
  std::string apply(const Trim& op);
  std::string apply(const SetLimit& op);
  std::string apply(const FailNext& op);
  std::string apply(const Report& op);
  std::string free(std::size_t index);
  /// A kernel of that stream writes the block, after its last user.
  std::string launch(Live& block, std::uint32_t stream, std::uint32_t duration_us);
  [[nodiscard]] std::uint64_t page_bytes() const {
    return align_up(options_.allocator.page_size,
                    options_.has_vmm ? options_.granularity_bytes : 2 << 20);
  }
  /// With check:nvtx: whether the tool knows each block's bytes, and no others.
  std::string judge_told();
  /// A block is freed: its bytes may stay known to the tool where a graph may use them.
  void note_told_end(const Live& block);
  /// Whether the allocator must suppose that a graph is captured.
  [[nodiscard]] bool may_capture() const { return capturing_ || !begun_.empty(); }
  std::string check_statistics();
  std::string check_recording();
  /// A block begins to live, or ends.
  void count(const Live& block, bool begins);
  // What is live, held, or may be counted still.
  [[nodiscard]] std::string check_active(const Stat& stat, std::uint64_t live,
                                         std::uint64_t Live::*bytes) const;
  void defer(const Live& block);

  MachineOptions options_;
  std::optional<NvtxTool> tool_;     // with check:nvtx
  std::map<PoolId, RangeSet> kept_;  // what graphs of that pool may use; {0, 0}: freed in a capture
  RangeSet kept_fenced_;
  simgpu::SimDriver gpu_;
  FaultyDriver faulty_;
  std::vector<StreamHandle> streams_;
  DeviceStream elsewhere_{1, 0};
  std::optional<DeviceAllocator> allocator_;
  std::optional<RecordedEvents> recorded_;
  std::vector<Live> live_;
  // (handle, offset) -> end: the physical bytes in use.
  std::map<std::pair<MemHandle, std::uint64_t>, std::uint64_t> in_use_;
  struct Begun {
    PoolId id;
    bool all_streams = false;
    std::uint32_t stream = 0;  // else that one's requests
  };
  std::vector<Begun> begun_;
  std::set<PoolId> asleep_;
  std::set<PoolId> slept_;    // ever: who had freed what in a page is not known after that
  std::vector<PoolId> held_;  // pools that were begun and not released
  std::optional<Graph> capturing_;
  std::vector<Graph> graphs_;
  std::uint64_t captures_ = 0;
  std::map<PoolId, std::uint32_t> last_replay_;  // by pool: the stream
  std::set<std::uint32_t> freed_users_;  // streams that used captured blocks which are freed now
  std::vector<Live> held_blocks_;        // freed, but pinned
  struct Checkpointed {
    PoolState state;
    std::map<DeviceAddress, Live> blocks;
  };
  std::vector<Checkpointed> checkpoints_;  // the last ones
  std::set<PoolId> use_on_oom_;
  struct Opened {               // by another process
    DeviceAddress address = 0;  // here
    std::unique_ptr<ImportedBlock> block;
  };
  std::vector<Opened> opened_;
  ExpectedStatistics expected_;
  std::vector<Deferred> deferred_;
  std::uint64_t last_asked_ns_ = 0;  // when the allocator had last asked for them
  std::uint64_t allocated_ = 0;
  std::uint64_t requested_ = 0;
  std::uint64_t limit_ = UINT64_MAX;
  std::uint64_t limit_floor_ = 0;  // reserved when the limit was set: it may stay above it
  bool faulted_ = false;
  std::uint64_t operations_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t refused_in_captures_ = 0;
  std::uint64_t restored_ = 0;
  std::uint64_t not_restored_ = 0;
  std::uint64_t faults_before_ = 0;  // the last FailNext
  WhatFits what_fits_{gpu_};
  std::size_t judged_violations_ = 0;
  std::vector<std::uint64_t> counts_;
};

}  // namespace gapless::testing
