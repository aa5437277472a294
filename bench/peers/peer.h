// What a replay drives: an allocator as a program sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/driver/driver.h"

namespace gapless::bench {

class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  /// An address for at least `bytes` bytes, or 0 where it does not fit.
  virtual DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream, std::uint8_t pool) = 0;
  virtual void free(DeviceAddress address) = 0;
  /// The live block at `address` is used on that stream too.
  virtual void record_stream(DeviceAddress address, StreamHandle stream) = 0;
  [[nodiscard]] virtual std::uint64_t reserved_bytes() const = 0;
  [[nodiscard]] virtual std::uint64_t peak_reserved_bytes() const = 0;
  /// While nothing is live: a digest of everything that decides what it does from here on. Two
  /// equal ones, and the same requests end alike. Nothing where it remembers more than can be told.
  [[nodiscard]] virtual std::optional<std::uint64_t> idle_state() const { return {}; }
};

/// "gapless", "native", "expandable": gapless and the models of PyTorch's two allocators. Those of
/// PyTorch may be followed by settings: "native+max_split_size_mb:128" (torch_settings.h).
std::vector<std::string> peer_names();

/// A peer over the driver's device; nullptr for an unknown name. `settings`
/// is gapless's own "key:value,..." and ignored by the others.
std::unique_ptr<Peer> make_peer(const std::string& name, Driver& driver, DeviceIndex device,
                                const std::string& settings = "");

}  // namespace gapless::bench
