// Machine: its private pools and graphs, what is pinned in them, their checkpoints and their sleep.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/support/machine.h"

namespace gapless::testing {

// --- pools and graphs ----------------------------------------------------------------------------

bool Machine::is_capturing(std::uint32_t stream) const {
  return capturing_ && std::find(capturing_->streams.begin(), capturing_->streams.end(), stream) !=
                           capturing_->streams.end();
}

// A graph may use only what was made in its capture, and while it is captured nobody else may.
bool Machine::may_use(const Live& block, std::uint32_t stream) const {
  if (block.asleep) return false;
  if (is_capturing(stream)) return block.capture == capturing_->number;
  return !capturing_ || (block.capture != capturing_->number && !is_capturing(block.last_user));
}

std::string Machine::apply(const BeginPool& op) {
  if (capturing_ || begun_.size() >= 3) return "";
  const PoolId id{0, 1 + op.pool};
  forget_dead_pools();
  const auto stream = static_cast<std::uint32_t>(op.stream % streams_.size());
  const bool all = op.all_streams;
  const Status status = allocator_->begin_pool(
      id, [all, only = streams_[stream]](StreamHandle asked) { return all || asked == only; });
  begun_.push_back({id, all, stream});
  held_.push_back(id);
  return status == Status::ok ? "" : "begin_pool failed";
}

std::string Machine::apply(const EndPool& op) {
  if (!begun_.empty() && !capturing_) {
    const PoolId id = begun_.back().id;
    begun_.pop_back();
    if (allocator_->end_pool(id) != Status::ok) return "end_pool failed";
    if (allocator_->pool_users(id) < 1) return "a pool lost a user";
  }
  if (!op.release || held_.size() <= begun_.size()) return "";
  // Of one that is not begun; the last of its users may go while it has blocks.
  const auto idle = std::find_if(held_.begin(), held_.end(), [&](PoolId id) {
    return std::none_of(begun_.begin(), begun_.end(),
                        [&](const Begun& begun) { return begun.id == id; });
  });
  if (idle == held_.end()) return "";
  const PoolId id = *idle;
  held_.erase(idle);
  return allocator_->release_pool(id) == Status::ok ? "" : "release_pool failed";
}

std::string Machine::apply(const Capture& op) {
  if (capturing_ || graphs_.size() >= 4) return "";
  Graph graph;
  graph.number = ++captures_;
  // Graphs may share a pool.
  graph.pool = op.pool == 0 || graphs_.empty() ? PoolId{graph.number, 0}
                                               : graphs_[op.pool % graphs_.size()].pool;
  if (asleep_.contains(graph.pool)) return "";
  const std::uint32_t stream = op.stream % static_cast<std::uint32_t>(streams_.size());
  graph.streams = {stream};
  graph.began = operations_;
  graph.faults = faults_fired();
  capturing_ = graph;
  if (allocator_->begin_pool(graph.pool, [this](StreamHandle asked) {
        const auto found = std::find(streams_.begin(), streams_.end(), asked);
        return is_capturing(static_cast<std::uint32_t>(found - streams_.begin()));
      }) != Status::ok) {
    return "begin_pool failed";
  }
  gpu_.begin_capture(0, streams_[stream]);
  return "";
}

std::string Machine::end_capture() {
  if (!capturing_) return "";
  Graph graph = std::move(*capturing_);
  const std::uint32_t origin = graph.streams.front();
  for (const std::uint32_t stream : graph.streams) {
    if (stream != origin) gpu_.order(0, streams_[stream], streams_[origin]);
  }
  graph.graph = gpu_.end_capture(streams_[origin]);
  // A graph does not tell of what its streams were doing with the pool's memory before.
  for (const std::uint32_t stream : graph.streams) {
    if (stream != origin) gpu_.order(0, streams_[stream], streams_[origin]);
  }
  capturing_.reset();
  for (Live& block : live_) {
    if (block.capture == graph.number) block.last_user = origin;
  }
  if (allocator_->end_pool(graph.pool) != Status::ok) return "end_pool failed";
  graphs_.push_back(std::move(graph));
  return "";
}

std::string Machine::apply(const EndCapture& /*op*/) { return end_capture(); }

std::string Machine::apply(const Replay& op) {
  const std::uint32_t stream = op.stream % static_cast<std::uint32_t>(streams_.size());
  if (graphs_.empty() || capturing_) return "";
  const Graph& graph = graphs_[op.graph % graphs_.size()];
  if (asleep_.contains(graph.pool)) return "";
  // The program's own order: graphs of one pool run one after the other, and after whoever used
  // what they write.
  if (const auto last = last_replay_.find(graph.pool); last != last_replay_.end()) {
    gpu_.order(0, streams_[last->second], streams_[stream]);
  }
  for (const std::uint32_t user : freed_users_) {
    gpu_.order(0, streams_[user], streams_[stream]);
  }
  for (Live& block : live_) {
    if (block.capture == 0) continue;
    gpu_.order(0, streams_[block.last_user], streams_[stream]);
    block.last_user = stream;
  }
  last_replay_[graph.pool] = stream;
  gpu_.replay(graph.graph, streams_[stream]);
  return "";
}

std::string Machine::apply(const DropGraph& op) {
  if (graphs_.empty() || capturing_) return "";
  const std::size_t index = op.graph % graphs_.size();
  const PoolId pool = graphs_[index].pool;
  graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(index));
  return allocator_->release_pool(pool) == Status::ok ? "" : "release_pool failed";
}

// --- pins and checkpoints ------------------------------------------------------------------------

std::string Machine::apply(const Pin& op) {
  if (live_.empty()) return "";
  Live& block = live_[op.block % live_.size()];
  ++block.pins;
  return allocator_->pin(block.address) == Status::ok ? "" : "pin failed";
}

std::vector<Machine::Live*> Machine::pinned_blocks() {
  std::vector<Live*> pinned;
  for (Live& block : live_) {
    if (block.pins != 0) pinned.push_back(&block);
  }
  for (Live& block : held_blocks_) pinned.push_back(&block);
  return pinned;
}

void Machine::drop_pin(Live& block) {
  if (--block.pins != 0) return;
  const auto held = std::find_if(held_blocks_.begin(), held_blocks_.end(),
                                 [&](const Live& one) { return &one == &block; });
  if (held == held_blocks_.end()) return;
  vacate(block);
  note_told_end(block);
  held_blocks_.erase(held);
}

std::string Machine::apply(const Unpin& op) {
  const std::vector<Live*> pinned = pinned_blocks();
  if (pinned.empty()) return "";
  Live& block = *pinned[op.block % pinned.size()];
  const Status status = allocator_->unpin(block.address);
  if (block.pins == block.shares) {
    return status == Status::invalid_argument ? "" : "unpin took a share's pin";
  }
  if (status != Status::ok) return "unpin failed";
  drop_pin(block);
  return "";
}

std::string Machine::apply(const Checkpoint& op) {
  const std::vector<PoolId> all = pools();
  if (all.empty() || capturing_) return "";
  const PoolId pool = all[op.pool % all.size()];
  if (asleep_.contains(pool)) return "";
  constexpr std::size_t kMost = 4;
  if (checkpoints_.size() == kMost) checkpoints_.erase(checkpoints_.begin());
  Checkpointed& made = checkpoints_.emplace_back();
  made.state = allocator_->checkpoint_pool(pool);
  const auto blocks = allocator_->pool_blocks(pool);
  for (const Live& block : live_) {
    if (std::binary_search(blocks.begin(), blocks.end(), block.address)) {
      made.blocks[block.address] = block;
    }
  }
  return blocks.size() == made.blocks.size() && blocks.size() == made.state.blocks.size()
             ? ""
             : "a pool has blocks nobody knows";
}

std::string Machine::apply(const Restore& op) {
  if (checkpoints_.empty() || capturing_) return "";
  const auto at =
      checkpoints_.begin() + static_cast<std::ptrdiff_t>(op.checkpoint % checkpoints_.size());
  if (asleep_.contains(at->state.id)) return "";
  gpu_.device_synchronize(0);  // who restores a pool knows that nothing runs in it
  PoolDelta delta;
  if (allocator_->restore_pool(at->state, delta) != Status::ok) {
    checkpoints_.erase(at);  // its place is gone
    ++not_restored_;
    return delta.freed.empty() && delta.allocated.empty() ? "" : "a refused restore changed blocks";
  }
  ++restored_;
  for (const DeviceAddress address : delta.freed) {
    const auto block = std::find_if(live_.begin(), live_.end(),
                                    [&](const Live& one) { return one.address == address; });
    if (block == live_.end()) return "a restore freed what was not live";
    forget(static_cast<std::size_t>(block - live_.begin()));
  }
  for (const DeviceAddress address : delta.allocated) {
    Live block = at->blocks.at(address);
    block.pins = 0;
    block.shares = 0;
    if (const std::string wrong = occupy(block); !wrong.empty()) return wrong;
    count(block, true);
    live_.push_back(std::move(block));
  }
  return "";
}

std::string Machine::apply(const SetPool& op) {
  const std::vector<PoolId> all = pools();
  if (all.empty()) return "";
  const PoolId pool = all[op.pool % all.size()];
  if (op.use_on_oom) {
    use_on_oom_.insert(pool);
  } else {
    use_on_oom_.erase(pool);
  }
  return allocator_->set_pool_use_on_oom(pool, op.use_on_oom) == Status::ok ? ""
                                                                            : "set_pool failed";
}

// --- shares --------------------------------------------------------------------------------------

std::string Machine::apply(const Share& op) {
  constexpr std::size_t kMost = 6;
  if (live_.empty() || capturing_ || opened_.size() == kMost) return "";
  Live& block = live_[op.block % live_.size()];
  if (block.asleep || block.capture != 0) return "";
  SharedBlock shared;
  const Status status = allocator_->share(block.address, shared);
  if (!options_.has_vmm) return status == Status::invalid_argument ? "" : "shared without VMM";
  if (faulted_ && status == Status::driver_error) return "";
  if (status != Status::ok) return "share failed";
  ++block.pins;
  ++block.shares;
  Opened opened{block.address, std::make_unique<ImportedBlock>(gpu_, 0)};
  if (const DriverStatus opens = opened.block->open(shared); opens != DriverStatus::ok) {
    return fmt::format("a shared block cannot be opened: {}", to_string(opens));
  }
  const DeviceAddress there = opened.block->address();
  opened_.push_back(std::move(opened));
  const auto here = gpu_.resolve(0, block.address, block.requested);
  const auto seen = gpu_.resolve(0, there, block.requested);
  if (!here || !seen || *here != *seen) return "another process sees other memory";
  // Its work goes on while it closes the block, and is done when it has.
  const std::uint32_t stream = block.last_user;
  if (std::exchange(block.elsewhere_last, false)) {
    gpu_.order(elsewhere_, DeviceStream{0, streams_[stream]});
  }
  const simgpu::Access access{there, block.requested, true};
  return gpu_.launch(0, streams_[stream], 100'000, {&access, 1}) == DriverStatus::ok
             ? ""
             : "another process cannot touch the block";
}

std::string Machine::apply(const Unshare& op) {
  if (opened_.empty() || capturing_) return "";
  const auto at = opened_.begin() + static_cast<std::ptrdiff_t>(op.block % opened_.size());
  const DeviceAddress address = at->address;
  if (at->block->close() != DriverStatus::ok) return "an opened block cannot be closed";
  opened_.erase(at);
  for (Live* const block : pinned_blocks()) {
    if (block->address != address) continue;
    if (allocator_->unshare(address) != Status::ok) return "unshare failed";
    --block->shares;
    drop_pin(*block);
    return "";
  }
  return "a shared block is gone";
}

// --- sleep ---------------------------------------------------------------------------------------

std::string Machine::apply(const Sleep& op) {
  const std::vector<PoolId> all = pools();
  if (all.empty() || capturing_) return "";
  const PoolId pool = all[op.pool % all.size()];
  const auto is_of_it = [&](const Live& block) { return block.pool == pool; };
  const bool pinned =
      std::any_of(live_.begin(), live_.end(),
                  [&](const Live& block) { return is_of_it(block) && block.pins != 0; }) ||
      std::any_of(held_blocks_.begin(), held_blocks_.end(), is_of_it);
  const bool may = options_.has_vmm && !pinned && !asleep_.contains(pool);
  const Status status = allocator_->sleep_pool(pool, op.save);
  if (!may) return status == Status::invalid_argument ? "" : "a pool slept that must not";
  if (status != Status::ok && (!faulted_ || status != Status::driver_error)) return "no sleep";
  asleep_.insert(pool);
  slept_.insert(pool);
  for (Live& block : live_) {
    if (!is_of_it(block)) continue;
    vacate(block);
    block.asleep = true;
    // What it shares with others stays where it is.
    std::erase_if(block.ranges, [&](const simgpu::PhysicalRange& range) {
      return gpu_.bytes_of(range.handle) == 0;
    });
    if (const std::string wrong = note_ranges(block); !wrong.empty()) return wrong;
  }
  if (status == Status::ok) return "";
  faulty_.heal();  // it may be asleep in part
  return apply(
      Wake{static_cast<std::uint32_t>(std::distance(asleep_.begin(), asleep_.find(pool)))});
}

std::string Machine::apply(const Wake& op) {
  forget_dead_pools();
  if (asleep_.empty() || capturing_) return "";
  const PoolId pool = *std::next(asleep_.begin(), op.pool % asleep_.size());
  const Status status = allocator_->wake_pool(pool);
  if (status == Status::out_of_memory || (faulted_ && status == Status::driver_error)) return "";
  if (status != Status::ok) return "wake_pool failed";
  asleep_.erase(pool);
  for (Live& block : live_) {
    if (!block.asleep || block.pool != pool) continue;
    block.asleep = false;
    vacate(block);
    if (const std::string wrong = occupy(block); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace gapless::testing
