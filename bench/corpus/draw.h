// Draw: random choices from a seed, the same on every machine.
//
//   Draw draw(seed, 1);     the second of the seed's independent sequences
//   draw.octaves(1, 64)     1, 2..3, 4..7, ... equally likely: sizes as programs have them
//
// Whole numbers only: distributions of the standard library, and of floating-point numbers, differ
// between implementations.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>

namespace gapless::bench {

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t sequence)
      : state_(seed * 0x9e3779b97f4a7c15 + sequence * 0xd1b54a32d192ed03) {
    (void)next();
  }

  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15); }
  /// Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + next() % (high - low + 1);
  }
  /// In [low, high], low at least 1, with every octave equally likely.
  std::uint64_t octaves(std::uint64_t low, std::uint64_t high) {
    const auto first = static_cast<unsigned>(std::bit_width(low));
    const auto last = static_cast<unsigned>(std::bit_width(high));
    const std::uint64_t begin = std::uint64_t{1} << (between(first, last) - 1);
    return std::min(std::max(begin + next() % begin, low), high);
  }
  bool percent(std::uint64_t chance) { return next() % 100 < chance; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + next() % choices.size());
  }

  /// A number whose every bit depends on every bit of the value (the finalizer of splitmix64).
  static std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace gapless::bench
