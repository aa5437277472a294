#include "simgpu/process/gpu_profile.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

constexpr std::size_t kMostGpus = 128;  // PyTorch numbers a process's devices in 7 bits
constexpr std::uint64_t kLargestGpu = 65'536 * GiB;  // more is a name: "750ti" would be 750 TiB

// What makes a card: the rest follows from its compute capability.
struct BuiltIn {
  const char* shown;
  const char* name;
  int capability;  // 89 is 8.9
  int total_hundredths_gib;
  int sold_with_gib;
  int multiprocessors;
  int l2_kib;
  int context_mib;
};

const std::vector<BuiltIn>& built_in() {
  static const std::vector<BuiltIn> cards = {
      {"A100", "NVIDIA A100-SXM4-80GB", 80, 7915, 80, 108, 40960, 424},
      {"A100-40GB", "NVIDIA A100-SXM4-40GB", 80, 3939, 40, 108, 40960, 424},
      {"H100", "NVIDIA H100 80GB HBM3", 90, 7911, 80, 132, 51200, 520},
      {"H200", "NVIDIA H200", 90, 13981, 141, 132, 61440, 520},
      {"B200", "NVIDIA B200", 100, 17836, 180, 148, 129024, 640},
      {"RTX 4090", "NVIDIA GeForce RTX 4090", 89, 2364, 24, 128, 73728, 380},
      {"RTX 3090", "NVIDIA GeForce RTX 3090", 86, 2369, 24, 82, 6144, 300},
      {"L4", "NVIDIA L4", 89, 2203, 24, 58, 49152, 250},
      {"A10G", "NVIDIA A10G", 86, 2207, 24, 80, 6144, 300},
      {"T4", "Tesla T4", 75, 1474, 16, 40, 4096, 150},
      {"V100", "Tesla V100-SXM2-16GB", 70, 1577, 16, 80, 6144, 300},
      {"V100-32GB", "Tesla V100-SXM2-32GB", 70, 3174, 32, 80, 6144, 300},
      {"L40S", "NVIDIA L40S", 89, 4442, 48, 142, 98304, 400},
      {"RTX 5090", "NVIDIA GeForce RTX 5090", 120, 3137, 32, 170, 98304, 480},
      {"RTX 4080", "NVIDIA GeForce RTX 4080", 89, 1560, 16, 76, 65536, 300},
      {"RTX 3080", "NVIDIA GeForce RTX 3080", 86, 978, 10, 68, 5120, 280},
      {"RTX 3070", "NVIDIA GeForce RTX 3070", 86, 778, 8, 46, 4096, 250},
      {"RTX 3060", "NVIDIA GeForce RTX 3060", 86, 1175, 12, 28, 2304, 220},
      {"RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", 75, 1076, 11, 68, 5632, 200},
  };
  return cards;
}

std::uint64_t total_bytes_of(const BuiltIn& card) {
  return card.total_hundredths_gib * GiB / 100 / MiB * MiB;
}

// A multiprocessor's threads and shared memory by compute capability: CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability".
GpuProfile profile_of(const BuiltIn& card) {
  const int major = card.capability / 10;
  const int minor = card.capability % 10;
  int threads = 2048;
  std::uint64_t shared = 228 * KiB;  // 9.0 and 10.0
  if (major == 7 && minor == 0) {
    shared = 96 * KiB;
  } else if (major == 7) {
    threads = 1024;
    shared = 64 * KiB;
  } else if (major == 8 && minor == 0) {
    shared = 164 * KiB;
  } else if (major == 8 || major == 12) {
    threads = 1536;
    shared = 100 * KiB;
  }
  // From 8.0 on the system keeps 1 KiB for each block.
  const std::uint64_t shared_of_block = major < 8 ? shared : shared - KiB;
  return {card.name,
          total_bytes_of(card),
          major,
          minor,
          card.multiprocessors,
          threads,
          shared,
          shared_of_block,
          card.l2_kib * KiB,
          card.context_mib * MiB,
          card.sold_with_gib * GiB};
}

std::string key_of(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return key;
}

// "nvidiageforcertx3090", as nvidia-smi has it -> "rtx3090"
std::string without_makers(std::string key) {
  for (const std::string_view maker : {"nvidia", "geforce", "tesla"}) {
    if (key.starts_with(maker)) key.erase(0, maker.size());
  }
  return key;
}

// Whether that is the card's name: as it is listed, with what it is sold with (A100-80GB), or as
// the driver gives it.
bool is_called(const BuiltIn& card, std::string_view name) {
  const std::string key = without_makers(key_of(name));
  const std::string shown = key_of(card.shown);
  return !key.empty() && (key == shown || key == without_makers(key_of(card.name)) ||
                          key == shown + std::to_string(card.sold_with_gib) + "gb");
}

std::string no_gpu(std::string_view text) {
  std::string known;
  for (const std::string& name : gpu_profile_names()) known += (known.empty() ? "" : ", ") + name;
  return "\"" + std::string(text) +
         "\" is no GPU: give a size (\"16GiB\"), a name, or both (\"A100:40GiB\"); known are " +
         known;
}

// The built-in card whose name has that number, as "4090" and "3090ti" have; nullptr where none is.
const char* card_of_number(std::string_view text) {
  const std::string number(text.substr(0, text.find_first_not_of("0123456789")));
  for (const BuiltIn& card : built_in()) {
    const std::string_view shown = card.shown;
    if (number.size() > 2 && shown.find(" " + number) != shown.npos) return card.shown;
  }
  return nullptr;
}

// What a number may have been meant for.
std::string or_a_card(std::string_view text) {
  const char* const card = card_of_number(text);
  return card == nullptr ? "" : "; or is it the card, \"" + std::string(card) + "\"?";
}

GpuProfile parse_one(std::string_view text, std::optional<std::uint64_t> context) {
  const std::size_t colon = text.find(':');
  const std::string_view first = text.substr(0, colon);
  const auto found = std::find_if(built_in().begin(), built_in().end(),
                                  [&](const BuiltIn& card) { return is_called(card, first); });
  GpuProfile profile = profile_of(built_in().front());
  std::string_view size = text;
  const bool is_known = found != built_in().end();
  if (is_known) {
    profile = profile_of(*found);
    profile.is_named = true;
    size = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  } else {
    profile.name = "simulated GPU";
  }
  if (!is_known || colon != std::string_view::npos) {
    std::string cause;
    const std::optional<std::uint64_t> bytes =
        !is_known && colon != std::string_view::npos ? std::nullopt : read_bytes(size, cause);
    if (!bytes && parse_bytes(size)) {  // a size, but one that is asked back
      throw std::invalid_argument("\"" + std::string(text) + "\": " + cause + or_a_card(text));
    }
    if (bytes && *bytes > kLargestGpu) {
      throw std::invalid_argument("\"" + std::string(text) + "\": no GPU has " +
                                  format_bytes(*bytes) + or_a_card(text) +
                                  " (Of a card that is not known give the size.)");
    }
    if (!bytes) throw std::invalid_argument(no_gpu(text));
    profile.total_bytes = *bytes / (2 * MiB) * (2 * MiB);
  }
  profile.context_bytes = context.value_or(profile.context_bytes);
  if (profile.total_bytes < 2 * MiB || profile.total_bytes - 2 * MiB < profile.context_bytes) {
    throw std::invalid_argument("\"" + std::string(text) + "\" is too small: a context takes " +
                                format_bytes(profile.context_bytes) +
                                " of it, unless another figure is given for that");
  }
  return profile;
}

// "3x19.58GiB": how many of them, taken off the text; 1 where it names none.
std::size_t count_of(std::string_view& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::size_t next = digits;
  while (next < text.size() && text[next] == ' ') ++next;
  if (digits == 0 || next == text.size() || (text[next] != 'x' && text[next] != 'X')) return 1;
  const std::string number(text.substr(0, digits));
  const std::size_t count = digits > 4 ? kMostGpus + 1 : std::stoul(number);
  if (count == 0 || count > kMostGpus) {
    throw std::invalid_argument("\"" + std::string(text) + "\": 1 to " + std::to_string(kMostGpus) +
                                " GPUs can be simulated");
  }
  text.remove_prefix(next + 1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return count;
}

// Calls f(how many, which) for each of those between commas.
template <class F>
void for_each_of(std::string_view text, F&& f) {
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    const std::size_t count = count_of(one);
    f(count, one);
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<std::string> gpu_profile_names() {
  std::vector<std::string> names;
  for (const BuiltIn& card : built_in()) names.emplace_back(card.shown);
  return names;
}

std::vector<Card> known_cards() {
  std::vector<Card> cards;
  for (const BuiltIn& card : built_in()) {
    const GpuProfile profile = profile_of(card);
    cards.push_back({card.shown, profile.total_bytes, profile.sold_with_bytes,
                     profile.shared_per_block_optin_bytes});
  }
  return cards;
}

std::vector<Card> cards_sold_with(std::uint64_t bytes) {
  std::vector<Card> cards = known_cards();
  std::erase_if(cards, [&](const Card& card) {
    const std::uint64_t as_decimal =
        card.sold_with_bytes / GiB * 1'000'000'000 / (2 * MiB) * (2 * MiB);
    return bytes != card.sold_with_bytes && bytes != as_decimal;
  });
  std::sort(cards.begin(), cards.end(),
            [](const Card& a, const Card& b) { return a.total_bytes < b.total_bytes; });
  return cards;
}

std::vector<GpuProfile> parse_gpus(std::string_view text, std::optional<std::uint64_t> context) {
  std::vector<GpuProfile> gpus;
  for_each_of(text, [&](std::size_t count, std::string_view one) {
    gpus.insert(gpus.end(), count, parse_one(one, context));
    if (gpus.size() > kMostGpus) {
      throw std::invalid_argument("more than " + std::to_string(kMostGpus) + " GPUs");
    }
  });
  return gpus;
}

std::string kind_of(std::string_view gpus) {
  std::optional<std::string> kind;
  bool differ = false;
  for_each_of(gpus, [&](std::size_t /*count*/, std::string_view one) {
    differ = differ || (kind && *kind != one);
    kind = std::string(one);
  });
  return differ ? "" : kind.value_or("");
}

std::string name_sizes(std::string_view gpus, std::string_view name) {
  std::string named;
  for_each_of(gpus, [&](std::size_t count, std::string_view one) {
    if (!named.empty()) named += ',';
    if (count != 1) named += std::to_string(count) + "x";
    if (!parse_one(one, 0).is_named) named += std::string(name) + ":";
    named += one;
  });
  return named;
}

}  // namespace gapless::simgpu
