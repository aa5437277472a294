#include "tests/support/machine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "allocator/base/bytes.h"

namespace gapless::testing {
namespace {

simgpu::SimOptions gpu_options(const MachineOptions& options) {
  simgpu::SimDevice device;
  device.total_bytes = options.capacity_bytes;
  device.granularity_bytes = options.granularity_bytes;
  device.has_vmm = options.has_vmm;
  device.host_bytes = options.host_bytes;
  return {.devices = std::vector(options.peer ? 2 : 1, device),
          .costs = simgpu::load_cost_profile("desktop"),
          .address_bytes = options.address_bytes,
          .keep_contents = options.keep_contents};
}

}  // namespace

Machine::Machine(const MachineOptions& options)
    : options_(options),
      gpu_(gpu_options(options)),
      faulty_(gpu_),
      counts_(std::variant_size_v<Op>, 0) {
  streams_.push_back(0);
  for (std::uint32_t i = 1; i < options.streams; ++i) {
    StreamHandle stream = 0;
    gpu_.stream_create(0, stream);
    streams_.push_back(stream);
  }
  DeviceProperties properties;
  gpu_.device_properties(0, properties);
  if (options.allocator.check.nvtx) tool_.emplace();
  allocator_.emplace(faulty_, 0, properties, options.allocator);
  if (options.peer) {
    gpu_.stream_create(1, elsewhere_.handle);
    if (allocator_->add_peer(1) != Status::ok) throw std::logic_error("add_peer failed");
  }
  if (options.record) recorded_.emplace(*allocator_);
}

std::string Machine::launch(Live& block, std::uint32_t stream, std::uint32_t duration_us) {
  if (block.last_user != stream) {  // the program's own order
    gpu_.order(0, streams_[block.last_user], streams_[stream]);
    block.last_user = stream;
  }
  if (std::exchange(block.elsewhere_last, false)) {
    gpu_.order(elsewhere_, DeviceStream{0, streams_[stream]});
  }
  // Whoever uses what a graph made comes after the graphs that may write there.
  const auto replay = block.capture == 0 ? last_replay_.end() : last_replay_.find(block.pool);
  if (replay != last_replay_.end() && !is_capturing(stream) && !is_capturing(replay->second)) {
    gpu_.order(0, streams_[replay->second], streams_[stream]);
  }
  const simgpu::Access access{block.address, block.requested, true};
  const DriverStatus status =
      gpu_.launch(0, streams_[stream], std::uint64_t{duration_us} * 1000, {&access, 1});
  return status == DriverStatus::ok ? "" : "a kernel cannot touch its block";
}

std::string Machine::occupy(Live& block) {
  auto ranges = gpu_.resolve(0, block.begin, block.bytes);
  if (!ranges) return fmt::format("block {:#x} is not mapped as a whole", block.address);
  block.ranges = std::move(*ranges);
  return note_ranges(block);
}

std::string Machine::note_ranges(const Live& block) {
  for (const simgpu::PhysicalRange& range : block.ranges) {
    const std::uint64_t end = range.offset + range.bytes;
    auto after = in_use_.lower_bound({range.handle, range.offset});
    const bool above =
        after != in_use_.end() && after->first.first == range.handle && after->first.second < end;
    bool below = false;
    if (after != in_use_.begin()) {
      const auto before = std::prev(after);
      below = before->first.first == range.handle && before->second > range.offset;
    }
    if (above || below) {
      return fmt::format("two live blocks share handle {} near offset {}", range.handle,
                         range.offset);
    }
    in_use_[{range.handle, range.offset}] = end;
  }
  // What has a fence is never free: it goes back to the device, when that can be waited for.
  if (!block.fenced) what_fits_.begin(block.ranges, block.pool);
  return "";
}

void Machine::vacate(const Live& block) {
  for (const simgpu::PhysicalRange& range : block.ranges) {
    in_use_.erase({range.handle, range.offset});
  }
  if (block.fenced) return;
  std::vector<std::uint32_t> users(block.uses.begin(), block.uses.end());
  users.push_back(block.stream);
  what_fits_.end(block.ranges, users, operations_);
}

std::string Machine::apply(const Alloc& op) {
  Live block;
  block.requested = op.bytes;
  block.stream = op.stream % static_cast<std::uint32_t>(streams_.size());
  if (begun_.empty() && !capturing_ && op.bytes != 0) {
    const std::uint64_t now = gpu_.now_ns();
    std::erase_if(deferred_, [now](const Deferred& one) { return one.done_ns <= now; });
  }
  block.pool = pool_of(block.stream);
  const Asked asked{op.bytes, block.stream, gpu_.used_bytes(0), gpu_.peak_used_bytes(0),
                    faults_fired()};
  const Status status = allocator_->alloc(op.bytes, streams_[block.stream], block.address);
  last_asked_ns_ = gpu_.now_ns();
  if (status != Status::ok) {
    ++refused_;
    refused_in_captures_ += capturing_ ? 1 : 0;
    return judge_refusal(asked, status);
  }
  if (op.bytes == 0) return block.address == 0 ? "" : "0 bytes have an address";
  if (block.address % 512 != 0) return fmt::format("{:#x} is not aligned", block.address);
  const std::uint64_t rounded = align_up(op.bytes, 512);
  const auto facts = allocator_->find_block(block.address);
  if (!facts) return "nobody knows the block";
  block.fenced = facts->fenced;
  const bool banded = options_.allocator.check.redzones && !block.fenced && block.pool == PoolId{};
  if (facts->bytes != rounded + (banded ? RedZones::kLeastBehind : 0)) return "size_of is wrong";
  if (block.fenced) {
    block.bytes = align_up(rounded, page_bytes());
    block.begin = block.address + rounded - block.bytes;
  } else {
    block.begin = block.address - (banded ? RedZones::kBefore : 0);
    block.bytes = block.address + facts->bytes - block.begin;
  }
  if (const std::string wrong = occupy(block); !wrong.empty()) return wrong;
  count(block, true);
  block.last_user = block.stream;
  if (is_capturing(block.stream)) block.capture = capturing_->number;
  live_.push_back(std::move(block));
  return launch(live_.back(), live_.back().stream, 20);
}

std::string Machine::free(std::size_t index) {
  const DeviceAddress address = live_[index].address;
  forget(index);
  if (allocator_->free(address) != Status::ok) return "free refused a live block";
  if (allocator_->free(address) != Status::invalid_argument) return "freed twice";
  return "";
}

void Machine::forget(std::size_t index) {
  std::swap(live_[index], live_.back());
  const Live block = std::move(live_.back());
  live_.pop_back();
  if (block.capture != 0 && !is_capturing(block.last_user)) freed_users_.insert(block.last_user);
  count(block, false);
  note_told_end(block);
  if (block.pins != 0) {
    held_blocks_.push_back(block);
  } else {
    vacate(block);
    defer(block);
  }
}

void Machine::count(const Live& block, bool begins) {
  allocated_ += begins ? block.bytes : 0 - block.bytes;
  requested_ += begins ? block.requested : 0 - block.requested;
  begins ? expected_.on_alloc(block.bytes) : expected_.on_free(block.bytes);
}

void Machine::defer(const Live& block) {
  const bool used = !block.uses.empty() || block.used_elsewhere;
  // Who frees a block with a fence waits for the device.
  if (!used || block.fenced || !begun_.empty() || capturing_) return;
  Deferred deferred{block, 0};
  for (const std::uint32_t stream : block.uses) {
    deferred.done_ns = std::max(deferred.done_ns, gpu_.work_end_ns(0, streams_[stream]));
  }
  if (block.used_elsewhere) {
    const std::uint64_t end = gpu_.work_end_ns(elsewhere_.device, elsewhere_.handle);
    deferred.done_ns = std::max(deferred.done_ns, end);
  }
  deferred_.push_back(deferred);
}

std::string Machine::check_active(const Stat& stat, std::uint64_t live,
                                  std::uint64_t Live::*bytes) const {
  // What became done while the allocator was asking may have been seen or not.
  std::uint64_t least = live;
  for (const Live& block : held_blocks_) least += block.*bytes;
  std::uint64_t most = least;
  for (const Deferred& one : deferred_) {
    most += one.block.*bytes;
    if (one.done_ns > last_asked_ns_ && !faulted_) least += one.block.*bytes;
  }
  const auto active = static_cast<std::uint64_t>(stat.current);
  if (active >= least && active <= most) return "";
  return fmt::format("{}, not within {} and {}", active, least, most);
}

std::string Machine::check_recording() {
  const Options& chosen = options_.allocator;
  const bool fences = chosen.check.fence || chosen.fence.one_of != 0;
  const bool mapped = chosen.spill == 0 && !fences && slept_.empty() && !faulted_;
  if (std::string wrong = recorded_->check(mapped); !wrong.empty()) return wrong;
  if (live_.empty()) return "";
  const Live& last = live_.back();
  return recorded_->requested_at(last.address) == last.requested
             ? ""
             : "the last block was not recorded";
}

std::string Machine::check_statistics() {
  const DeviceStatistics found = allocator_->statistics();
  const auto differs = [](const Stat& stat, std::uint64_t expected) {
    return stat.current != static_cast<std::int64_t>(expected);
  };
  if (differs(found.allocation.all, live_.size())) return "the number of allocations is wrong";
  if (differs(found.allocated_bytes.all, allocated_)) return "allocated bytes are wrong";
  if (std::string wrong = expected_.check(found); !wrong.empty()) return wrong;
  if (std::string wrong = check_active(found.active_bytes.all, allocated_, &Live::bytes);
      !wrong.empty()) {
    return "active bytes: " + wrong;
  }
  if (std::string wrong = check_active(found.requested_bytes.all, requested_, &Live::requested);
      !wrong.empty()) {
    return "requested bytes: " + wrong;
  }
  for (const PoolStat* stat :
       {&found.allocation, &found.allocated_bytes, &found.requested_bytes, &found.reserved_bytes,
        &found.inactive_split_bytes, &found.active_bytes}) {
    if (stat->small_pool.current + stat->large_pool.current != stat->all.current) {
      return "the pools do not add up";
    }
  }
  const auto reserved = static_cast<std::uint64_t>(found.reserved_bytes.all.current);
  if (!faulted_ && reserved != gpu_.used_bytes(0)) {
    return fmt::format("reserved is {} but the device gave {}", reserved, gpu_.used_bytes(0));
  }
  if (reserved > std::max(limit_, limit_floor_)) return "reserved is over the limit";
  if (asleep_.empty() && reserved + allocator_->spill().bytes < allocated_) {
    return "less is reserved than allocated";
  }
  return "";
}

std::string Machine::apply(const Free& op) {
  return live_.empty() ? "" : free(op.block % live_.size());
}

std::string Machine::apply(const Copy& op) {
  if (live_.empty()) return "";
  const std::size_t original = op.block % live_.size();
  const std::size_t before = live_.size();
  const std::string wrong =
      apply(Alloc{live_[original].requested + op.more_bytes, live_[original].stream});
  return wrong.empty() && live_.size() > before ? free(original) : wrong;
}

std::string Machine::apply(const Touch& op) {
  if (live_.empty()) return "";
  Live& block = live_[op.block % live_.size()];
  return may_use(block, block.stream) ? launch(block, block.stream, op.duration_us) : "";
}

std::string Machine::apply(const UseOn& op) {
  if (live_.empty()) return "";
  Live& block = live_[op.block % live_.size()];
  const auto user = op.stream % static_cast<std::uint32_t>(streams_.size());
  if (capturing_ && block.capture == capturing_->number && !is_capturing(user)) {
    // Another stream joins the capture, unless the program has other use for it.
    if (op.duration_us % 4 != 0) return "";
    capturing_->streams.push_back(user);
    gpu_.order(0, streams_[block.last_user], streams_[user]);
  }
  if (!may_use(block, user)) return "";
  const std::string wrong = launch(block, user, op.duration_us);
  if (!wrong.empty()) return wrong;
  if (user != block.stream) block.uses.insert(user);
  if (allocator_->record_stream(block.address, streams_[user]) != Status::ok) {
    return "record_stream failed";
  }
  return allocator_->record_stream(block.address + 1, streams_[user]) == Status::invalid_argument
             ? ""
             : "record_stream took an address that is no block's";
}

std::string Machine::apply(const UseElsewhere& op) {
  if (live_.empty() || !options_.peer || capturing_) return "";
  Live& block = live_[op.block % live_.size()];
  if (block.capture != 0 || block.asleep) return "";
  gpu_.order(DeviceStream{0, streams_[block.last_user]}, elsewhere_);
  const simgpu::Access access{block.address, block.requested, true};
  const DriverStatus status = gpu_.launch(elsewhere_.device, elsewhere_.handle,
                                          std::uint64_t{op.duration_us} * 1000, {&access, 1});
  if (status != DriverStatus::ok) return "another device's kernel cannot touch the block";
  block.used_elsewhere = true;
  block.elsewhere_last = true;
  return allocator_->record_stream(block.address, elsewhere_) == Status::ok
             ? ""
             : "record_stream failed";
}

// --- the rest ------------------------------------------------------------------------------------

std::string Machine::apply(const Advance& op) {
  gpu_.advance(std::uint64_t{op.us} * 1000);
  return "";
}

std::string Machine::apply(const SyncStream& op) {
  if (!capturing_) gpu_.stream_synchronize(0, streams_[op.stream % streams_.size()]);
  return "";
}

std::string Machine::apply(const Trim& op) {
  if (capturing_) return "";
  const Status status = allocator_->trim(op.keep_bytes);
  deferred_.clear();
  return status == Status::ok || faulted_ ? "" : "trim failed";
}

std::string Machine::apply(const SetLimit& op) {
  limit_ = op.bytes;
  limit_floor_ = static_cast<std::uint64_t>(allocator_->statistics().reserved_bytes.all.current);
  allocator_->set_limit_bytes(op.bytes);
  return "";
}

std::string Machine::apply(const FailNext& op) {
  faulted_ = true;
  faults_before_ += faulty_.fired();
  faulty_.fail({.kind = {},
                .nth = op.nth,
                .status = op.out_of_memory ? DriverStatus::out_of_memory : DriverStatus::unknown,
                .persistent = false});
  return "";
}

std::string Machine::apply(const Report& op) {
  const HeapReport report = allocator_->report();
  std::uint64_t live = 0;
  for (const BlockReport& block : report.home) {
    if (block.kind == BlockReport::Kind::live) live += block.bytes;
  }
  for (const WindowBlockReport& block : report.window_blocks) live += block.held ? 0 : block.bytes;
  if (op.reset) {
    allocator_->reset_peak_statistics();
    allocator_->reset_accumulated_statistics();
    const std::string wrong = expected_.on_reset(allocator_->statistics());
    if (!wrong.empty()) return wrong;
  }
  return live == allocated_ ? "" : "the report's live blocks do not add up";
}

std::string Machine::run(const Op& op) {
  ++operations_;
  ++counts_[op.index()];
  std::string wrong;
  try {
    wrong = std::visit([this](const auto& it) { return apply(it); }, op);
  } catch (const std::logic_error& error) {  // a rule the allocator finds broken by itself
    return fmt::format("{}: threw {}", to_string(op), error.what());
  }
  if (wrong.empty()) wrong = check_statistics();
  if (wrong.empty() && recorded_) wrong = check_recording();
  if (wrong.empty()) wrong = judge_debts();
  if (wrong.empty() && tool_) wrong = judge_told();
  if (wrong.empty()) {
    const auto violations = gpu_.violations();
    if (violations.size() > judged_violations_) wrong = violations[judged_violations_];
  }
  if (wrong.empty() && options_.validate_every != 0 && operations_ % options_.validate_every == 0) {
    try {
      allocator_->validate();
    } catch (const std::logic_error& error) {
      wrong = error.what();
    }
  }
  return wrong.empty() ? "" : fmt::format("{}: {}", to_string(op), wrong);
}

std::string Machine::run(const std::vector<Op>& ops) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (const std::string wrong = run(ops[i]); !wrong.empty()) {
      return fmt::format(
          "operation {}: {}\nafter: {}", i, wrong,
          to_string(std::vector<Op>(ops.begin(), ops.begin() + static_cast<long>(i) + 1)));
    }
  }
  return "";
}

std::string Machine::finish() {
  faulty_.heal();
  if (const std::string wrong = end_capture(); !wrong.empty()) return wrong;
  while (!begun_.empty()) {
    if (const std::string wrong = apply(EndPool{false}); !wrong.empty()) return wrong;
  }
  while (!held_.empty()) {
    if (const std::string wrong = apply(EndPool{true}); !wrong.empty()) return wrong;
  }
  while (!graphs_.empty()) {
    if (const std::string wrong = apply(DropGraph{0}); !wrong.empty()) return wrong;
  }
  while (!opened_.empty()) {
    if (const std::string wrong = apply(Unshare{0}); !wrong.empty()) return wrong;
  }
  for (Live& block : live_) {
    for (; block.pins != 0; --block.pins) allocator_->unpin(block.address);
  }
  while (!held_blocks_.empty()) {
    if (const std::string wrong = apply(Unpin{0}); !wrong.empty()) return wrong;
  }
  while (!live_.empty()) {
    if (const std::string wrong = free(live_.size() - 1); !wrong.empty()) return wrong;
  }
  try {
    allocator_->validate();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  allocator_->check_now();
  if (allocator_->mistakes_found() != 0) return to_text(allocator_->mistakes().front());
  recorded_.reset();
  allocator_.reset();
  if (tool_ && !tool_->heaps().empty()) return "the tool knows of memory that is gone";
  if (const std::string leaks = gpu_.leaks(); !leaks.empty()) return "left behind: " + leaks;
  if (gpu_.used_bytes(0) != 0) return "device memory is left behind";
  const auto violations = gpu_.violations();
  return violations.size() > judged_violations_ ? violations[judged_violations_] : "";
}

}  // namespace gapless::testing
