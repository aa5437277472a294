#include "bench/corpus/session.h"

#include <algorithm>

namespace gapless::bench {

TensorMemory::~TensorMemory() {
  if (session != nullptr) session->release(*this);
}

Session::Session(const std::string& name, const std::string& source, std::uint64_t seed)
    : draw_(seed, 1) {
  trace_.name = name;
  trace_.source = source;
  trace_.starts_empty = true;
}

Tensor Session::alloc(std::uint64_t bytes) {
  // As PyTorch: what other streams are done with becomes free before a request is served.
  if (!waiting_.empty()) free_what_is_done();
  auto memory = std::make_shared<TensorMemory>();
  memory->block = ended_ ? 0 : trace_.blocks++;
  memory->stream = stream_;
  memory->bytes = std::max<std::uint64_t>(bytes, 1);
  write(EventKind::alloc, memory->block, memory->bytes, stream_);
  memory->session = this;
  return memory;
}

Tensor Session::alloc_elsewhere(std::uint64_t bytes, std::uint16_t stream) {
  const bool other = stream != stream_;
  const StreamScope scope(*this, stream);
  Tensor tensor = alloc(bytes);
  if (other) record_stream(tensor);
  return tensor;
}

void Session::record_stream(const Tensor& tensor) const {
  if (tensor && trace_.streams.size() > 1) tensor->used_elsewhere = true;
}

void Session::use_streams(std::uint16_t streams) {
  for (std::uint64_t i = trace_.streams.size(); i < streams; ++i) trace_.streams.push_back(i);
}

std::uint16_t Session::side_stream() {
  const auto sides = static_cast<std::uint16_t>(trace_.streams.size() - 1);
  if (sides == 0) return 0;
  next_side_ = static_cast<std::uint16_t>(next_side_ % sides);
  return ++next_side_;
}

void Session::release(const TensorMemory& memory) {
  if (ended_) return;
  if (!memory.used_elsewhere) {
    write(EventKind::free, memory.block, 0, memory.stream);
    return;
  }
  write(EventKind::free_requested, memory.block, 0, memory.stream);
  // The host runs ahead of the device by some operators.
  waiting_.push_back({events() + draw_.octaves(4, 255), memory.block, memory.stream});
}

void Session::write(EventKind kind, std::uint32_t block, std::uint64_t bytes,
                    std::uint16_t stream) {
  if (ended_) return;
  TraceEvent event;
  event.kind = kind;
  event.block = block;
  event.bytes = bytes;
  event.stream = stream;
  trace_.events.push_back(event);
}

void Session::free_what_is_done() {
  std::erase_if(waiting_, [&](const Waiting& one) {
    if (one.due > events()) return false;
    write(EventKind::free, one.block, 0, one.stream);
    return true;
  });
}

void Session::end() {
  for (const Waiting& one : waiting_) write(EventKind::free, one.block, 0, one.stream);
  waiting_.clear();
  ended_ = true;
}

}  // namespace gapless::bench
