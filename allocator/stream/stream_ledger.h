// StreamLedger: in what order streams freed memory, and how one stream comes after another.
//
//   stream 1   free free free | free free |      free            a free makes no driver call
//   stream 2       free       |           | free      free
//   epoch      ...... 4 ..... | ... 5 ... | ....... 6 (open)     one count for all streams
//   events                   e4 of 1     e5 of 1
//
// Memory that is freed carries the epoch that is open then: the host's order, by which its age is
// told. An event that is recorded ends an epoch, and covers all that its stream freed so far.
// Who wants memory that another stream freed comes after it: because that stream's event has
// completed, or because it waited for it before, or by waiting now, on the device (order_after).
// The host never waits here, except in finish().
//
// An event knows what its stream had waited for itself, so that one wait covers that too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "allocator/driver/driver.h"
#include "allocator/heap/block.h"
#include "allocator/stream/capture_order.h"
#include "allocator/stream/event_pool.h"
#include "allocator/stream/stream_sets.h"

namespace gapless {

class StreamLedger {
 public:
  StreamLedger(Driver& driver, DeviceIndex device)
      : driver_(driver), device_(device), sets_(device), events_(driver), captures_(driver) {}
  ~StreamLedger();
  StreamLedger(const StreamLedger&) = delete;
  StreamLedger& operator=(const StreamLedger&) = delete;

  /// The owner of what is allocated on that stream.
  Owner number_of(StreamHandle stream) {
    if (sets_.is_last(stream)) [[likely]]
      return sets_.last();
    const Owner owner = sets_.of_stream(stream);
    add_streams();
    return owner;
  }
  /// The owner of a block that is used on `stream` too.
  Owner with_use(Owner owner, const DeviceStream& stream);
  /// The stream that the owner's blocks were allocated on.
  [[nodiscard]] StreamHandle handle_of(Owner owner) const { return stream_of(owner).handle; }
  [[nodiscard]] const StreamSets& sets() const { return sets_; }
  [[nodiscard]] StreamSets& sets() { return sets_; }
  [[nodiscard]] std::size_t streams() const { return streams_.size(); }
  /// Whether more than one stream is in use: else nothing here matters.
  [[nodiscard]] bool several() const { return several_; }
  /// As if there were several: private pools tell one stream's memory from its own.
  void tell_apart() { several_ = true; }

  /// The epoch that is open.
  [[nodiscard]] Epoch now() const { return now_; }
  /// Ends it, without an event.
  void next_epoch() { ++now_; }
  /// A block of that owner is freed now; the epoch it is freed in.
  Epoch note_free(Owner owner) {
    for (const StreamIndex stream : sets_.members(owner)) streams_[stream].last_free = now_;
    return now_;
  }
  /// The same where there is one stream.
  Epoch note_free_of_only_stream() { return streams_.front().last_free = now_; }
  /// Everything the stream freed in this epoch and before is known to be done.
  [[nodiscard]] Epoch completed(StreamIndex stream) const { return streams_[stream].completed; }

  /// Records an event on the stream, unless all it freed is covered by one. `force`: even then.
  DriverStatus close_epoch(StreamIndex stream, bool force = false);
  /// Ends the epoch where the stream has freed enough for one; with an event while others use what
  /// it freed, so that they need not wait for more than that.
  DriverStatus end_epoch(StreamIndex stream);
  /// Whether all that the stream will be given from now on comes after what `freed_by` (kAnyone:
  /// any stream) freed in `epoch` and before, as far as is known without asking.
  [[nodiscard]] bool is_after(Owner user, Owner freed_by, Epoch epoch) const;
  /// The same, asking the events; records one where there is none yet to be asked.
  bool ask_after(Owner user, Owner freed_by, Epoch epoch);
  /// Makes it so, by a wait on the device where nothing else does.
  DriverStatus order_after(Owner user, Owner freed_by, Epoch epoch);
  /// Streams may be capturing a graph from now on, or not any more: meanwhile no event is recorded
  /// on one that does (it would become part of the graph), and the host does not wait.
  void watch_captures(bool watch) {
    watch_captures_ = watch;
    if (!watch) captures_.forget();
  }
  [[nodiscard]] bool watches_captures() const { return watch_captures_; }
  /// Whether that stream is capturing; not while captures are not watched for.
  DriverStatus ask_capturing(const DeviceStream& stream, bool& capturing) const;
  /// The same; true where the driver does not say.
  [[nodiscard]] bool is_capturing(const DeviceStream& stream) const;
  /// Whether any stream is.
  [[nodiscard]] bool any_capturing() const;
  /// While a graph is captured: a block was made for the owner's stream.
  void note_captured(BlockId block, Owner owner) { captures_.note_made(block, stream_of(owner)); }
  /// And such a block, or another of the pool, was freed. Ends the epoch: who comes in the graph
  /// after those who used the block may use it again.
  void note_captured_free(BlockId block, Owner owner);
  /// The work that `user`'s stream is given next comes, by the order of the graph that is being
  /// captured, after all uses of what `freed_by` freed in this epoch and before; 0: of nothing.
  Epoch captured_before(Owner user, Owner freed_by);
  /// Everything freed in this epoch and before, on any stream, is known to be done.
  [[nodiscard]] Epoch all_completed() const;

  /// Asks the events that are pending.
  DriverStatus poll();
  /// Whether any event is pending.
  [[nodiscard]] bool pending() const;
  /// The host waits for the device, and for others whose streams used its memory.
  DriverStatus synchronize() const;
  /// The same, and notes that all that was freed so far is done.
  DriverStatus finish();

  /// Device-side waits made.
  [[nodiscard]] std::uint64_t waits() const { return waits_; }

 private:
  struct Pending {
    Epoch epoch;  // what the stream freed up to here is covered
    EventHandle event;
    std::vector<Epoch> after;  // by stream: what the event comes after, too
  };
  struct Stream {
    Epoch last_free = 0;
    Epoch covered = 0;  // by the last event recorded
    Epoch completed = 0;
    Epoch wanted = 0;          // when another stream last used what it freed; 0: never
    std::vector<Epoch> after;  // by stream: what its work comes after by waits on the device
    std::deque<Pending> pending;
  };

  void add_streams();
  [[nodiscard]] const DeviceStream& stream_of(Owner owner) const {
    return sets_.stream(sets_.members(owner).front());
  }
  /// Calls f(stream) for the streams of an owner, for all where that is anyone, while it is true.
  template <class F>
  bool for_all_of(Owner owner, F&& f) const {
    if (const auto members = sets_.members(owner); !members.empty()) {
      return std::all_of(members.begin(), members.end(), f);
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const auto stream = static_cast<StreamIndex>(i);
      if (!f(stream)) return false;
    }
    return true;
  }
  /// What of the stream's frees `epoch` stands for: not more than there were.
  [[nodiscard]] Epoch wanted(StreamIndex stream, Epoch epoch) const {
    return std::min(streams_[stream].last_free, epoch);
  }
  [[nodiscard]] bool is_after_stream(StreamIndex user, StreamIndex other, Epoch epoch) const;
  DriverStatus order_after_stream(StreamIndex user, StreamIndex other, Epoch epoch);
  bool ask_after_stream(StreamIndex user, StreamIndex other, Epoch epoch);
  DriverStatus poll_one(StreamIndex stream);
  /// Nobody asks for the events that are pending any more.
  void forget_pending();
  static void join(std::vector<Epoch>& into, const std::vector<Epoch>& from);

  Driver& driver_;
  DeviceIndex device_;
  StreamSets sets_;
  std::vector<Stream> streams_;
  EventPool events_;
  Epoch now_ = 1;  // 0: never used, good for everyone
  bool several_ = false;
  bool watch_captures_ = false;
  CaptureOrder captures_;
  std::uint64_t waits_ = 0;
};

}  // namespace gapless
