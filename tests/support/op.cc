#include "tests/support/op.h"

#include <fmt/format.h>

namespace gapless::testing {
namespace {

struct Printer {
  std::string operator()(const Alloc& op) const {
    return fmt::format("Alloc{{{}, {}}}", op.bytes, op.stream);
  }
  std::string operator()(const Free& op) const { return fmt::format("Free{{{}}}", op.block); }
  std::string operator()(const Touch& op) const {
    return fmt::format("Touch{{{}, {}}}", op.block, op.duration_us);
  }
  std::string operator()(const UseOn& op) const {
    return fmt::format("UseOn{{{}, {}, {}}}", op.block, op.stream, op.duration_us);
  }
  std::string operator()(const UseElsewhere& op) const {
    return fmt::format("UseElsewhere{{{}, {}}}", op.block, op.duration_us);
  }
  std::string operator()(const BeginPool& op) const {
    return fmt::format("BeginPool{{{}, {}, {}}}", op.pool, op.stream, op.all_streams);
  }
  std::string operator()(const EndPool& op) const {
    return fmt::format("EndPool{{{}}}", op.release);
  }
  std::string operator()(const Capture& op) const {
    return fmt::format("Capture{{{}, {}}}", op.stream, op.pool);
  }
  std::string operator()(const EndCapture& /*op*/) const { return "EndCapture{}"; }
  std::string operator()(const Replay& op) const {
    return fmt::format("Replay{{{}, {}}}", op.graph, op.stream);
  }
  std::string operator()(const DropGraph& op) const {
    return fmt::format("DropGraph{{{}}}", op.graph);
  }
  std::string operator()(const Pin& op) const { return fmt::format("Pin{{{}}}", op.block); }
  std::string operator()(const Unpin& op) const { return fmt::format("Unpin{{{}}}", op.block); }
  std::string operator()(const Checkpoint& op) const {
    return fmt::format("Checkpoint{{{}}}", op.pool);
  }
  std::string operator()(const Restore& op) const {
    return fmt::format("Restore{{{}}}", op.checkpoint);
  }
  std::string operator()(const SetPool& op) const {
    return fmt::format("SetPool{{{}, {}}}", op.pool, op.use_on_oom);
  }
  std::string operator()(const Share& op) const { return fmt::format("Share{{{}}}", op.block); }
  std::string operator()(const Unshare& op) const { return fmt::format("Unshare{{{}}}", op.block); }
  std::string operator()(const Sleep& op) const {
    return fmt::format("Sleep{{{}, {}}}", op.pool, op.save);
  }
  std::string operator()(const Wake& op) const { return fmt::format("Wake{{{}}}", op.pool); }
  std::string operator()(const Copy& op) const {
    return fmt::format("Copy{{{}, {}}}", op.block, op.more_bytes);
  }
  std::string operator()(const Advance& op) const { return fmt::format("Advance{{{}}}", op.us); }
  std::string operator()(const SyncStream& op) const {
    return fmt::format("SyncStream{{{}}}", op.stream);
  }
  std::string operator()(const Trim& op) const { return fmt::format("Trim{{{}}}", op.keep_bytes); }
  std::string operator()(const SetLimit& op) const {
    return fmt::format("SetLimit{{{}}}", op.bytes);
  }
  std::string operator()(const FailNext& op) const {
    return fmt::format("FailNext{{{}, {}}}", op.nth, op.out_of_memory);
  }
  std::string operator()(const Report& op) const { return fmt::format("Report{{{}}}", op.reset); }
};

}  // namespace

std::string to_string(const Op& op) { return std::visit(Printer{}, op); }

std::string to_string(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops) text += (text.empty() ? "" : ", ") + to_string(op);
  return text;
}

Op random_op(std::mt19937_64& random, const ProgramStyle& style, std::size_t live) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  const auto stream = static_cast<std::uint32_t>(below(style.streams));
  const auto any = static_cast<std::uint32_t>(random());
  const std::uint64_t dice = below(1000);
  if (dice < 2) return Trim{below(3) == 0 ? below(style.capacity_bytes) : 0};
  if (dice < 4 && style.limits) {
    return SetLimit{below(4) == 0 ? UINT64_MAX : style.capacity_bytes / 8 * (1 + below(8))};
  }
  if (dice < 14 && style.faults) {
    return FailNext{static_cast<std::uint32_t>(1 + below(24)), below(2) == 0};
  }
  if (dice < 18) return Report{below(4) == 0};
  if (dice < 60) return Advance{static_cast<std::uint32_t>(below(400))};
  if (dice < 70) return SyncStream{stream};
  if (dice < 110 && style.streams > 1) {
    return UseOn{any, stream, static_cast<std::uint32_t>(below(200))};
  }
  if (dice >= 970 && style.peers) {
    return UseElsewhere{any, static_cast<std::uint32_t>(below(400))};
  }
  if (style.checkpoints && dice >= 970) {
    if (dice < 985) return Checkpoint{any};
    return Restore{any};
  }
  if (style.pools) {
    const auto pool = static_cast<std::uint32_t>(below(3));
    if (dice < 112) return BeginPool{pool, stream, below(2) == 0};
    if (dice < 116) return EndPool{below(2) == 0};
    if (dice < 119) return Capture{stream, pool};
    if (dice < 124) return EndCapture{};
    if (dice < 132) return Replay{any, stream};
    if (dice < 134) return DropGraph{any};
    if (dice < 136) return Checkpoint{any};
    if (dice < 138) return Restore{any};
  }
  if (style.pins && dice >= 138) {  // more unpins than pins: held memory is not to pile up
    if (dice < 141) return Pin{any};
    if (dice < 146) return Unpin{any};
  }
  if (style.pools && dice >= 146) {
    if (dice < 147) return Sleep{any, below(4) == 0};
    if (dice < 149) return Wake{any};
    if (dice < 150) return SetPool{any, below(2) == 0};
  }
  if (style.shares && dice >= 960 && dice < 970) {
    if (dice < 964) return Share{any};
    return Unshare{any};
  }
  if (dice < 151) return Touch{any, static_cast<std::uint32_t>(below(200))};
  if (dice < 480 && style.copies) return Copy{any, 512 * (1 + below(8))};
  // Around the target, as likely to grow as to shrink; phases of growth and of decay come of
  // themselves.
  const bool grows = below(2ULL * style.live_blocks) >= live;
  if (!grows && live != 0) return Free{any};
  const std::uint64_t shape = below(10);
  std::uint64_t bytes = 0;
  if (shape < 4) {
    bytes = 1 + below(8192);
  } else if (shape < 8) {
    bytes = 1 + below(style.largest_bytes / 16 + 1);
  } else if (shape < 9) {
    bytes = 1 + below(style.largest_bytes);
  } else {
    bytes = (1 + below(8)) * (style.largest_bytes / 8);
  }
  return Alloc{bytes, stream};
}

std::vector<Op> ops_of_bytes(const std::uint8_t* data, std::size_t size,
                             const ProgramStyle& style) {
  std::vector<Op> ops;
  for (std::size_t at = 0; at + 4 <= size; at += 4) {
    const std::uint32_t a = data[at + 1];
    const std::uint32_t b = data[at + 2];
    const std::uint32_t stream = data[at + 3] % style.streams;
    switch (data[at] % 16) {
      case 0:
        ops.emplace_back(Trim{a * (style.capacity_bytes / 256)});
        break;
      case 1:
        ops.emplace_back(SetLimit{(a + 1) * (style.capacity_bytes / 256)});
        break;
      case 2:
        ops.emplace_back(FailNext{1 + a % 32, b % 2 == 0});
        break;
      case 3:
        ops.emplace_back(Advance{a * 8});
        break;
      case 4:
        ops.emplace_back(SyncStream{stream});
        break;
      case 5:
        ops.emplace_back(Touch{a << 8 | b, stream * 16});
        break;
      case 6:
        ops.emplace_back(UseOn{a << 8 | b, stream, b * 2});
        break;
      case 7:
      case 8:
      case 9:
      case 10:
        ops.emplace_back(Free{a << 8 | b});
        break;
      case 11:
        ops.emplace_back(Alloc{1 + (a << 8 | b), stream});
        break;
      default:
        ops.emplace_back(Alloc{1 + ((a << 8 | b) * style.largest_bytes >> 16), stream});
        break;
    }
  }
  return ops;
}

}  // namespace gapless::testing
