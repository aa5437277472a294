#include "allocator/check/mistake.h"

#include <array>
#include <cstdio>

namespace gapless {
namespace {

std::string seconds(std::chrono::nanoseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", std::chrono::duration<double>(time).count());
  return text.data();
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string bytes(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

}  // namespace

const char* name_of(Mistake::Kind kind) {
  switch (kind) {
    case Mistake::Kind::behind:
      return "behind";
    case Mistake::Kind::before:
      return "before";
    case Mistake::Kind::after_free:
      return "after_free";
  }
  return "?";
}

std::string to_text(const Mistake& mistake) {
  const CheckedBlock& block = mistake.block;
  std::string text = bytes(mistake.wrong_bytes);
  const std::string verb = mistake.wrong_bytes == 1 ? " was" : " were";
  const std::string what = "a block of " + bytes(block.requested_bytes);
  switch (mistake.kind) {
    case Mistake::Kind::behind:
      text += verb + " written behind the end of " + what + ", the first " +
              bytes(static_cast<std::uint64_t>(mistake.first_offset) - block.requested_bytes) +
              " behind it";
      break;
    case Mistake::Kind::before:
      text += verb + " written before the begin of " + what + ", the first " +
              bytes(static_cast<std::uint64_t>(-mistake.first_offset)) + " before it";
      break;
    case Mistake::Kind::after_free:
      text += " of " + what + verb + " written after it was freed, the first at byte " +
              std::to_string(mistake.first_offset);
      break;
  }
  text += " (" + hexadecimal(block.address) + " on device " + std::to_string(mistake.device) +
          ", stream " + hexadecimal(block.stream) + ", allocated ";
  if (!block.call_site.empty()) text += "at " + block.call_site + " ";
  text += seconds(mistake.age) + " before";
  if (mistake.kind == Mistake::Kind::after_free) {
    text += ", freed " + seconds(mistake.free_for) + " before";
  }
  text += "), found ";
  switch (mistake.found) {
    case Mistake::Found::when_freed:
      return text + "when it was freed";
    case Mistake::Found::when_given_out:
      return text + "when its memory was given out again";
    case Mistake::Found::on_demand:
      return text + "when memory was checked";
  }
  return text;
}

}  // namespace gapless
