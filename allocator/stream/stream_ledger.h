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
//
// A stream may refuse: no event is recorded on one that is capturing (it would become part of the
// graph), nor on one that the program has destroyed. What it freed since its last event cannot be
// come after then, which says nothing of other memory: whoever searches leaves it out and goes on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
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
    for (const StreamIndex stream : sets_.members(owner)) note_free_of(streams_[stream]);
    return now_;
  }
  /// The same where there is one stream.
  Epoch note_free_of_only_stream() {
    note_free_of(streams_.front());
    return now_;
  }
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
  /// Makes it so, by a wait on the device where nothing else does. Where a stream refuses, what
  /// that means for other memory is in refused_after().
  DriverStatus order_after(Owner user, Owner freed_by, Epoch epoch);
  /// The same of one stream's frees.
  [[nodiscard]] bool is_after_one(Owner user, StreamIndex other, Epoch epoch) const {
    return is_after_stream(sets_.members(user).front(), other, wanted(other, epoch));
  }
  bool ask_after_one(Owner user, StreamIndex other, Epoch epoch) {
    return ask_after_stream(sets_.members(user).front(), other, wanted(other, epoch));
  }
  DriverStatus order_after_one(Owner user, StreamIndex other, Epoch epoch) {
    return order_after_stream(sets_.members(user).front(), other, wanted(other, epoch));
  }
  /// The last epoch in which the stream freed anything.
  [[nodiscard]] Epoch last_free(StreamIndex stream) const { return streams_[stream].last_free; }
  /// Where captures are watched for: those that are capturing refuse, as far as `user` would have
  /// to wait for what they freed.
  void ask_refusals(Owner user);
  [[nodiscard]] bool any_refusal() const { return !refusals_.empty(); }
  /// Whether a stream has refused, or refuses more than before, since take_refusals().
  [[nodiscard]] bool newly_refused() const { return newly_refused_; }
  void take_refusals() { newly_refused_ = false; }
  /// What the driver said to a stream that refused although it does not capture; ok: none did.
  [[nodiscard]] DriverStatus refusal_error() const;
  /// What `freed_by` freed in later epochs than this cannot be come after, as far as streams have
  /// refused; kNoEpoch: none of it is known to be so.
  [[nodiscard]] Epoch refused_after(Owner freed_by) const;
  /// Another request, or another time: they may not refuse any more, and are asked anew.
  void begin_request() {
    ++time_;
    newly_refused_ = false;
    refusals_.clear();
  }
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
  /// Whether any stream is, or one that has not been seen yet may be.
  [[nodiscard]] bool any_capturing() const;
  /// Who says whether a stream that is in none of the sets may be capturing.
  void set_unseen_captures(std::function<bool()> may_capture) {
    unseen_captures_ = std::move(may_capture);
  }
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
  // Nothing was freed in it: what is done reaches further than kNeverUsed from the beginning.
  static constexpr Epoch kBefore = kNeverUsed + 1;
  struct Pending {
    Epoch epoch;  // what the stream freed up to here is covered
    EventHandle event;
    std::vector<Epoch> after;  // by stream: what the event comes after, too
  };
  struct Stream {
    Epoch last_free = 0;
    Epoch first_open = 0;     // of the frees that no event covers; where covered < last_free
    Epoch covered = kBefore;  // by the last event recorded
    Epoch completed = kBefore;
    std::uint64_t asked = 0;   // when its events were
    Epoch wanted = 0;          // when another stream last used what it freed; 0: never
    std::vector<Epoch> after;  // by stream: what its work comes after by waits on the device
    std::deque<Pending> pending;
  };

  void add_streams();
  void note_free_of(Stream& stream) const {
    if (stream.last_free <= stream.covered) stream.first_open = now_;
    stream.last_free = now_;
  }
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
  /// What of the stream's frees `epoch` stands for: not more than there were until then, as far as
  /// that is known.
  [[nodiscard]] Epoch wanted(StreamIndex index, Epoch epoch) const {
    const Stream& stream = streams_[index];
    const bool open = stream.last_free > stream.covered && epoch >= stream.first_open;
    return std::min(epoch, open ? stream.last_free : std::min(stream.last_free, stream.covered));
  }
  [[nodiscard]] bool is_after_stream(StreamIndex user, StreamIndex other, Epoch epoch) const;
  struct Refusal {
    Epoch last = 0;  // what was freed later cannot be come after
    DriverStatus status = DriverStatus::not_ready;
  };
  /// What the stream freed after that epoch cannot be come after now.
  void refuse(StreamIndex stream, Epoch after, DriverStatus status);
  [[nodiscard]] bool refuses(StreamIndex stream, Epoch epoch) const {
    const auto found = refusals_.find(stream);
    return found != refusals_.end() && epoch > found->second.last;
  }
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
  Epoch now_ = kBefore + 1;
  bool several_ = false;
  bool watch_captures_ = false;
  std::function<bool()> unseen_captures_;
  CaptureOrder captures_;
  std::map<StreamIndex, Refusal> refusals_;
  bool newly_refused_ = false;
  std::uint64_t time_ = 1;  // events are asked once in each
  std::uint64_t waits_ = 0;
};

}  // namespace gapless
