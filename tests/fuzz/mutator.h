// How a target changes its own inputs, where it knows that better than by bytes: named as libFuzzer
// has it, and told to run_corpus.cc.
#pragma once

#include <cstddef>
#include <cstdint>

/// Changes the bytes where they are and returns how many there are.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed);

using Mutator = decltype(&LLVMFuzzerCustomMutator);

/// nullptr unless a target has one.
inline Mutator& mutator() {
  static Mutator of_target = nullptr;
  return of_target;
}
