#include "torch_plugin/adapter/snapshot.h"

#include <algorithm>
#include <iterator>

#include "allocator/trace/going_back.h"

namespace gapless::torch_plugin {
namespace {

struct Piece {
  DeviceAddress address;
  DeviceAddress given;  // as the program knows it
  std::uint64_t bytes;
  std::uint64_t requested_bytes;
  StreamHandle stream;
  PoolId pool;
  bool allocated;
  bool active;
  bool in_window;
};

std::vector<Piece> pieces_of(const HeapReport& report) {
  using Kind = BlockReport::Kind;
  std::vector<Piece> pieces;
  for (const BlockReport& block : report.home) {
    if (block.kind == Kind::lent) continue;
    pieces.push_back({block.address, block.given, block.bytes, block.requested_bytes, block.stream,
                      block.pool, block.kind == Kind::live, block.kind != Kind::hole, false});
  }
  for (const WindowBlockReport& block : report.window_blocks) {
    pieces.push_back({block.address, block.given, block.bytes, block.requested_bytes, block.stream,
                      block.pool, !block.held, true, true});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.address < b.address; });
  return pieces;
}

}  // namespace

std::vector<torch_cuda::SegmentInfo> segments_of(
    const HeapReport& report, const std::function<Context(const void*)>& context_of) {
  std::vector<torch_cuda::SegmentInfo> segments;
  const Piece* before = nullptr;
  const std::vector<Piece> pieces = pieces_of(report);
  for (const Piece& piece : pieces) {
    const bool joins = before != nullptr && !piece.in_window && !before->in_window &&
                       before->pool == piece.pool &&
                       before->address + before->bytes == piece.address;
    if (!joins) {
      torch_cuda::SegmentInfo segment;
      segment.device = static_cast<c10::DeviceIndex>(report.device);
      segment.address = piece.address;
      segment.is_large = true;
      segment.is_expandable = true;
      segment.owner_private_pool_id = piece.pool;
      segments.push_back(std::move(segment));
    }
    before = &piece;
    torch_cuda::SegmentInfo& segment = segments.back();
    segment.total_size += piece.bytes;
    torch_cuda::BlockInfo block;
    block.size = piece.bytes;
    block.requested_size = piece.requested_bytes;
    block.allocated = piece.allocated;
    block.active = piece.active;
    if (piece.allocated) {
      segment.allocated_size += piece.bytes;
      segment.requested_size += piece.requested_bytes;
      block.context_when_allocated = context_of(pointer_of(piece.given));
    }
    if (piece.active) segment.active_size += piece.bytes;
    segment.blocks.push_back(std::move(block));
  }
  return segments;
}

void split_for_viewer(std::vector<TraceEntry>& entries,
                      const std::vector<torch_cuda::SegmentInfo>& segments) {
  GoingBack back;
  const auto number = [](const void* stream) { return reinterpret_cast<std::uint64_t>(stream); };
  for (const torch_cuda::SegmentInfo& segment : segments) {
    back.add({segment.address, segment.total_size}, number(segment.stream));
  }
  std::vector<TraceEntry> backwards;
  backwards.reserve(entries.size());
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const GoingBack::Range range{entry->addr_, entry->size_};
    if (entry->action_ == TraceEntry::SEGMENT_UNMAP) back.undo_unmap(range, number(entry->stream_));
    if (entry->action_ != TraceEntry::SEGMENT_MAP) {
      backwards.push_back(std::move(*entry));
      continue;
    }
    const auto pieces = back.undo_map(range);
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
      backwards.push_back(*entry);
      backwards.back().addr_ = piece->address;
      backwards.back().size_ = piece->bytes;
    }
  }
  entries.assign(std::make_move_iterator(backwards.rbegin()),
                 std::make_move_iterator(backwards.rend()));
}

}  // namespace gapless::torch_plugin
