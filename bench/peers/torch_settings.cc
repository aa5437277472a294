#include "bench/peers/torch_settings.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "allocator/base/bytes.h"
#include "allocator/base/error.h"

namespace gapless::bench {
namespace {

constexpr std::uint64_t kLeastSplit = 20;  // MiB; PyTorch refuses it, and less

template <class Number>
Number number_of(const std::string& allocator, const std::string& value) {
  Number number{};
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || stop != value.data() + value.size()) {
    throw InputError("--allocator: " + allocator + ": \"" + value + "\" is no number");
  }
  return number;
}

void set(TorchSettings& settings, const std::string& allocator, const std::string& key,
         const std::string& value) {
  if (key == "max_split_size_mb") {
    const auto mib = number_of<std::uint64_t>(allocator, value);
    if (mib <= kLeastSplit || mib > UINT64_MAX / MiB) {
      throw InputError("--allocator: " + allocator + ": PyTorch wants more than 20 MiB");
    }
    settings.max_split_bytes = mib * MiB;
  } else if (key == "roundup_power2_divisions") {
    settings.roundup_power2_divisions = number_of<std::uint64_t>(allocator, value);
    if (!std::has_single_bit(settings.roundup_power2_divisions)) {
      throw InputError("--allocator: " + allocator + ": PyTorch wants a power of two");
    }
  } else if (key == "garbage_collection_threshold") {
    settings.garbage_collection_threshold = number_of<double>(allocator, value);
    if (!(settings.garbage_collection_threshold > 0 && settings.garbage_collection_threshold < 1)) {
      throw InputError("--allocator: " + allocator + ": PyTorch wants a number between 0 and 1");
    }
  } else {
    throw InputError("--allocator: " + allocator + ": the models know max_split_size_mb, " +
                     "roundup_power2_divisions and garbage_collection_threshold, not \"" + key +
                     "\"");
  }
}

}  // namespace

std::optional<TorchSettings> torch_settings(const std::string& name) {
  TorchSettings settings;
  std::size_t at = name.find('+');
  const std::string model = name.substr(0, at);
  if (model != "native" && model != "expandable") return {};
  settings.expandable = model == "expandable";
  while (at != std::string::npos) {
    const std::size_t next = name.find('+', at + 1);
    const std::string setting = name.substr(at + 1, next == name.npos ? next : next - at - 1);
    const std::size_t colon = setting.find(':');
    if (colon == std::string::npos) {
      throw InputError("--allocator: " + name + ": expected key:value after the plus");
    }
    set(settings, name, setting.substr(0, colon), setting.substr(colon + 1));
    at = next;
  }
  return settings;
}

std::string allocator_conf(const std::string& name) {
  const std::size_t plus = name.find('+');
  if (plus == std::string::npos) return {};
  std::string text = name.substr(plus + 1);
  std::replace(text.begin(), text.end(), '+', ',');
  return text;
}

}  // namespace gapless::bench
