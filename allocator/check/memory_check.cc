#include "allocator/check/memory_check.h"

#include <algorithm>
#include <utility>

namespace gapless {
namespace {

std::string& thread_call_site() {
  thread_local std::string call_site;
  return call_site;
}

FencedRequests all_where(bool wanted, FencedRequests fenced) {
  if (wanted && fenced.one_of == 0) fenced.one_of = 1;
  return fenced;
}

// A fence's band before the block is as long as it is seen to go too far by, not as its pages.
std::uint64_t band_of(const Fence::Block& block) {
  return std::min(block.slack_bytes(), RedZones::kMostBehind);
}

}  // namespace

MemoryCheck::MemoryCheck(Driver& driver, DeviceIndex device, std::uint64_t page_bytes,
                         ShareType share, RequestedChecks checks, FencedRequests fenced, bool vmm)
    : driver_(driver),
      device_(device),
      checks_(checks),
      fences_(vmm && (checks.fence || fenced.one_of != 0)),
      contents_(driver, device),
      poison_(contents_),
      zones_(contents_),
      fence_(driver, device, page_bytes, share, all_where(checks.fence, std::move(fenced))) {}

void MemoryCheck::note_call_site(const std::function<std::string()>& source) {
  thread_call_site() = source ? source() : std::string();
}

const std::string& MemoryCheck::call_site() { return thread_call_site(); }

Fence::Block* MemoryCheck::fence_off(std::uint64_t bytes, StreamHandle stream) {
  if (!fences_ || !fence_.picks(bytes, thread_call_site())) return nullptr;
  Fence::Block* const block = fence_.make(bytes, stream, thread_call_site());
  if (block == nullptr) return nullptr;
  DriverStatus status = DriverStatus::ok;
  if (checks_.poison) {
    status = contents_.fill(block->facts.address, block->facts.end(), Poison::kNew, stream);
  }
  if (status == DriverStatus::ok) status = zones_.fill(block->facts, band_of(*block));
  block->banded = worked(status);
  return block;
}

void MemoryCheck::begin(DeviceAddress address, std::uint64_t bytes, std::uint64_t requested_bytes,
                        StreamHandle stream, Ranges ranges, bool touch) {
  Watched& watched = live_[address];
  watched = {{address,
              bytes,
              requested_bytes,
              stream,
              thread_call_site(),
              std::chrono::steady_clock::now(),
              {}},
             false};
  if (!touch) return poison_.pass(ranges);
  DriverStatus status = DriverStatus::ok;
  if (checks_.poison) {
    status = poison_.take(ranges, stream, [&](const Difference& difference) {
      std::uint64_t offset = 0;
      if (const CheckedBlock* const freed = poison_.freed_at(difference.first, offset)) {
        add(Mistake::Kind::after_free, Mistake::Found::when_given_out, *freed, difference,
            difference.first - offset + before_bytes());
      }
    });
  }
  if (status == DriverStatus::ok && checks_.redzones) {
    status = zones_.fill(watched.block, before_bytes());
    watched.banded = status == DriverStatus::ok;
  }
  (void)worked(status);
}

void MemoryCheck::end(DeviceAddress address, std::span<const DeviceIndex> others, Ranges ranges,
                      bool touch) {
  auto ended = live_.extract(address);
  if (ended.empty() || !touch || (!checks_.redzones && !checks_.poison)) return;
  Watched& watched = ended.mapped();
  for (const DeviceIndex other : others) {
    if (!worked(driver_.device_synchronize(other))) return;
  }
  if (watched.banded) {
    if (!compare_bands(watched.block, before_bytes(), Mistake::Found::when_freed)) return;
  }
  if (!checks_.poison) return;
  watched.block.freed = std::chrono::steady_clock::now();
  (void)worked(poison_.give(watched.block, ranges, watched.block.stream));
}

void MemoryCheck::end(Fence::Block& block, bool touch) {
  if (touch && block.banded && worked(driver_.device_synchronize(device_))) {
    (void)compare_bands(block.facts, band_of(block), Mistake::Found::when_freed);
  }
  block.banded = false;
  if (touch) {
    (void)worked(fence_.take_away(block));
  } else {
    fence_.leave(block);
  }
}

void MemoryCheck::note_released(std::uint64_t pages) {
  if (std::exchange(released_, pages) != pages) poison_.forget();
}

void MemoryCheck::look_at_all() {
  if (!worked(driver_.device_synchronize(device_))) return;
  for (const auto& [address, watched] : live_) {
    if (!watched.banded) continue;
    if (!compare_bands(watched.block, before_bytes(), Mistake::Found::on_demand)) return;
  }
  fence_.for_each([&](const Fence::Block& block) {
    if (block.banded) (void)compare_bands(block.facts, band_of(block), Mistake::Found::on_demand);
  });
}

bool MemoryCheck::compare_bands(const CheckedBlock& block, std::uint64_t before,
                                Mistake::Found found) {
  return worked(
      zones_.compare(block, before, [&](Mistake::Kind kind, const Difference& difference) {
        add(kind, found, block, difference, block.address);
      }));
}

void MemoryCheck::add(Mistake::Kind kind, Mistake::Found found, const CheckedBlock& block,
                      const Difference& difference, DeviceAddress begin) {
  const auto now = std::chrono::steady_clock::now();
  Mistake mistake{kind, found, device_, block, 0, difference.bytes, now - block.since, {}};
  mistake.first_offset = static_cast<std::int64_t>(difference.first - begin);
  if (kind == Mistake::Kind::after_free) mistake.free_for = now - block.freed;
  ++found_;
  if (mistakes_.size() == kKept) mistakes_.erase(mistakes_.begin());
  news_.push_back(to_text(mistake));
  mistakes_.push_back(std::move(mistake));
}

bool MemoryCheck::worked(DriverStatus status) {
  if (status == DriverStatus::ok) return true;
  if (!std::exchange(told_of_driver_, true)) {
    news_.push_back(std::string("the driver failed with ") + to_string(status) +
                    (status == DriverStatus::illegal_address
                         ? ": work on the device touched memory that is not mapped; `gapless "
                           "inspect DUMP --address ADDRESS` says whose it is or was"
                         : "; of the blocks it failed for nothing is known"));
  }
  return false;
}

std::vector<CheckedBlock> MemoryCheck::live() const {
  std::vector<CheckedBlock> blocks;
  for (const auto& [address, watched] : live_) blocks.push_back(watched.block);
  fence_.for_each([&](const Fence::Block& block) {
    if (!block.freed) blocks.push_back(block.facts);
  });
  return blocks;
}

std::vector<CheckedBlock> MemoryCheck::freed() const {
  std::vector<CheckedBlock> blocks = poison_.freed();
  for (const Fence::Block& block : fence_.retired()) blocks.push_back(block.facts);
  std::sort(blocks.begin(), blocks.end(),
            [](const CheckedBlock& a, const CheckedBlock& b) { return a.freed < b.freed; });
  return blocks;
}

std::vector<std::string> MemoryCheck::take_news() { return std::exchange(news_, {}); }

}  // namespace gapless
