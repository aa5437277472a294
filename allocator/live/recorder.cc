#include "allocator/live/recorder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/futex.h"
#include "allocator/base/terminal_text.h"
#include "allocator/base/ticks.h"
#include "allocator/live/stack_table.h"
#include "allocator/trace/streamed_writer.h"

namespace gapless {
namespace {

using Clock = std::chrono::steady_clock;

// PyTorch makes well below a million requests a second: room for a thirtieth of one, small enough
// to stay in a cache.
constexpr std::size_t kRingEvents = std::size_t{1} << 15;
constexpr std::uint64_t kEveryMs = 10;
constexpr std::chrono::seconds kFlushEvery{1};
constexpr std::size_t kMostSites = 20;

EventKind kind_of(AllocatorEvent::Kind kind) {
  switch (kind) {
    case AllocatorEvent::Kind::alloc:
      return EventKind::alloc;
    case AllocatorEvent::Kind::free_requested:
      return EventKind::free_requested;
    case AllocatorEvent::Kind::free:
      return EventKind::free;
    case AllocatorEvent::Kind::mapped:
      return EventKind::segment_map;
    case AllocatorEvent::Kind::unmapped:
      return EventKind::segment_unmap;
    case AllocatorEvent::Kind::out_of_memory:
      return EventKind::oom;
    case AllocatorEvent::Kind::lost:
      break;
  }
  return EventKind::marker;
}

// "run" of "traces/run.gtrace".
std::string name_of(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.substr(0, file.rfind('.'));
}

std::string call_site_of(std::uint32_t stack) {
  const std::vector<std::string> frames = recorded_stacks().frames_of(stack);
  return call_site({frames.begin(), frames.end()});
}

}  // namespace

struct Recorder::Session {
  Session(std::string file, bool with_stacks) : path(std::move(file)), stacks(with_stacks) {}
  ~Session() {
    if (descriptor >= 0) ::close(descriptor);
  }

  void open() {
    constexpr int kMode = 0644;
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (descriptor < 0)
      throw InputError(path, "", std::string("cannot be made: ") + std::strerror(errno));
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        throw InputError(path, "", std::string("cannot be written: ") + std::strerror(errno));
      }
      file_bytes += static_cast<std::uint64_t>(count);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  [[nodiscard]] StreamedEvent streamed(const AllocatorEvent& event, std::uint64_t at) const {
    return {kind_of(event.kind), event.address,     event.bytes,     event.stream,
            event.pool_creator,  event.pool_number, clock.us_at(at), event.stack};
  }

  void take(std::size_t trace) {
    // What is taken now was not there when the ring was looked at last.
    std::uint64_t at = std::exchange(looked_at[trace], ticks());
    rings[trace]->take([&](const AllocatorEvent& event) {
      at = std::max(at, event.ticks);
      if (event.kind == AllocatorEvent::Kind::lost) {
        writer.lost(trace, event.bytes);
      } else {
        writer.event(trace, streamed(event, at));
      }
    });
  }

  // All that the rings hold. A stack is in the table before an event names it.
  void drain() {
    clock.mark();
    for (std::size_t i = 0; i < rings.size(); ++i) take(i);
    if (stacks) {
      std::vector<std::string> frames;
      std::vector<CallStacks::Node> nodes;
      recorded_stacks().tell(told, frames, nodes);
      if (!nodes.empty()) writer.add_stacks(frames, nodes);
    }
    writer.write_full();
  }

  std::string path;
  bool stacks;
  int descriptor = -1;
  std::uint64_t file_bytes = 0;
  TickClock clock;
  StackTable::Told told;
  std::vector<std::shared_ptr<EventRing>> rings;
  std::vector<std::uint64_t> looked_at;  // ticks, by ring
  StreamedWriter writer{[this](std::string_view bytes) { write(bytes); }};
  std::string error;

  std::mutex mutex;  // of all above but the rings
  std::atomic<std::uint32_t> ending{0};
  std::thread thread;
};

Recorder::Recorder(Allocator& devices) : devices_(devices) {}

Recorder::~Recorder() { (void)end(); }

void Recorder::set_stack_source(DeviceAllocator::StackSource source) {
  const std::scoped_lock lock(mutex_);
  stack_source_ = source;
  for (DeviceIndex i = 0; i < devices_.devices(); ++i) {
    devices_.device(i)->change_stack_source(source);
  }
}

void Recorder::begin(const std::string& path, bool stacks) {
  const std::scoped_lock lock(mutex_);
  if (session_ != nullptr) {
    throw InputError(path, "", "this process is being recorded already, to " + session_->path);
  }
  auto session = std::make_unique<Session>(path, stacks);
  session->open();
  std::vector<StreamedDevice> devices;
  std::vector<std::vector<StreamedEvent>> initial;
  try {
    for (DeviceIndex i = 0; i < devices_.devices(); ++i) {
      auto ring = std::make_shared<EventRing>(kRingEvents);
      const auto there =
          devices_.device(i)->begin_recording(ring, stacks ? stack_source_ : nullptr);
      if (!there) throw InputError(path, "", "this process is being recorded already");
      session->rings.push_back(std::move(ring));
      session->looked_at.push_back(ticks());
      StreamedDevice& device = devices.emplace_back();
      device = {name_of(path), "gapless", i, {}};
      std::vector<StreamedEvent>& blocks = initial.emplace_back();
      for (const AllocatorEvent& event : *there) {
        if (event.kind == AllocatorEvent::Kind::mapped) {
          TraceSegment segment;
          segment.address = event.address;
          segment.bytes = event.bytes;
          device.mapped.push_back(segment);
        } else {
          blocks.push_back(session->streamed(event, session->looked_at.back()));
        }
      }
    }
    session->writer.begin(devices, initial);
  } catch (...) {
    for (std::size_t i = 0; i < session->rings.size(); ++i) {
      devices_.device(static_cast<DeviceIndex>(i))->end_recording();
    }
    (void)::unlink(path.c_str());
    throw;
  }
  session_ = std::move(session);
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  session_->thread = std::thread([this, session = session_.get()] {
    Clock::time_point flushed = Clock::now();
    bool failed = false;
    while (session->ending == 0 && !failed) {
      futex_wait(session->ending, 0, kEveryMs);
      const std::scoped_lock inner(session->mutex);
      try {
        session->drain();
        if (Clock::now() - flushed < kFlushEvery) continue;
        session->writer.flush();
        flushed = Clock::now();
      } catch (const std::exception& error) {
        failed = true;
        session->error = error.what();
        std::fprintf(stderr, "gapless: the recording ends: %s\n",
                     terminal_text(session->error).c_str());
      }
    }
    if (!failed) return;
    for (DeviceIndex i = 0; i < devices_.devices(); ++i) devices_.device(i)->end_recording();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Recorder::State Recorder::state() {
  const std::scoped_lock lock(mutex_);
  State state;
  if (session_ == nullptr) return state;
  const std::scoped_lock inner(session_->mutex);
  state.on = session_->error.empty();
  state.path = session_->path;
  state.events = session_->writer.events();
  for (const auto& ring : session_->rings) state.lost += ring->lost();
  state.file_bytes = session_->file_bytes;
  state.error = session_->error;
  std::map<std::string, std::uint64_t> by_site;  // one may be called from many places
  for (const auto& [stack, bytes] : session_->writer.live_by_stack()) {
    if (bytes != 0) by_site[call_site_of(stack)] += bytes;
  }
  for (const auto& [site, bytes] : by_site) state.sites.push_back({site, bytes});
  std::stable_sort(state.sites.begin(), state.sites.end(),
                   [](const Site& a, const Site& b) { return a.live_bytes > b.live_bytes; });
  if (state.sites.size() > kMostSites) state.sites.resize(kMostSites);
  return state;
}

Recorder::State Recorder::end() {
  State last = state();
  const std::scoped_lock lock(mutex_);
  if (session_ == nullptr) return last;
  for (DeviceIndex i = 0; i < devices_.devices(); ++i) devices_.device(i)->end_recording();
  session_->ending = 1;
  futex_wake(session_->ending);
  session_->thread.join();
  if (session_->error.empty()) {
    try {
      session_->drain();
      session_->writer.end();
    } catch (const std::exception& failed) {
      session_->error = failed.what();
    }
  }
  last.on = false;
  last.events = session_->writer.events();
  last.lost = 0;
  for (const auto& ring : session_->rings) last.lost += ring->lost();
  last.file_bytes = session_->file_bytes;
  last.error = session_->error;
  session_.reset();
  return last;
}

void Recorder::forget() {
  // The thread is the parent's, and may have held any lock.
  if (session_ == nullptr) return;
  (void)session_.release();
}

}  // namespace gapless
