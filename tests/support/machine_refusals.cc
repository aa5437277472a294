// Machine: what must not be refused. Whether a request that failed would have fit is judged by what
// is free on the simulated device, which pools and streams it was of, and what captures forbid.
#include <algorithm>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tests/support/machine.h"

namespace gapless::testing {

PoolId Machine::pool_of(std::uint32_t stream) const {
  if (is_capturing(stream)) return capturing_->pool;
  const auto last = std::find_if(begun_.rbegin(), begun_.rend(), [&](const Begun& begun) {
    return begun.all_streams || begun.stream == stream;
  });
  return last == begun_.rend() ? PoolId{} : last->id;
}

std::vector<PoolId> Machine::pools() const {
  std::vector<PoolId> pools = held_;
  for (const Graph& graph : graphs_) pools.push_back(graph.pool);
  return pools;
}

bool Machine::is_alive(PoolId pool) const {
  const std::vector<PoolId> used = pools();
  const auto is_of_it = [&](const Live& block) { return block.pool == pool; };
  return std::find(used.begin(), used.end(), pool) != used.end() ||
         (capturing_ && capturing_->pool == pool) ||
         std::any_of(begun_.begin(), begun_.end(),
                     [&](const Begun& begun) { return begun.id == pool; }) ||
         std::any_of(live_.begin(), live_.end(), is_of_it) ||
         std::any_of(held_blocks_.begin(), held_blocks_.end(), is_of_it);
}

void Machine::forget_dead_pools() {
  for (std::uint32_t i = 1; i <= 3; ++i) {  // those that may be made again
    const PoolId pool{0, i};
    if (is_alive(pool)) continue;
    what_fits_.forget(pool);
    use_on_oom_.erase(pool);
  }
  std::erase_if(asleep_, [&](PoolId pool) { return !is_alive(pool); });
}

bool Machine::may_have(const WhatFits::Free& free, PoolId pool, bool faulted) const {
  // What a stream that captures now freed before the capture can be waited for. When memory was
  // freed is known by page: the last time, by whomever.
  const auto captures = [&](const auto& use) { return is_capturing(use.first); };
  const auto is_early = [&](const auto& use) { return use.second < capturing_->began; };
  const bool ordered = std::none_of(free.freed.begin(), free.freed.end(), captures) ||
                       std::all_of(free.freed.begin(), free.freed.end(), is_early);
  return ordered && std::all_of(free.users.begin(), free.users.end(), [&](PoolId user) {
           if (user == PoolId{} || user == pool) return true;
           // Where graphs were captured, after the device was waited for.
           const bool captured = user.second == 0;
           return !is_alive(user) && (!captured || (!capturing_ && !faulted));
         });
}

std::string Machine::why_it_fits(const Asked& asked) {
  const PoolId pool = pool_of(asked.stream);
  const Options& options = options_.allocator;
  const bool faulted = faults_fired() != asked.faults;
  const std::uint64_t page_bytes = this->page_bytes();
  const auto in_pages = [&](std::uint64_t bytes) { return bytes / page_bytes * page_bytes; };
  const auto reserved =
      static_cast<std::uint64_t>(allocator_->statistics().reserved_bytes.all.current);
  // What other pools lent is left for them.
  std::uint64_t owed = 0;
  for (const PoolDebt& debt : allocator_->owed_to_pools()) {
    if (debt.pool != pool) owed += debt.bytes;
  }
  const std::uint64_t room =
      std::min(options_.capacity_bytes - gpu_.used_bytes(0), limit_ - std::min(limit_, reserved));
  const std::uint64_t left = in_pages(room - std::min(room, owed));
  const bool windows = options_.has_vmm && options.windows;
  // Segments go back to the driver and come again as one; not while a graph is captured, and not
  // those of private pools.
  const bool segments = !options_.has_vmm && !capturing_ && !faulted;
  std::uint64_t free = 0;
  if (is_capturing(asked.stream)) {
    // What the stream itself freed in the pool, and nobody may have taken over.
    free = what_fits_.free_bytes([&](const WhatFits::Free& one) {
      const bool own = one.freed.size() == 1 && one.freed.begin()->first == asked.stream &&
                       !slept_.contains(pool);
      return windows && own && capturing_->streams.size() == 1 && one.users == std::set{pool};
    });
  } else if (!capturing_ || capturing_->faults == faults_fired()) {
    free = what_fits_.free_bytes([&](const WhatFits::Free& one) {
      return !one.on_host && ((windows && may_have(one, pool, faulted)) ||
                              (segments && may_have(one, {}, faulted)));
    });
  }
  const std::uint64_t bands =
      options.check.redzones && pool == PoolId{} ? RedZones::kBefore + RedZones::kLeastBehind : 0;
  const std::uint64_t need = align_up(align_up(asked.bytes, 512) + bands, page_bytes);
  const bool over = segments && reserved - std::min(reserved, free) + need > limit_;
  if (free + left >= need && !over) return fmt::format("{} B are free and {} B left", free, left);
  if (options.spill == 0 || capturing_ || faulted || !windows) return "";
  free = what_fits_.free_bytes(
      [&](const WhatFits::Free& one) { return one.on_host || may_have(one, {}, faulted); });
  const std::uint64_t host_left =
      in_pages(std::min(options.spill, options_.host_bytes) - gpu_.used_host_bytes(0));
  if (free + left + host_left < need) return "";
  return fmt::format("{} B are free, {} B left, {} B of the host's", free, left, host_left);
}

std::string Machine::judge_debts() const {
  for (const PoolDebt& debt : allocator_->owed_to_pools()) {
    if (is_alive(debt.pool) && debt.bytes <= what_fits_.ever_bytes(debt.pool)) continue;
    return fmt::format(
        "{} B are owed to pool {{{}, {}}}, which {}", debt.bytes, debt.pool.first, debt.pool.second,
        is_alive(debt.pool)
            ? fmt::format("never had more than {} B", what_fits_.ever_bytes(debt.pool))
            : "is no more");
  }
  return "";
}

std::string Machine::judge_refusal(const Asked& asked, Status status) {
  if (asleep_.contains(pool_of(asked.stream))) {
    return status == Status::invalid_argument ? "" : "a pool that sleeps gave memory";
  }
  const bool faulted = faults_fired() != asked.faults;
  if (status != Status::out_of_memory && !(faulted && status == Status::driver_error)) {
    return fmt::format("refused with: {} ({})", to_string(status), allocator_->last_failure());
  }
  if (std::string fits = why_it_fits(asked); !fits.empty()) {
    return fmt::format("stream {}{}{} was refused, {}, but {}: {}", asked.stream,
                       is_capturing(asked.stream) ? ", capturing,"
                       : capturing_               ? " while another captures"
                                                  : "",
                       faulted ? " after a failed call" : "", to_string(status), fits,
                       allocator_->last_failure());
  }
  // What the driver refused to take back before may have gone, and blocks with a fence that were
  // freed while a graph was captured.
  const bool goes = faulted_ || options_.allocator.fence.one_of != 0;
  const bool less = gpu_.used_bytes(0) < asked.used_bytes && goes;
  if (faulted || (gpu_.peak_used_bytes(0) == asked.peak_used_bytes &&
                  (gpu_.used_bytes(0) == asked.used_bytes || less))) {
    return "";
  }
  return fmt::format("refused; {} B in use, {} B at most, before it were {} B, {} B",
                     gpu_.used_bytes(0), gpu_.peak_used_bytes(0), asked.used_bytes,
                     asked.peak_used_bytes);
}

}  // namespace gapless::testing
