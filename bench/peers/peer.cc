#include "bench/peers/peer.h"

#include "allocator/device/options.h"
#include "bench/peers/gapless_peer.h"
#include "bench/peers/torch_model.h"

namespace gapless::bench {

std::vector<std::string> peer_names() { return {"gapless", "native", "expandable"}; }

std::unique_ptr<Peer> make_peer(const std::string& name, Driver& driver, DeviceIndex device,
                                const std::string& settings) {
  if (const auto of_torch = torch_settings(name)) {
    return std::make_unique<TorchModel>(driver, device, *of_torch);
  }
  if (name != "gapless") return nullptr;
  DeviceProperties properties;
  if (driver.device_properties(device, properties) != DriverStatus::ok) return nullptr;
  std::vector<std::string> warnings;
  const Options options = parse_options(settings, warnings);
  return std::make_unique<GaplessPeer>(driver, device, properties, options);
}

}  // namespace gapless::bench
