#include "simgpu/ptx/block.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace gapless::simgpu::ptx {
namespace {

constexpr unsigned kTurn = 256;  // instructions a warp runs before another may

unsigned product(const Dim3& size) { return size[0] * size[1] * size[2]; }

std::string hexadecimal(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), kDigits[value & 15]);
  while ((value >>= 4) != 0);
  return "0x" + text;
}

}  // namespace

Block::Block(Grid& grid, Dim3 index)
    : grid_(grid),
      index_(index),
      thread_count_(product(grid.settings.block)),
      shared_(grid.kernel.shared_bytes + grid.settings.dynamic_shared_bytes),
      local_(std::size_t{grid.kernel.local_bytes} * thread_count_),
      races_(grid.settings.judges_races, static_cast<unsigned>(shared_.size()),
             (thread_count_ + kLanes - 1) / kLanes) {
  for (unsigned first = 0; first < thread_count_; first += kLanes) {
    warps_.push_back(
        std::make_unique<Warp>(*this, first / kLanes, std::min(kLanes, thread_count_ - first)));
    fill_specials(*warps_.back());
  }
}

Dim3 Block::position(unsigned thread) const {
  const Dim3& size = grid_.settings.block;
  return {thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]};
}

void Block::fill_specials(Warp& warp) const {
  using Kind = Kernel::Special::Kind;
  const LaunchSettings& settings = grid_.settings;
  for (const Kernel::Special& special : grid_.kernel.specials) {
    std::uint64_t* const row = warp.row(special.row);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const auto fill = [&](std::uint64_t value) { row[lane] = value; };
      const Mask bit = Mask{1} << lane;
      switch (special.kind) {
        case Kind::tid:
          fill(position(warp.thread(lane))[special.axis]);
          break;
        case Kind::ntid:
          fill(settings.block[special.axis]);
          break;
        case Kind::ctaid:
          fill(index_[special.axis]);
          break;
        case Kind::nctaid:
          fill(settings.grid[special.axis]);
          break;
        case Kind::laneid:
          fill(lane);
          break;
        case Kind::warpid:
          fill(warp.index());
          break;
        case Kind::nwarpid:
          fill((thread_count_ + kLanes - 1) / kLanes);
          break;
        case Kind::lanemask_eq:
          fill(bit);
          break;
        case Kind::lanemask_lt:
          fill(bit - 1);
          break;
        case Kind::lanemask_le:
          fill(bit | (bit - 1));
          break;
        case Kind::lanemask_gt:
          fill(~(bit | (bit - 1)));
          break;
        case Kind::lanemask_ge:
          fill(~(bit - 1));
          break;
        case Kind::dynamic_shared_bytes:
          fill(settings.dynamic_shared_bytes);
          break;
        case Kind::total_shared_bytes:
          fill(shared_.size());
          break;
        case Kind::nsmid:
          fill(1);
          break;
        case Kind::smid:
        case Kind::gridid:
        case Kind::clock:
        case Kind::clock_high:
          fill(0);
          break;
      }
    }
  }
}

// A clock goes on with each turn: by instructions of the launch.
void Block::set_clock(Warp& warp) const {
  using Kind = Kernel::Special::Kind;
  const std::uint64_t now = grid_.result.instructions;
  for (const Kernel::Special& special : grid_.kernel.specials) {
    if (special.kind != Kind::clock && special.kind != Kind::clock_high) continue;
    std::fill_n(warp.row(special.row), kLanes, special.kind == Kind::clock ? now : now >> 32);
  }
}

bool Block::run() {
  bool ran = false;
  for (const auto& warp : warps_) {
    if (!warp->can_run()) continue;
    ran = true;
    set_clock(*warp);
    warp->run(kTurn);
  }
  return ran;
}

void Block::stuck() {
  for (const auto& warp : warps_) {
    if (warp->has_ended()) continue;
    const auto lane = static_cast<unsigned>(__builtin_ctz(warp->alive()));
    const Instruction& instruction = kernel().instructions[warp->next_of(lane)];
    fail(Finding::Kind::stuck, *warp, instruction, lane,
         "it waits for threads that never come: those that have not ended wait elsewhere");
  }
  throw LaunchEnded();
}

// --- memory --------------------------------------------------------------------------------------

// Where an address in shared, parameter or a thread's own memory lies; nullptr: it is global.
unsigned char* Block::inside(Warp& warp, const Instruction& instruction, const Access& access,
                             bool writes) {
  std::uint64_t offset = access.address;
  Space space = instruction.space;
  if (space == Space::generic) {
    if ((offset & kSharedWindow) != 0) {
      space = Space::shared;
      offset &= ~kSharedWindow;
    } else if ((offset & kLocalWindow) != 0) {
      space = Space::local;
      offset &= ~kLocalWindow;
    }
  }
  if (access.address % access.bytes != 0) {
    fail(Finding::Kind::misaligned, warp, instruction, access.lane,
         hexadecimal(access.address) + " is no multiple of " + std::to_string(access.bytes));
  }
  if (space == Space::global || space == Space::generic) return nullptr;
  std::uint64_t end = shared_.size();
  unsigned char* base = shared_.data();
  const char* name = "shared";
  if (space == Space::local) {
    end = kernel().local_bytes;
    base = local_.data() + std::size_t{warp.thread(access.lane)} * kernel().local_bytes;
    name = "local";
  } else if (space == Space::param) {
    end = grid_.parameters.size();
    base = const_cast<unsigned char*>(grid_.parameters.data());
    name = "parameter";
  }
  if (offset > end || access.bytes > end - offset || (space == Space::param && writes)) {
    fail(Finding::Kind::outside, warp, instruction, access.lane,
         std::to_string(access.bytes) + " B at " + std::to_string(offset) + " of " +
             std::to_string(end) + " B of " + name + " memory");
  }
  return base + offset;
}

namespace {

std::string text_of(const Races::Other& other, bool writes) {
  std::string text = writes ? "it writes" : "it reads";
  text += " byte " + std::to_string(other.offset) + " of shared memory, which ";
  text += other.lane ? "thread " + std::to_string(other.warp * kLanes + *other.lane)
                     : "several threads of warp " + std::to_string(other.warp);
  return text + (other.wrote ? " wrote" : " read") + ", with no barrier between";
}

}  // namespace

// What lies in the block, or nullptr; of shared memory the access is judged.
unsigned char* Block::place(Warp& warp, const Instruction& instruction, const Access& access,
                            const void* written) {
  const bool writes = written != nullptr;
  unsigned char* const place = inside(warp, instruction, access, writes);
  if (place == nullptr || place < shared_.data() || place >= shared_.data() + shared_.size()) {
    return place;
  }
  const bool changes = writes && std::memcmp(place, written, access.bytes) != 0;
  const auto other =
      races_.access({warp.index(), access.lane, static_cast<std::uint64_t>(place - shared_.data()),
                     access.bytes, writes, changes, instruction.is_atomic});
  if (other) find(Finding::Kind::race, warp, instruction, access.lane, text_of(*other, writes));
  return place;
}

void Block::no_memory(const Warp& warp, const Instruction& instruction, const Access& access,
                      const char* verb) {
  fail(Finding::Kind::outside, warp, instruction, access.lane,
       std::string("it ") + verb + " " + std::to_string(access.bytes) + " B at " +
           hexadecimal(access.address) + ": " + grid_.memory.describe(access.address));
}

void Block::read(Warp& warp, const Instruction& instruction, const Access& access, void* target) {
  if (const unsigned char* const here = place(warp, instruction, access, nullptr)) {
    std::memcpy(target, here, access.bytes);
    return;
  }
  if (!grid_.memory.read(access.address, target, access.bytes)) {
    no_memory(warp, instruction, access, "reads");
  }
  grid_.result.global_read_bytes += access.bytes;
}

void Block::write(Warp& warp, const Instruction& instruction, const Access& access,
                  const void* source) {
  if (unsigned char* const here = place(warp, instruction, access, source)) {
    std::memcpy(here, source, access.bytes);
    return;
  }
  if (!grid_.memory.write(access.address, source, access.bytes)) {
    no_memory(warp, instruction, access, "writes");
  }
  grid_.result.global_written_bytes += access.bytes;
}

// --- barriers ------------------------------------------------------------------------------------

void Block::arrive(Warp& warp, const Instruction& instruction, Mask lanes, const Arrival& arrival) {
  const auto first = static_cast<unsigned>(__builtin_ctz(lanes));
  if (arrival.barrier >= barriers_.size() || arrival.threads % kLanes != 0) {
    fail(Finding::Kind::barrier, warp, instruction, first,
         "there are barriers 0 to 15, for a multiple of 32 threads");
  }
  Barrier& barrier = barriers_[arrival.barrier];
  if (barrier.arrived != 0 && barrier.threads != arrival.threads) {
    fail(Finding::Kind::barrier, warp, instruction, first,
         "others came to this barrier for another number of threads");
  }
  barrier.threads = arrival.threads;
  barrier.arrived += static_cast<unsigned>(__builtin_popcount(lanes));
  barrier.operation = arrival.operation;
  barrier.count += static_cast<unsigned>(__builtin_popcount(lanes));
  barrier.yes += static_cast<unsigned>(__builtin_popcount(lanes & arrival.predicates));
  if (arrival.waits) warp.wait(lanes);
  barrier.waiting.push_back({&warp, arrival.waits ? lanes : 0, arrival.reduced, &instruction});
  complete_if_all_came(barrier);
}

void Block::complete_if_all_came(Barrier& barrier) {
  if (barrier.arrived == 0) return;
  const unsigned wanted = barrier.threads != 0 ? barrier.threads : thread_count_ - ended_threads_;
  if (barrier.arrived < wanted) return;
  if (barrier.threads == 0 && ended_threads_ != 0) {
    const Barrier::Waiting& one = barrier.waiting.front();
    find(Finding::Kind::barrier, *one.warp, *one.instruction,
         one.lanes == 0 ? 0 : static_cast<unsigned>(__builtin_ctz(one.lanes)),
         std::to_string(ended_threads_) + " of " + std::to_string(thread_count_) +
             " threads ended before they came to it");
  }
  const std::uint64_t reduced = barrier.operation == 0   ? barrier.yes
                                : barrier.operation == 1 ? barrier.yes == barrier.count
                                                         : barrier.yes != 0;
  std::vector<unsigned> met;
  const std::vector<Barrier::Waiting> waiting = std::move(barrier.waiting);
  barrier = {};
  for (const Barrier::Waiting& came : waiting) {
    if (std::find(met.begin(), met.end(), came.warp->index()) == met.end()) {
      met.push_back(came.warp->index());
    }
    if (came.reduced != kNoRow) {
      each_lane(came.lanes, [&](unsigned lane) { came.warp->row(came.reduced)[lane] = reduced; });
    }
    came.warp->wake(came.lanes);
  }
  races_.met(met);
}

void Block::ended(Warp&, Mask lanes) {
  ended_threads_ += static_cast<unsigned>(__builtin_popcount(lanes));
  if (ended_threads_ == thread_count_) return;
  for (Barrier& barrier : barriers_) complete_if_all_came(barrier);
}

// --- findings ------------------------------------------------------------------------------------

void Block::find(Finding::Kind kind, const Warp& warp, const Instruction& instruction,
                 unsigned lane, const std::string& what) {
  auto& findings = grid_.result.findings;
  if (findings.size() >= grid_.settings.most_findings) return;
  // One of a kind for each line: others are the same mistake.
  const bool is_known = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.kind == kind && finding.line == instruction.line;
  });
  if (is_known) return;
  findings.push_back({kind, kernel().name, instruction.line, std::string(instruction.text), index_,
                      position(warp.thread(lane)), what});
}

void Block::fail(Finding::Kind kind, const Warp& warp, const Instruction& instruction,
                 unsigned lane, const std::string& what) {
  find(kind, warp, instruction, lane, what);
  throw LaunchEnded();
}

}  // namespace gapless::simgpu::ptx
