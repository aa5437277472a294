#include "allocator/report/address.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "allocator/base/bytes.h"

namespace gapless {
namespace {

constexpr std::uint64_t kNear = GiB;
// A fence keeps a page unmapped behind a block (check/fence.h).
constexpr std::uint64_t kBehindFreed = 2 * MiB;

std::int64_t offset_in(const StateBlock& block, std::uint64_t address) {
  return static_cast<std::int64_t>(address - block.given_address());
}

bool holds(const StateBlock& block, std::uint64_t address) {
  return block.address <= address && address - block.address < block.bytes;
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

// "12 bytes", "2.32 GiB (2,491,234 bytes)".
std::string exact(std::uint64_t bytes) {
  if (bytes < KiB) return format_bytes(bytes);
  return format_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

// "a block of 4.00 MiB (4194304 bytes) at 0x7f..., stream 0x0, allocated at train.py:42 (step)".
std::string describe(const StateBlock& block) {
  std::string text = "a block of " + exact(block.requested_bytes) + " at " +
                     hexadecimal(block.given_address()) + ", stream " + hexadecimal(block.stream);
  if (!block.site.empty()) text += ", allocated at " + block.site;
  return text;
}

std::string lies(const NearBlock& near) {
  if (near.offset < 0) {
    return exact(static_cast<std::uint64_t>(-near.offset)) + " before the begin of";
  }
  if (near.behind_bytes() != 0) return exact(near.behind_bytes()) + " behind the end of";
  return "at byte " + std::to_string(near.offset) + " of";
}

}  // namespace

std::uint64_t NearBlock::behind_bytes() const {
  const auto asked = static_cast<std::int64_t>(block.requested_bytes);
  return offset < asked ? 0 : static_cast<std::uint64_t>(offset - asked) + 1;
}

AddressReport report_address(const MemoryState& state, std::uint64_t address) {
  AddressReport report;
  report.address = address;
  const auto note = [&](const StateSegment& segment, const StateBlock& block) {
    const NearBlock near{block, offset_in(block, address)};
    if (holds(block, address)) {
      report.block = near;
      report.device = segment.device;
      report.segment = segment.pool;
    }
    if (block.kind != StateBlock::Kind::live || holds(block, address)) return;
    auto& side = block.address < address ? report.before : report.after;
    const auto distance = [&](const NearBlock& one) {
      return one.block.address < address ? address - one.block.address - one.block.bytes
                                         : one.block.address - address;
    };
    if (distance(near) > kNear || (side && distance(*side) <= distance(near))) return;
    side = near;
    if (report.device < 0) report.device = segment.device;
  };
  for (const StateSegment& segment : state.segments) {
    for (const StateBlock& block : segment.blocks) note(segment, block);
  }
  for (auto freed = state.freed.rbegin(); freed != state.freed.rend(); ++freed) {
    const bool beside = address >= freed->block.address + freed->block.bytes &&
                        address - freed->block.address - freed->block.bytes < kBehindFreed &&
                        freed->fenced;
    if (!holds(freed->block, address) && !beside) continue;
    report.freed.push_back({freed->block, offset_in(freed->block, address)});
    if (report.device < 0) report.device = freed->device;
    if (report.freed.size() == AddressReport::kMostFreed) break;
  }
  return report;
}

std::string to_text(const AddressReport& report) {
  const std::string at = hexadecimal(report.address);
  std::string text;
  const auto say = [&](const std::string& sentence) { text += sentence + ".\n"; };
  if (report.block && report.block->block.kind != StateBlock::Kind::free) {
    const bool live = report.block->block.kind == StateBlock::Kind::live;
    say(at + " is " + lies(*report.block) + " " + describe(report.block->block) +
        (live ? ", which is live" : ", which is freed, and in use by other streams or pinned"));
  } else if (report.block) {
    say(at + " is in free memory (a hole of " + exact(report.block->block.bytes) + " at " +
        hexadecimal(report.block->block.address) + ")");
  } else if (report.device < 0) {
    say(at + " is not in or near any memory of the recording");
  } else {
    say(at + " is in no memory of the recording's end: nothing of it is mapped there");
  }
  for (const NearBlock& freed : report.freed) {
    std::string sentence =
        "It was " + lies(freed) + " " + describe(freed.block) + ", which was freed";
    if (freed.block.freed_s) {
      std::array<char, 32> seconds{};
      std::snprintf(seconds.data(), seconds.size(), " %.3g s before", *freed.block.freed_s);
      sentence += seconds.data();
    }
    say(sentence);
  }
  if (!report.block || report.block->block.kind == StateBlock::Kind::free) {
    if (report.before)
      say("Before it: " + lies(*report.before) + " " + describe(report.before->block));
    if (report.after)
      say("Behind it: " + lies(*report.after) + " " + describe(report.after->block));
  }
  return text;
}

}  // namespace gapless
