// A watch over what the host reads back: a loop that waits for a value which no kernel computed
// waits for ever.
//
//   while not converged(loss.item())    the same place again and again: told at the 1,000th time
//   torch.save(model.state_dict(), f)   thousands of places, each once: nothing to tell
//
// So reads are counted by place, and only of what a program could wait for: a few values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace gapless::simgpu {

class ReadWatch {
 public:
  static constexpr std::uint64_t kLargest = 1024;  // bytes

  /// The host has read what nobody knows. How often from there, where that is to be told (at the
  /// 1,000th, 10,000th, ... time of any place in the process); 0 otherwise.
  std::uint64_t read(std::uint64_t address, std::uint64_t bytes);

 private:
  static constexpr std::size_t kPlaces = 1 << 16;
  std::unordered_map<std::uint64_t, std::uint64_t> times_;  // by address
  std::uint64_t next_ = 1000;
};

}  // namespace gapless::simgpu
