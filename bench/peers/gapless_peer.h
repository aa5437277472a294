// gapless itself, as a peer of the others.
#pragma once

#include "allocator/device/device_allocator.h"
#include "bench/peers/peer.h"

namespace gapless::bench {

class GaplessPeer final : public Peer {
 public:
  GaplessPeer(Driver& driver, DeviceIndex device, const DeviceProperties& properties,
              const Options& options)
      : allocator_(driver, device, properties, options) {}

  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream, std::uint8_t /*pool*/) override {
    DeviceAddress address = 0;
    // Every allocator here gives a block for 0 bytes too, as a recorded one had an address.
    const Status status = allocator_.alloc(bytes == 0 ? 1 : bytes, stream, address);
    return status == Status::ok ? address : 0;
  }
  void free(DeviceAddress address) override { (void)allocator_.free(address); }
  void record_stream(DeviceAddress address, StreamHandle stream) override {
    (void)allocator_.record_stream(address, stream);
  }
  [[nodiscard]] std::uint64_t reserved_bytes() const override {
    return static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.current);
  }
  [[nodiscard]] std::uint64_t peak_reserved_bytes() const override {
    return static_cast<std::uint64_t>(allocator_.statistics().reserved_bytes.all.peak);
  }

  [[nodiscard]] DeviceAllocator& allocator() { return allocator_; }

 private:
  DeviceAllocator allocator_;
};

}  // namespace gapless::bench
