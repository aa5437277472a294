#include "simgpu/process/memory_trace.h"

#include <cstdlib>
#include <fstream>
#include <new>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simgpu/process/recorder.h"

namespace gapless::simgpu {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kEventsInChunk = kChunkBytes / sizeof(MemoryEvent);

}  // namespace

bool MemoryTrace::wanted() {
  static const bool wanted = [] {
    const char* const text = std::getenv("SIMGPU_MEMORY_TRACE");
    return text != nullptr && *text != '\0';
  }();
  return wanted;
}

MemoryTrace& MemoryTrace::get() {
  static auto* const trace = [] {
    (void)pthread_atfork(nullptr, nullptr, [] { MemoryTrace::get().forget(); });
    return new MemoryTrace(Recorder::get());
  }();
  return *trace;
}

// Room for the next event. Memory of the file is had before it is written to: a full disk must not
// end the program.
bool MemoryTrace::grow() {
  if (ended_) return false;
  if (chunks_ == 0) {
    const std::string stem = recorder_.stem();
    if (stem.empty()) return false;
    path_ = stem + ".memory";
    file_ = open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  }
  if (chunk_ != nullptr) munmap(chunk_, kChunkBytes);
  chunk_ = nullptr;
  const auto at = static_cast<off_t>(chunks_ * kChunkBytes);
  void* mapped = MAP_FAILED;
  if (file_ >= 0 && posix_fallocate(file_, at, kChunkBytes) == 0) {
    mapped = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, at);
  }
  ended_ = mapped == MAP_FAILED;
  if (ended_) return false;
  chunk_ = static_cast<MemoryEvent*>(mapped);
  in_chunk_ = 0;
  ++chunks_;
  return true;
}

void MemoryTrace::add(const MemoryEvent& event) {
  if (event.kind == MemoryEvent::Kind::free) {  // another block may come to lie there
    const void* freed = reinterpret_cast<const void*>(event.address);
    (void)last_workspace_.compare_exchange_strong(freed, nullptr);
  }
  const std::scoped_lock lock(mutex_);
  if (chunk_ == nullptr || in_chunk_ == kEventsInChunk) {
    if (!grow()) return;
  }
  const bool last = (chunks_ - 1) * kEventsInChunk + in_chunk_ + 1 == kMostEvents;
  chunk_[in_chunk_] = event;
  if (last) {
    chunk_[in_chunk_].kind = MemoryEvent::Kind::cut;
    ended_ = true;
  }
  ++in_chunk_;
}

void MemoryTrace::workspace(const void* address) {
  if (address == nullptr || last_workspace_.exchange(address) == address) return;
  MemoryEvent event;
  event.kind = MemoryEvent::Kind::holds;
  event.holder = Holder::workspaces;
  event.address = reinterpret_cast<std::uint64_t>(address);
  add(event);
}

Holder& MemoryTrace::scope() {
  [[gnu::tls_model("initial-exec")]] thread_local Holder scope = Holder::unknown;
  return scope;
}

std::uint32_t& MemoryTrace::site() {
  [[gnu::tls_model("initial-exec")]] thread_local std::uint32_t site = 0;
  return site;
}

void MemoryTrace::forget() {
  new (&mutex_) std::mutex;  // another thread of the parent's may have held it
  if (chunk_ != nullptr) munmap(chunk_, kChunkBytes);
  if (file_ >= 0) close(file_);
  chunk_ = nullptr;
  file_ = -1;
  chunks_ = 0;
  ended_ = false;
  last_workspace_ = nullptr;
}

std::vector<MemoryEvent> read_memory_trace(const std::string& path) {
  std::vector<MemoryEvent> events;
  std::ifstream file(path, std::ios::binary);
  std::vector<MemoryEvent> chunk(kEventsInChunk);
  while (file) {
    file.read(reinterpret_cast<char*>(chunk.data()), static_cast<std::streamsize>(kChunkBytes));
    const std::size_t got = static_cast<std::size_t>(file.gcount()) / sizeof(MemoryEvent);
    for (std::size_t i = 0; i < got; ++i) {
      if (chunk[i].kind == MemoryEvent::Kind::none) return events;
      events.push_back(chunk[i]);
    }
  }
  return events;
}

}  // namespace gapless::simgpu

extern "C" void simgpu_holds(int holder, const unsigned long long* addresses, std::size_t count) {
  using gapless::simgpu::MemoryEvent;
  MemoryEvent event;
  event.kind = MemoryEvent::Kind::holds;
  event.holder = static_cast<gapless::simgpu::Holder>(holder);
  for (std::size_t i = 0; i < count; ++i) {
    event.address = addresses[i];
    gapless::simgpu::MemoryTrace::get().add(event);
  }
}

extern "C" void simgpu_copied(unsigned long long to, unsigned long long from) {
  using gapless::simgpu::MemoryEvent;
  MemoryEvent event;
  event.kind = MemoryEvent::Kind::copied;
  event.address = to;
  event.bytes = from;
  gapless::simgpu::MemoryTrace::get().add(event);
}

extern "C" int simgpu_scope(int holder) {
  const auto before = gapless::simgpu::MemoryTrace::scope();
  gapless::simgpu::MemoryTrace::scope() = static_cast<gapless::simgpu::Holder>(holder);
  return static_cast<int>(before);
}
