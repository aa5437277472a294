// DeviceMemory: the memory of a process's simulated GPUs.
//
//   cudaMalloc   2 MiB and more: whole pages of 2 MiB, ascending first-fit addresses
//                less: packed into slabs of 2 MiB       [ 512 B | 4 KiB | ... ]
//   cuMem*       MemoryModel, as it is
//
// Contents: what the host wrote (copies, memset) comes back, and what was computed of that
// (values.h); what nobody knows reads as zeros. Small copies (labels, masks, lengths) are kept,
// large ones (weights) only while they are few; of what is dropped nothing is known.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simgpu/memory_model.h"
#include "simgpu/process/config.h"
#include "simgpu/process/known_ranges.h"
#include "simgpu/process/shared_usage.h"

namespace gapless::simgpu {

class DeviceMemory {
 public:
  using OnUse = std::function<void(DeviceIndex, std::uint64_t used_bytes)>;
  /// `on_use` is called when the process has come to use more of a device, its context included.
  /// Handles that were made for a request that fails are no use (MemoryModel::Device::on_served).
  explicit DeviceMemory(const Config& config, const OnUse& on_use = {});

  /// The first use of a device takes what its context takes.
  void ensure_context(DeviceIndex device);
  [[nodiscard]] bool has_context(DeviceIndex device) const {
    return contexts_[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] std::uint64_t free_bytes(DeviceIndex device) const;
  [[nodiscard]] std::uint64_t total_bytes(DeviceIndex device) const;
  /// What the process takes of it.
  [[nodiscard]] std::uint64_t used_bytes(DeviceIndex device) const {
    return model_.device(device).used_bytes;
  }

  DriverStatus alloc(DeviceIndex device, std::uint64_t bytes, DeviceAddress& address);
  DriverStatus free(DeviceAddress address);

  /// The cuMem* calls.
  [[nodiscard]] MemoryModel& model() { return model_; }

  /// Where another process's memory is seen here; free() ends that. 0: cannot be had.
  DeviceAddress open_shared(std::shared_ptr<SharedContents> contents);
  /// The memory behind what alloc() gave, for other processes, and where in it that address is.
  std::shared_ptr<SharedContents> share(DeviceAddress address, std::uint64_t& offset);

  struct Span {
    DeviceAddress begin = 0;
    std::uint64_t bytes = 0;
    DeviceIndex device = 0;
    bool mapped = false;  // by cuMemMap
  };
  /// The allocation or the mapping that an address lies in; nothing for a host address.
  [[nodiscard]] std::optional<Span> find(DeviceAddress address) const;

  /// False where part of the range is no memory that a device could reach.
  bool write(DeviceAddress target, const void* source, std::uint64_t bytes,
             Knowledge knowledge = Knowledge::known);
  bool read(void* target, DeviceAddress source, std::uint64_t bytes) const;
  /// The least that is known of any of these bytes, and whether anything is of any.
  [[nodiscard]] Knowledge knowledge(DeviceAddress address, std::uint64_t bytes) const;
  [[nodiscard]] bool knows_any_of(DeviceAddress address, std::uint64_t bytes) const {
    return known_.any(address, bytes);
  }
  [[nodiscard]] bool knows(DeviceAddress address, std::uint64_t bytes) const {
    return knowledge(address, bytes) == Knowledge::known;
  }
  /// Sets a flag for each of `count` numbers of `size` bytes: whether so much is known of it, or
  /// more. Returns the least that is known of those.
  Knowledge flag_known(DeviceAddress numbers, std::uint64_t size, std::uint64_t count,
                       Knowledge wanted, unsigned char* flags) const;
  /// The contents stay, but no more than so much is known of them.
  void weaken(DeviceAddress address, std::uint64_t bytes, Knowledge knowledge);
  bool copy(DeviceAddress target, DeviceAddress source, std::uint64_t bytes);
  /// What is known of a range is not any more.
  void forget(DeviceAddress address, std::uint64_t bytes);
  /// A kernel may have written from there on, to the end of a tensor: what is known there is not
  /// any more.
  void forget_from(DeviceAddress address) {
    if (const std::uint64_t bytes = known_.stretch(address); bytes != 0) forget(address, bytes);
  }
  /// A kernel may have written anywhere.
  void forget_all() {
    while (!known_.empty()) forget_from(known_.first());
  }
  /// Something else may be mapped there: nothing is known of it, but the memory keeps its contents.
  void unmapped(DeviceAddress address, std::uint64_t bytes) {
    known_.set(address, bytes, Knowledge::none);
  }
  /// Whether any process's memory here ever kept contents: else there is nothing to forget. For any
  /// thread.
  [[nodiscard]] static bool ever_kept() { return ever_kept_.load(std::memory_order_relaxed); }
  /// Whether so much more may be kept in host memory.
  [[nodiscard]] bool may_keep(std::uint64_t bytes) const;
  /// Fills with `value`, `width` bytes of it (1, 2 or 4) over and over.
  bool fill(DeviceAddress target, std::uint32_t value, std::uint32_t width, std::uint64_t bytes);

 private:
  struct Slab {
    DeviceIndex device = 0;
    std::map<std::uint64_t, std::uint64_t> used;  // offset -> bytes
  };
  [[nodiscard]] bool may_keep_head(std::uint64_t bytes) const;
  [[nodiscard]] std::optional<std::vector<PhysicalRange>> resolve(DeviceAddress address,
                                                                  std::uint64_t bytes) const;

  /// So much is known from now on of what lies at an address, and so at the other addresses of its
  /// pages; `ranges`: what it resolves to.
  void set_known(DeviceAddress address, std::uint64_t bytes,
                 const std::vector<PhysicalRange>& ranges, Knowledge knowledge);
  /// As much as of the source.
  void copy_known(DeviceAddress target, DeviceAddress source, std::uint64_t bytes,
                  const std::vector<PhysicalRange>& ranges);
  /// act(address elsewhere, offset behind the first address, bytes) for each other address of the
  /// pages of `ranges`.
  template <class Act>
  void each_alias(DeviceAddress address, const std::vector<PhysicalRange>& ranges, Act act) const;

  static inline std::atomic<bool> ever_kept_{false};
  std::vector<GpuProfile> gpus_;
  SharedUsage usage_;
  MemoryModel model_;
  std::vector<bool> contexts_;
  std::map<DeviceAddress, Slab> slabs_;
  KnownRanges known_;
  std::map<DeviceAddress, Span> plain_;  // what alloc() gave from 2 MiB on, and the slabs
};

}  // namespace gapless::simgpu
