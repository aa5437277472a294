// GpuProfile: which GPU to be. "A100", "RTX 4090", "16GiB", "A100:40GiB", "3xT4".
//
//   parse_gpus("A100,16GiB")  ->  an A100 with 80 GB, and a card of 16 GiB that is otherwise one
//   parse_gpus("3x16GiB")     ->  three of those
//
// Capacities are those PyTorch's messages give for such cards on Linux ("GPU 0 has a total capacity
// of 79.15 GiB"): what the driver, and error correction, keep for themselves is taken off already.
// A card sold with 16 GB has 14.74 GiB (T4) to 15.77 GiB (V100).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::simgpu {

struct GpuProfile {
  std::string name;  // as cudaDeviceProp::name gives it
  std::uint64_t total_bytes = 0;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  std::uint64_t shared_per_multiprocessor_bytes = 0;
  std::uint64_t shared_per_block_optin_bytes = 0;
  std::uint64_t l2_bytes = 0;
  /// What a context takes before the first allocation: about, for it was not measured and differs
  /// between drivers (SIMGPU_CONTEXT sets it).
  std::uint64_t context_bytes = 0;
  std::uint64_t sold_with_bytes = 0;  // what its box says, where "16 GB" is 16 GiB
  bool is_named = false;              // else only its size was given
};

/// The built-in profiles, by the names they are asked for: {"A100", ...}.
std::vector<std::string> gpu_profile_names();

struct Card {
  std::string name;  // as it is asked for
  std::uint64_t total_bytes = 0;
  std::uint64_t sold_with_bytes = 0;
  std::uint64_t shared_per_block_bytes = 0;
};

/// All that are known.
std::vector<Card> known_cards();

/// Those sold with that much memory, 16 GiB or 16 GB, the one that has the least of it first.
std::vector<Card> cards_sold_with(std::uint64_t bytes);

/// PROFILE, SIZE or PROFILE:SIZE, each with COUNTx in front of it or not, separated by commas.
/// Names are compared without case, spaces, '-' and '_'; as the driver gives them they are known,
/// too ("NVIDIA GeForce RTX 3090"), and with what a card is sold with ("A100-80GB"). A context
/// takes `context` bytes of each, where that is given. Throws std::invalid_argument, naming what it
/// does not know and what there is, a GPU that has no room for a context or more memory than any
/// has, or more than 128.
std::vector<GpuProfile> parse_gpus(std::string_view text,
                                   std::optional<std::uint64_t> context = std::nullopt);

/// What each of those GPUs is, without how many there are: "A100" of "2xA100" and of "A100,A100";
/// empty where they differ.
std::string kind_of(std::string_view gpus);

/// The same GPUs with those of which only the size is given as that card: "3x16GiB, A100" as
/// "T4" are "3xT4:16GiB,A100". Of what parse_gpus() takes.
std::string name_sizes(std::string_view gpus, std::string_view name);

}  // namespace gapless::simgpu
