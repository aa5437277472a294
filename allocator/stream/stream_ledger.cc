#include "allocator/stream/stream_ledger.h"

#include <set>
#include <utility>

namespace gapless {
namespace {

// Events go on being recorded for so many epochs after one was wanted.
constexpr Epoch kWantedFor = 256;
// Events pending on a stream before the oldest are asked whether they are done.
constexpr std::size_t kManyPending = 16;

}  // namespace

StreamLedger::~StreamLedger() { forget_pending(); }

void StreamLedger::add_streams() {
  streams_.resize(sets_.streams());
  several_ = several_ || streams_.size() > 1;
}

Owner StreamLedger::with_use(Owner owner, const DeviceStream& stream) {
  const Owner used = sets_.with(owner, stream);
  add_streams();
  return used;
}

void StreamLedger::forget_pending() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const DeviceIndex device = sets_.stream(static_cast<StreamIndex>(i)).device;
    for (const Pending& pending : streams_[i].pending) events_.put_back(device, pending.event);
    streams_[i].pending.clear();
  }
}

void StreamLedger::join(std::vector<Epoch>& into, const std::vector<Epoch>& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

DriverStatus StreamLedger::close_epoch(StreamIndex index, bool force) {
  Stream& stream = streams_[index];
  if (stream.last_free <= stream.covered && !force) return DriverStatus::ok;
  if (is_capturing(sets_.stream(index))) return DriverStatus::not_ready;
  EventHandle event = 0;
  const DriverStatus status = events_.record(sets_.stream(index), event);
  if (status != DriverStatus::ok) return status;
  stream.pending.push_back({now_, event, stream.after});
  stream.covered = now_++;
  return DriverStatus::ok;
}

DriverStatus StreamLedger::end_epoch(StreamIndex index) {
  const Stream& stream = streams_[index];
  if (stream.wanted == 0 || now_ - stream.wanted > kWantedFor) {
    ++now_;
    return DriverStatus::ok;
  }
  if (stream.pending.size() >= kManyPending) (void)poll_one(index);
  return close_epoch(index);
}

// --- coming after --------------------------------------------------------------------------------

bool StreamLedger::is_after_stream(StreamIndex user, StreamIndex other, Epoch epoch) const {
  if (user == other || epoch <= streams_[other].completed) return true;
  const std::vector<Epoch>& after = streams_[user].after;
  return other < after.size() && epoch <= after[other];
}

bool StreamLedger::is_after(Owner user, Owner freed_by, Epoch epoch) const {
  const StreamIndex stream = sets_.members(user).front();
  return for_all_of(freed_by, [&](StreamIndex other) {
    return is_after_stream(stream, other, wanted(other, epoch));
  });
}

bool StreamLedger::ask_after_stream(StreamIndex user, StreamIndex other, Epoch epoch) {
  if (is_after_stream(user, other, epoch)) return true;
  if (refuses(other, epoch)) return false;
  Stream& stream = streams_[other];
  stream.wanted = now_;
  const bool records = stream.covered < epoch;
  if (records) {
    const DriverStatus status = close_epoch(other, true);
    if (status != DriverStatus::ok) {
      refuse(other, stream.covered, status);
      return false;
    }
  }
  if (stream.asked == time_ && !records) return false;
  stream.asked = time_;
  return poll_one(other) == DriverStatus::ok && is_after_stream(user, other, epoch);
}

bool StreamLedger::ask_after(Owner user, Owner freed_by, Epoch epoch) {
  const StreamIndex stream = sets_.members(user).front();
  return for_all_of(freed_by, [&](StreamIndex other) {
    return ask_after_stream(stream, other, wanted(other, epoch));
  });
}

DriverStatus StreamLedger::order_after_stream(StreamIndex user, StreamIndex other, Epoch epoch) {
  if (is_after_stream(user, other, epoch)) return DriverStatus::ok;
  if (refuses(other, epoch)) return DriverStatus::not_ready;
  Stream& freed = streams_[other];
  freed.wanted = now_;
  // Often it is done by now, and nobody has to wait. Who is not told so waits.
  if (std::exchange(freed.asked, time_) != time_) (void)poll_one(other);
  if (is_after_stream(user, other, epoch)) return DriverStatus::ok;
  if (freed.covered < epoch) {
    const DriverStatus status = close_epoch(other, true);
    if (status != DriverStatus::ok) {
      refuse(other, freed.covered, status);
      return status;
    }
  }
  const auto enough = std::find_if(freed.pending.begin(), freed.pending.end(),
                                   [&](const Pending& event) { return event.epoch >= epoch; });
  const DeviceStream& waits = sets_.stream(user);
  const DriverStatus status = driver_.stream_wait_event(waits.device, waits.handle, enough->event);
  Stream& stream = streams_[user];
  if (stream.after.size() <= other) stream.after.resize(std::size_t{other} + 1, 0);
  if (status != DriverStatus::ok) {
    refuse(other, std::max(freed.completed, stream.after[other]), status);
    return status;
  }
  ++waits_;
  join(stream.after, enough->after);
  stream.after[other] = std::max(stream.after[other], enough->epoch);
  return status;
}

void StreamLedger::refuse(StreamIndex index, Epoch after, DriverStatus status) {
  const Stream& stream = streams_[index];
  // It freed nothing between its last event and first_open.
  const Epoch last = after < stream.covered ? after : std::max(after, stream.first_open - 1);
  const auto [found, is_new] = refusals_.try_emplace(index, Refusal{last, status});
  if (!is_new && last >= found->second.last) return;
  found->second = {last, status};
  newly_refused_ = true;
}

DriverStatus StreamLedger::refusal_error() const {
  for (const auto& [stream, refusal] : refusals_) {
    if (refusal.status != DriverStatus::not_ready) return refusal.status;
  }
  return DriverStatus::ok;
}

void StreamLedger::ask_refusals(Owner user) {
  if (!watch_captures_) return;
  const StreamIndex waiting = sets_.members(user).front();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto index = static_cast<StreamIndex>(i);
    const Stream& stream = streams_[i];
    if (stream.last_free <= stream.covered || refuses(index, stream.last_free) ||
        is_after_stream(waiting, index, stream.last_free)) {
      continue;
    }
    if (is_capturing(sets_.stream(index))) {
      refuse(index, stream.covered, DriverStatus::not_ready);
    }
  }
}

Epoch StreamLedger::refused_after(Owner freed_by) const {
  Epoch last = kNoEpoch;
  for (const auto& [stream, refusal] : refusals_) {
    const auto members = sets_.members(freed_by);
    const bool of_it =
        members.empty() || std::find(members.begin(), members.end(), stream) != members.end();
    if (of_it && streams_[stream].last_free > refusal.last) last = std::min(last, refusal.last);
  }
  return last;
}

DriverStatus StreamLedger::order_after(Owner user, Owner freed_by, Epoch epoch) {
  const StreamIndex stream = sets_.members(user).front();
  DriverStatus status = DriverStatus::ok;
  for_all_of(freed_by, [&](StreamIndex other) {
    status = order_after_stream(stream, other, wanted(other, epoch));
    return status == DriverStatus::ok;
  });
  return status;
}

// --- captures ------------------------------------------------------------------------------------

DriverStatus StreamLedger::ask_capturing(const DeviceStream& stream, bool& capturing) const {
  capturing = false;
  return watch_captures_ ? driver_.stream_is_capturing(stream.device, stream.handle, capturing)
                         : DriverStatus::ok;
}

bool StreamLedger::is_capturing(const DeviceStream& stream) const {
  bool capturing = false;
  return ask_capturing(stream, capturing) != DriverStatus::ok || capturing;
}

bool StreamLedger::any_capturing() const {
  if (!watch_captures_) return false;
  const auto is_none = [&](StreamIndex stream) { return !is_capturing(sets_.stream(stream)); };
  return !for_all_of(kAnyone, is_none) || (unseen_captures_ && unseen_captures_());
}

void StreamLedger::note_captured_free(BlockId block, Owner owner) {
  std::vector<DeviceStream> streams;
  for (const StreamIndex stream : sets_.members(owner)) streams.push_back(sets_.stream(stream));
  captures_.note_free(block, owner, now_, streams);
  next_epoch();  // later frees are not covered by where the streams are now
}

Epoch StreamLedger::captured_before(Owner user, Owner freed_by) {
  return captures_.before(stream_of(user), freed_by);
}

Epoch StreamLedger::all_completed() const {
  Epoch all = now_ - 1;
  for (const Stream& stream : streams_) {
    if (stream.completed < stream.last_free) all = std::min(all, stream.completed);
  }
  return all;
}

// --- asking and waiting --------------------------------------------------------------------------

DriverStatus StreamLedger::poll_one(StreamIndex index) {
  Stream& stream = streams_[index];
  const DeviceIndex device = sets_.stream(index).device;
  while (!stream.pending.empty()) {
    const DriverStatus status = driver_.event_query(device, stream.pending.front().event);
    if (status == DriverStatus::not_ready) break;
    if (status != DriverStatus::ok) return status;
    const Pending done = std::move(stream.pending.front());
    stream.pending.pop_front();
    events_.put_back(device, done.event);
    stream.completed = std::max(stream.completed, done.epoch);
    for (std::size_t i = 0; i < done.after.size(); ++i) {
      streams_[i].completed = std::max(streams_[i].completed, done.after[i]);
    }
  }
  return DriverStatus::ok;
}

DriverStatus StreamLedger::poll() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto stream = static_cast<StreamIndex>(i);
    if (const DriverStatus status = poll_one(stream); status != DriverStatus::ok) return status;
  }
  return DriverStatus::ok;
}

bool StreamLedger::pending() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return !stream.pending.empty(); });
}

DriverStatus StreamLedger::synchronize() const {
  // One call for all streams of a device; it also covers those the program has destroyed meanwhile.
  std::set<DeviceIndex> devices = {device_};
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    devices.insert(sets_.stream(static_cast<StreamIndex>(i)).device);
  }
  for (const DeviceIndex device : devices) {
    const DriverStatus status = driver_.device_synchronize(device);
    if (status != DriverStatus::ok) return status;
  }
  return DriverStatus::ok;
}

DriverStatus StreamLedger::finish() {
  if (const DriverStatus status = synchronize(); status != DriverStatus::ok) return status;
  forget_pending();
  begin_request();
  for (Stream& stream : streams_) {
    stream.completed = now_;
    stream.covered = now_;
  }
  ++now_;
  return DriverStatus::ok;
}

}  // namespace gapless
