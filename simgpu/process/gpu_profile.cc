#include "simgpu/process/gpu_profile.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

constexpr std::size_t kMostGpus = 128;  // PyTorch numbers a process's devices in 7 bits

struct BuiltIn {
  const char* key;  // lower case, letters and digits only
  const char* shown;
  GpuProfile profile;
};

// Capacity in hundredths of GiB.
constexpr std::uint64_t gib(std::uint64_t hundredths) { return hundredths * GiB / 100 / MiB * MiB; }

const std::vector<BuiltIn>& built_in() {
  static const std::vector<BuiltIn> profiles = {
      {"a100",
       "A100",
       {"NVIDIA A100-SXM4-80GB", gib(7915), 8, 0, 108, 2048, 164 * KiB, 163 * KiB, 40 * MiB,
        424 * MiB, 80 * GiB}},
      {"a10040gb",
       "A100-40GB",
       {"NVIDIA A100-SXM4-40GB", gib(3939), 8, 0, 108, 2048, 164 * KiB, 163 * KiB, 40 * MiB,
        424 * MiB, 40 * GiB}},
      {"h100",
       "H100",
       {"NVIDIA H100 80GB HBM3", gib(7911), 9, 0, 132, 2048, 228 * KiB, 227 * KiB, 50 * MiB,
        520 * MiB, 80 * GiB}},
      {"h200",
       "H200",
       {"NVIDIA H200", gib(13981), 9, 0, 132, 2048, 228 * KiB, 227 * KiB, 60 * MiB, 520 * MiB,
        141 * GiB}},
      {"b200",
       "B200",
       {"NVIDIA B200", gib(17836), 10, 0, 148, 2048, 228 * KiB, 227 * KiB, 126 * MiB, 640 * MiB,
        180 * GiB}},
      {"rtx4090",
       "RTX 4090",
       {"NVIDIA GeForce RTX 4090", gib(2364), 8, 9, 128, 1536, 100 * KiB, 99 * KiB, 72 * MiB,
        380 * MiB, 24 * GiB}},
      {"rtx3090",
       "RTX 3090",
       {"NVIDIA GeForce RTX 3090", gib(2369), 8, 6, 82, 1536, 100 * KiB, 99 * KiB, 6 * MiB,
        300 * MiB, 24 * GiB}},
      {"l4",
       "L4",
       {"NVIDIA L4", gib(2203), 8, 9, 58, 1536, 100 * KiB, 99 * KiB, 48 * MiB, 250 * MiB,
        24 * GiB}},
      {"a10g",
       "A10G",
       {"NVIDIA A10G", gib(2207), 8, 6, 80, 1536, 100 * KiB, 99 * KiB, 6 * MiB, 300 * MiB,
        24 * GiB}},
      {"t4",
       "T4",
       {"Tesla T4", gib(1474), 7, 5, 40, 1024, 64 * KiB, 64 * KiB, 4 * MiB, 150 * MiB, 16 * GiB}},
      {"v100",
       "V100",
       {"Tesla V100-SXM2-16GB", gib(1577), 7, 0, 80, 2048, 96 * KiB, 96 * KiB, 6 * MiB, 300 * MiB,
        16 * GiB}},
      {"v10032gb",
       "V100-32GB",
       {"Tesla V100-SXM2-32GB", gib(3174), 7, 0, 80, 2048, 96 * KiB, 96 * KiB, 6 * MiB, 300 * MiB,
        32 * GiB}},
      {"l40s",
       "L40S",
       {"NVIDIA L40S", gib(4442), 8, 9, 142, 1536, 100 * KiB, 99 * KiB, 96 * MiB, 400 * MiB,
        48 * GiB}},
      {"rtx5090",
       "RTX 5090",
       {"NVIDIA GeForce RTX 5090", gib(3137), 12, 0, 170, 1536, 100 * KiB, 99 * KiB, 96 * MiB,
        480 * MiB, 32 * GiB}},
      {"rtx4080",
       "RTX 4080",
       {"NVIDIA GeForce RTX 4080", gib(1560), 8, 9, 76, 1536, 100 * KiB, 99 * KiB, 64 * MiB,
        300 * MiB, 16 * GiB}},
      {"rtx3080",
       "RTX 3080",
       {"NVIDIA GeForce RTX 3080", gib(978), 8, 6, 68, 1536, 100 * KiB, 99 * KiB, 5 * MiB,
        280 * MiB, 10 * GiB}},
      {"rtx3070",
       "RTX 3070",
       {"NVIDIA GeForce RTX 3070", gib(778), 8, 6, 46, 1536, 100 * KiB, 99 * KiB, 4 * MiB,
        250 * MiB, 8 * GiB}},
      {"rtx3060",
       "RTX 3060",
       {"NVIDIA GeForce RTX 3060", gib(1175), 8, 6, 28, 1536, 100 * KiB, 99 * KiB, 9 * MiB / 4,
        220 * MiB, 12 * GiB}},
      {"rtx2080ti",
       "RTX 2080 Ti",
       {"NVIDIA GeForce RTX 2080 Ti", gib(1076), 7, 5, 68, 1024, 64 * KiB, 64 * KiB, 11 * MiB / 2,
        200 * MiB, 11 * GiB}},
  };
  return profiles;
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

std::string no_gpu(std::string_view text) {
  std::string known;
  for (const std::string& name : gpu_profile_names()) known += (known.empty() ? "" : ", ") + name;
  return "\"" + std::string(text) +
         "\" is no GPU: give a size (\"16GiB\"), a name, or both (\"A100:40GiB\"); known are " +
         known;
}

GpuProfile parse_one(std::string_view text, std::optional<std::uint64_t> context) {
  const std::size_t colon = text.find(':');
  const std::string_view first = text.substr(0, colon);
  const auto found =
      std::find_if(built_in().begin(), built_in().end(),
                   [key = key_of(first)](const BuiltIn& known) { return known.key == key; });
  GpuProfile profile = built_in().front().profile;
  std::string_view size = text;
  const bool is_known = found != built_in().end();
  if (is_known) {
    profile = found->profile;
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
      throw std::invalid_argument("\"" + std::string(text) + "\": " + cause);
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
  for (const BuiltIn& known : built_in()) names.emplace_back(known.shown);
  return names;
}

std::vector<Card> cards_sold_with(std::uint64_t bytes) {
  std::vector<Card> cards;
  for (const BuiltIn& known : built_in()) {
    const std::uint64_t sold = known.profile.sold_with_bytes;
    const std::uint64_t as_decimal = sold / GiB * 1'000'000'000 / (2 * MiB) * (2 * MiB);
    if (bytes == sold || bytes == as_decimal) {
      cards.push_back({known.shown, known.profile.total_bytes});
    }
  }
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
