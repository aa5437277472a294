// DeviceAllocator: one device's memory, for any thread.
//
//   alloc(bytes, stream) -> lock -> DeviceHeap::place -> live table -> statistics -> address
//   free(address)        -> lock -> live table -> DeviceHeap::free -> statistics
//
// A block freed may be used again at once by work on the stream it was allocated on, since that
// work runs after all earlier work of the stream; another stream that gets it comes after the free
// (stream/, among_streams.cc). In a forked child all that takes the lock throws ForkedChild.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/fork.h"
#include "allocator/base/mutex.h"
#include "allocator/base/status.h"
#include "allocator/check/memory_check.h"
#include "allocator/check/nvtx_driver.h"
#include "allocator/device/arena.h"
#include "allocator/device/deferred_frees.h"
#include "allocator/device/event_log.h"
#include "allocator/device/failed_requests.h"
#include "allocator/device/heap_report.h"
#include "allocator/device/options.h"
#include "allocator/device/pinned_blocks.h"
#include "allocator/device/pools.h"
#include "allocator/device/saved_contents.h"
#include "allocator/device/soft_limit.h"
#include "allocator/device/spill_watch.h"
#include "allocator/device/statistics.h"
#include "allocator/memory/shared_block.h"

namespace gapless {

/// After a request: the block's bytes (with checks what was asked for, which the program may use),
/// and all that is allocated and reserved.
struct Usage {
  std::uint64_t block_bytes = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;
};

/// What is known of a live block.
struct BlockFacts {
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;
  StreamHandle stream = 0;  // allocated on
  PoolId pool;
  bool fenced = false;  // it has pages of its own (allocator/check/fence.h)
};

class DeviceAllocator {
  // PyTorch's kSmallSize: blocks up to this size are counted in the small pool.
  static constexpr std::uint64_t kSmallPoolBytes = std::uint64_t{1} << 20;

 public:
  /// `driver` must outlive this. Makes no driver call until memory is asked for.
  DeviceAllocator(Driver& driver, DeviceIndex device, const DeviceProperties& properties,
                  const Options& options);
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;
  /// Gives everything back to the driver if nothing is live.
  ~DeviceAllocator();

  /// At least `bytes` bytes, aligned to 512, for work on `stream`. 0 bytes give address 0.
  /// `rounded_bytes`: what the caller rounds that to; the difference is lost. `usage`, where given,
  /// is set on success.
  Status alloc(std::uint64_t bytes, StreamHandle stream, DeviceAddress& address,
               std::uint64_t rounded_bytes = 0, Usage* usage = nullptr);
  /// The same at an address where memory was freed: invalid_argument, and nothing changed, where
  /// not all of it is free memory of the stream (and of the pool its requests go to).
  Status alloc_at(std::uint64_t bytes, StreamHandle stream, DeviceAddress address,
                  Usage* usage = nullptr);
  /// Called when a request finds no memory, before it fails; true says that memory was freed, and
  /// the request is tried again. And called when a request has failed for lack of memory. Both run
  /// without a lock held, in the order they were added, and may allocate and free.
  void add_free_memory_callback(std::function<bool()> callback);
  void add_out_of_memory_observer(std::function<void(const FailedRequest&)> observer);
  /// The last request that failed; 0 bytes where none did.
  [[nodiscard]] FailedRequest last_failed_request() const;

  /// Finds out now where in the program the calling thread is, for its next request: for who holds
  /// a lock during that, for which a thread may wait that holds the interpreter's.
  void note_caller() const;

  /// Takes back what alloc gave; invalid_argument for any other address. Address 0 is ignored.
  /// `usage`, where given, is set on success.
  Status free(DeviceAddress address, Usage* usage = nullptr);

  /// The live block is used by work on that stream too, which may be another device's, given to it
  /// before the block is freed. Its memory is then not used again before that work, without anyone
  /// waiting on the host. invalid_argument for an address that alloc did not give.
  Status record_stream(DeviceAddress address, const DeviceStream& stream);
  /// The same for a stream of this device.
  Status record_stream(DeviceAddress address, StreamHandle stream) {
    return record_stream(address, DeviceStream{device_, stream});
  }

  // --- private pools (pools.h) ------------------------------------------------------------------

  /// One more user of the pool, which is made where it is not there yet.
  Status retain_pool(PoolId id);
  /// One user less. Without users and live blocks the pool's memory goes back to everyone; where a
  /// graph was captured in it, only after the device was waited for, when memory is needed.
  /// invalid_argument where the pool has no user.
  Status release_pool(PoolId id);
  /// Requests of streams that pass the filter go to the pool, until end_pool(); one more user.
  /// Called before a capture begins. Work on what was freed in the pool before must be done by then
  /// (torch.cuda.graph waits for the device): a graph does not come after work outside of it.
  Status begin_pool(PoolId id, StreamFilter filter);
  /// Ends the last begin_pool() of that pool; after a capture has ended.
  Status end_pool(PoolId id);
  /// note_capture() will tell of every capture; else one is supposed while a pool is begun, and
  /// blocks that other streams use count as active until it is ended (record_stream).
  void expect_capture_marks();
  /// A graph is captured from now on, or one less.
  void note_capture(bool begins);
  /// What is free in the pool may serve others before a request fails.
  Status set_pool_use_on_oom(PoolId id, bool use);
  /// Each block of the pool begins and ends with a page, which it shares with no other (PyTorch's
  /// no_split); for blocks allocated from now on.
  Status set_pool_no_split(PoolId id, bool no_split);
  /// The pool's memory comes from the user's own allocator. invalid_argument where the pool is not
  /// there or has memory already.
  Status set_pool_source(PoolId id, PoolSource source);
  /// How many users the pool has; 0 where there is none of that name.
  [[nodiscard]] int pool_users(PoolId id) const;
  /// The pool's blocks as they are now, to be had again: for programs that capture one graph after
  /// another as if each were the first. Empty where there is no such pool.
  [[nodiscard]] PoolState checkpoint_pool(PoolId id);
  /// Frees the pool's blocks that the state has not, and allocates those that it has, each where it
  /// was. invalid_argument, and nothing changed, where the pool is gone or a place is not free.
  Status restore_pool(const PoolState& state, PoolDelta& delta);
  /// The addresses of the pool's live blocks, in order.
  [[nodiscard]] std::vector<DeviceAddress> pool_blocks(PoolId id) const;
  /// Gives the pool's memory back to the device; its blocks keep their addresses, which must not be
  /// used until wake_pool(). `save`: contents are kept in host memory, else lost. Waits for the
  /// device. invalid_argument where there is no such pool or it is asleep; driver_error where the
  /// driver refused or a graph is being captured: then nothing changed, but contents that were not
  /// saved may be lost.
  Status sleep_pool(PoolId id, bool save);
  /// Brings the pool's memory back, with what was saved. out_of_memory where the device has not
  /// that much now: the pool stays asleep. Ok for a pool that is awake.
  Status wake_pool(PoolId id);
  /// Live bytes of the pool.
  [[nodiscard]] std::uint64_t pool_live_bytes(PoolId id) const;
  /// What pools lent and have not had back.
  [[nodiscard]] std::vector<PoolDebt> owed_to_pools() const;

  // --- memory that others use (allocator_sharing.cc) --------------------------------------------

  /// The live block is known to someone outside of the program's streams: a network card or NCCL
  /// that registered it, another process. Until it is unpinned as often as it was pinned, its
  /// memory stays mapped where it is and is not used again, also when it is freed before. Its pool
  /// does not sleep meanwhile. invalid_argument for an address that alloc did not give.
  Status pin(DeviceAddress address);
  Status unpin(DeviceAddress address);
  /// Pins the block and says how another process may open it (SharedBlock); to be unshared as often
  /// as it was shared. The descriptors stay this allocator's. invalid_argument for an address that
  /// alloc did not give, and where memory cannot be shared (option share); driver_error.
  Status share(DeviceAddress address, SharedBlock& shared);
  /// How many blocks are pinned, those that are shared included.
  [[nodiscard]] std::size_t pinned_blocks() const;
  Status unshare(DeviceAddress address);

  /// Bytes behind the address alloc gave; nothing for any other.
  [[nodiscard]] std::optional<std::uint64_t> size_of(DeviceAddress address) const;

  /// The live block at the address alloc gave; nothing for any other.
  [[nodiscard]] std::optional<BlockFacts> find_block(DeviceAddress address) const;

  /// Other devices' work may touch this one's memory too. Needed where memory is mapped (VMM).
  Status add_peer(DeviceIndex peer);
  /// Is told where memory comes to and leaves (MappingChange), with the device's lock held: it must
  /// not call back. Not of memory of the users' own allocators.
  void set_mapping_observer(std::function<void(const MappingChange&)> observer);

  /// Returns wholly free pages to the driver until at most `keep_bytes` are reserved.
  Status trim(std::uint64_t keep_bytes = 0);
  /// What is free in a pool without users is everyone's; where its memory came from the user's own
  /// allocator, it goes back there. Ok for a pool that is not there (any more).
  Status trim_pool(PoolId id);
  /// Reserves no more than that from now on; what is reserved already stays.
  void set_limit_bytes(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t limit_bytes() const;
  /// Gives pages back when more than this is reserved (option soft_limit).
  void set_soft_limit_bytes(std::uint64_t bytes);

  [[nodiscard]] std::uint64_t total_bytes() const { return properties_.total_bytes; }
  [[nodiscard]] DeviceStatistics statistics() const;
  void reset_peak_statistics();
  void reset_accumulated_statistics();
  [[nodiscard]] HeapReport report() const;
  [[nodiscard]] SpillReport spill() const;
  /// Why the last request failed, in words; empty where none did.
  [[nodiscard]] std::string last_failure() const;
  [[nodiscard]] HeapCounters counters() const;

  // --- checks (allocator_checks.cc) --------------------------------------------------------------

  /// Whether the options ask for any.
  [[nodiscard]] bool checks() const { return check_ != nullptr; }
  /// Who knows where in the program the calling thread is ("train.py:42 (step)"); asked before each
  /// request, without a lock, where checks are asked for. To be set before memory is.
  void set_call_site_source(std::function<std::string()> source);
  /// Who reads large ranges of memory quicker than by copying them to the host.
  void set_memory_comparer(Contents::Comparer comparer);
  /// Looks at the bands of all live blocks, waiting for the device. What is found is told on
  /// standard error, as always.
  void check_now();
  /// What was found so far (the last 1,000 of it), and how many that were.
  [[nodiscard]] std::vector<Mistake> mistakes() const;
  [[nodiscard]] std::uint64_t mistakes_found() const;

  // --- recording (allocator_recording.cc) --------------------------------------------------------

  using StackSource = EventLog::StackSource;
  /// What happens from now on goes to `ring`, until end_recording(). What is there now is the
  /// result, in the order of a program that did just this: where memory is, then the live blocks.
  /// Empty where it is being recorded already: nothing changed. `stacks`: may be nullptr.
  std::optional<std::vector<AllocatorEvent>> begin_recording(std::shared_ptr<EventRing> ring,
                                                             StackSource stacks);
  void end_recording();
  /// Another source for the recording that there is, if it has one.
  void change_stack_source(StackSource stacks);

  /// Throws std::logic_error saying which rule of docs/design.md is broken, if any is. O(heap).
  void validate() const;

 private:
  friend struct RuleBreaker;  // of the tests of validate()

  // Larger requests cannot be meant: they pass what 32-bit units reach.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{UINT32_MAX} / 2 * kUnitBytes;

  /// What a request takes, before that is made a multiple of 512 bytes. What is lost by rounding is
  /// kept as 32 bits.
  [[nodiscard]] static std::uint64_t wanted_bytes(std::uint64_t bytes,
                                                  std::uint64_t rounded_bytes) {
    return std::max(bytes, std::min(rounded_bytes, bytes + UINT32_MAX - kUnitBytes));
  }
  [[nodiscard]] static Unit units_of(std::uint64_t bytes) {
    return static_cast<Unit>((bytes + kUnitBytes - 1) / kUnitBytes);
  }
  /// alloc() as most requests go: one stream, no pool, a hole that fits. False where it is not so.
  [[gnu::always_inline]] bool alloc_in_hole(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                            StreamHandle stream, DeviceAddress& address,
                                            Usage* usage);
  /// All of alloc() that needs the lock. `last_resort`: nothing else is left to be tried.
  [[gnu::noinline]] Status alloc_locked(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                        StreamHandle stream, DeviceAddress& address, Usage* usage,
                                        bool last_resort);
  [[gnu::noinline]] void record(AllocatorEvent::Kind kind, const Arena& arena, BlockId id);
  void observe_mappings();
  /// Whether anybody wants to know where requests come from.
  [[nodiscard]] bool asks_callers() const { return check_ != nullptr || log_.asks_stacks(); }
  /// Where the request comes from, unless note_caller() found out already.
  [[gnu::noinline]] void find_caller() const;
  void make_check();
  void report_checks(HeapReport& report) const;
  /// The live block with a fence at that address; nullptr where there is none.
  [[nodiscard]] Fence::Block* fenced_at(DeviceAddress address) const {
    return check_ == nullptr ? nullptr : check_->fence().find(address);
  }
  /// A block with a fence, where the request is to have one and can.
  bool alloc_behind_fence(std::uint64_t bytes, StreamHandle stream, DeviceAddress& address,
                          Usage* usage);
  Status free_behind_fence(DeviceAddress address, Usage* usage);
  /// Lets go of a block with a fence, which may be freed already, as `act` does it.
  Status with_fenced(DeviceAddress address, const std::function<Status(Fence::Block&)>& act);
  /// One that is freed and pinned counts as active, from now on or no more.
  void note_fenced_held(const Fence::Block& block, int blocks);
  /// A block of an arena begins to live, or ends; where checks are asked for.
  void check_begin(const Arena& arena, BlockId id);
  void check_end(const Arena& arena, BlockId id);
  /// The tool is told of a block of so many bytes, where check:nvtx is asked for; or that it ends,
  /// which other devices' work may have used.
  void tell_begin(DeviceAddress address, std::uint64_t bytes);
  void tell_end(DeviceAddress address, PoolIndex pool, std::span<const DeviceIndex> others);
  /// The pool is given up: nobody runs its graphs any more.
  void tell_pool_is_gone(PoolIndex pool);
  /// Whether the block's memory may be touched now: it is no pool's, and no graph is captured.
  [[nodiscard]] bool may_touch(const Arena& arena, Owner owner) const;
  /// What checks found, on standard error. No lock may be held.
  void tell_mistakes() const;
  /// Where a block's bytes lie in the home, in its order.
  [[nodiscard]] static std::vector<RangeSet::Range> home_ranges(const DeviceHeap& heap, BlockId id);
  /// All of free() that needs the lock.
  Status free_locked(DeviceAddress address, Usage* usage);
  /// The rest of alloc(), when there was not enough memory or the driver refused (`status`).
  [[gnu::noinline]] Status alloc_after_failure(std::uint64_t bytes, std::uint64_t rounded_bytes,
                                               StreamHandle stream, DeviceAddress& address,
                                               Usage* usage, Status status);
  [[nodiscard]] Usage usage_with(std::uint64_t block_bytes) const {
    return {block_bytes, static_cast<std::uint64_t>(statistics_.allocated_bytes()),
            static_cast<std::uint64_t>(statistics_.reserved_bytes())};
  }
  /// Runs the callbacks that may free memory; whether any did.
  bool free_some_memory();
  void note_out_of_memory(std::uint64_t bytes, StreamHandle stream);
  /// Where a request goes, and as whose.
  struct Request {
    Arena* arena;
    Owner owner;
    Unit units;
  };
  /// What was placed for a request is a block from now on.
  void begin_block(const Request& request, const DeviceHeap::Placed& placed,
                   std::uint64_t requested_bytes, Usage* usage) {
    const std::uint64_t bytes = std::uint64_t{request.units} * kUnitBytes;
    if (pools_.active()) [[unlikely]] {
      note_pool_block(request.arena->heap.streams().sets().pool_of(request.owner), bytes);
    }
    note_block(*request.arena, placed, request.owner, bytes, requested_bytes);
    if (check_ != nullptr) [[unlikely]]
      check_begin(*request.arena, placed.block);
    if (statistics_.has_deferred()) [[unlikely]]
      statistics_.note_active();
    if (main_.heap.changes() != noted_changes_ || request.arena != &main_) [[unlikely]]
      note_memory();
    if (usage != nullptr) *usage = usage_with(check_ == nullptr ? bytes : requested_bytes);
  }
  DeviceHeap::Placed place_in_begun_pool(StreamHandle stream, const Demand& demand,
                                         Request& request);
  /// Calls f(id, block) for the live blocks of that pool.
  template <class F>
  void for_each_block_of(PoolIndex pool, F&& f) const {
    const Arena& arena = arena_of(pool);
    arena.live.for_each([&](BlockId id) {
      const Block& block = arena.heap.blocks()[id];
      if (arena.heap.streams().sets().pool_of(block.owner) == pool) f(id, block);
    });
  }
  /// The arena of a pool.
  [[nodiscard]] const Arena& arena_of(PoolIndex pool) const {
    const auto found = sourced_.find(pool);
    return found == sourced_.end() ? main_ : found->second->arena;
  }
  [[nodiscard]] Arena& arena_of(PoolIndex pool) {
    const auto found = sourced_.find(pool);
    return found == sourced_.end() ? main_ : found->second->arena;
  }
  /// Calls f(arena) for each.
  template <class F>
  void for_each_arena(F&& f) {
    f(main_);
    for (const auto& [pool, sourced] : sourced_) f(sourced->arena);
  }
  template <class F>
  void for_each_arena(F&& f) const {
    f(main_);
    for (const auto& [pool, sourced] : sourced_) f(std::as_const(sourced->arena));
  }
  /// What all other heaps reserve, which the limit counts too.
  [[nodiscard]] std::uint64_t reserved_beside(const DeviceHeap& heap) const;
  /// A live block, wherever it is; id 0: no such address.
  struct Found {
    Arena* arena;
    BlockId id;
  };
  [[nodiscard]] Found find(DeviceAddress address);
  [[nodiscard]] BlockFacts facts_of(const Arena& arena, BlockId id) const;
  [[nodiscard]] static StreamHandle stream_of(const Arena& arena, Owner owner) {
    const StreamLedger& streams = arena.heap.streams();
    return streams.sets().members(owner).empty() ? StreamHandle{0} : streams.handle_of(owner);
  }
  void make_pool(PoolId id);
  /// Copies back what was saved of the pool; what could not be copied stays saved.
  DriverStatus restore_contents(PoolIndex pool);
  /// After running out: what is free in pools that allow it is everyone's. Whether there are such.
  bool open_pools(Unit units);
  void note_pool_block(PoolIndex index, std::uint64_t bytes);
  void note_pool_free(PoolIndex index, std::uint64_t bytes);
  void give_up_if_unused(const PrivatePool& pool);
  [[nodiscard]] PoolId pool_id(PoolIndex index) const;
  /// Gives the memory of pools back that were given up and had a source of their own.
  void drop_spent();
  [[nodiscard]] HoleTally holes() const;
  void report_arena(const Arena& arena, HeapReport& report) const;
  [[nodiscard]] DeviceStatistics read_statistics() const;
  /// A block begins to live.
  void note_block(Arena& arena, const DeviceHeap::Placed& placed, Owner owner, std::uint64_t bytes,
                  std::uint64_t requested_bytes) {
    Block& block = arena.heap.blocks()[placed.block];
    block.owner = owner;
    block.extra = static_cast<std::uint32_t>(bytes - requested_bytes);
    block.small = bytes <= kSmallPoolBytes;
    arena.live.insert(placed.address + arena.before_bytes(owner), placed.block);
    statistics_.on_alloc(block.small, static_cast<std::int64_t>(bytes),
                         static_cast<std::int64_t>(requested_bytes));
    if (log_.is_on()) [[unlikely]]
      record(AllocatorEvent::Kind::alloc, arena, placed.block);
  }
  /// A block that is in the live table no more ends.
  void free_block(Arena& arena, BlockId id) {
    const Block& block = arena.heap.blocks()[id];
    const std::int64_t bytes = static_cast<std::int64_t>(block.size * kUnitBytes);
    const Owner owner = block.owner;
    statistics_.on_free(block.small, bytes, bytes - block.extra);
    if (arena.heap.streams().several()) [[unlikely]]
      defer_if_used(arena, block);
    give_back(arena, id, owner, static_cast<std::uint64_t>(bytes));
  }
  /// The block's memory is free.
  void give_back(Arena& arena, BlockId id, Owner owner, std::uint64_t bytes) {
    if (check_ != nullptr) [[unlikely]]
      check_end(arena, id);
    if (log_.is_on()) [[unlikely]]
      record(AllocatorEvent::Kind::free, arena, id);
    arena.heap.free(id, owner);
    if (watches_frees_) [[unlikely]]
      after_free(arena, owner, bytes);
  }
  /// What there is to do after a free where there are pools or a soft limit.
  void after_free(Arena& arena, Owner owner, std::uint64_t bytes);
  /// Whether streams may not be asked how far they are, as PyTorch's allocator sees it.
  [[nodiscard]] bool captures() const {
    return capture_marks_ ? *capture_marks_ > 0 : main_.heap.streams().watches_captures();
  }
  /// Whether a graph may be captured on a stream that the heap has not seen: the host must not
  /// wait.
  [[nodiscard]] bool may_capture_unseen(const DeviceHeap& heap) const;
  /// Where record_stream() was called for the block, it counts as active a while longer.
  void defer_if_used(const Arena& arena, const Block& block);
  /// Gives free pages back where more than the soft limit is reserved and that would help.
  void keep_soft_limit();
  /// One pin less; with the last one a block that is held becomes free.
  void drop_pin(DeviceAddress address);
  DriverStatus export_block(const Arena& arena, BlockId id, SharedBlock& shared);
  /// Whether any block of the pool is pinned.
  [[nodiscard]] bool is_pinned(PoolIndex pool) const;
  /// A pinned block that is freed: it is held. False where it is not pinned.
  bool hold_if_pinned(Arena& arena, DeviceAddress address, BlockId id);
  [[nodiscard]] SpillReport read_spill() const;
  [[nodiscard]] std::vector<PoolDebt> read_owed_to_pools() const;
  /// Brings the statistics of holes and of reserved memory up to date.
  void note_memory();
  [[nodiscard]] std::string describe_failure(std::uint64_t bytes, const Request& request,
                                             const DeviceHeap::Placed& placed) const;

  mutable Mutex lock_;
  AfterFork after_fork_{[this] { lock_.abandon(); }};
  std::unique_ptr<NvtxDriver> nvtx_;  // nullptr: check:nvtx is not asked for
  Driver& driver_;                    // that, or what it stands in front of
  DeviceIndex device_;
  DeviceProperties properties_;
  Options options_;
  Arena main_;
  std::unique_ptr<MemoryCheck> check_;  // nullptr: none is asked for
  bool told_of_no_tool_ = false;
  std::function<std::string()> call_site_source_;
  std::map<PoolIndex, std::unique_ptr<SourcedArena>> sourced_;
  std::vector<std::unique_ptr<SourcedArena>> spent_;  // given up; still with memory
  mutable Pools pools_;
  SoftLimit soft_limit_;
  bool watches_frees_;     // after_free() has something to do
  bool restores_ = false;  // a pool's state: no memory is given back meanwhile
  StatisticsKeeper statistics_;
  std::uint64_t noted_changes_ = 0;  // main_.heap.changes() at the last note_memory()
  SavedContents saved_;
  PinnedBlocks pinned_;
  DeferredFrees deferred_;
  EventLog log_;
  std::function<void(const MappingChange&)> mapping_observer_;
  std::optional<int> capture_marks_;  // captures that note_capture() told of
  SpillWatch spill_watch_;
  FailedRequests failures_;
};

}  // namespace gapless
