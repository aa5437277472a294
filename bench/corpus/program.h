// A corpus of programs that nobody wrote and nobody can tune to by hand.
//
//   seed 1, program 17  ->  family "diffusion", 3 streams, bf16, 41 GiB ...  ->  a trace
//
// A program's choices (architecture, batch, precision, optimizer, streams) are drawn once, what
// differs from step to step as it runs. One that comes out too long or too large is made once more
// with less of what was drawn, so that all have 2,000 to 30,000 events and 0.3 to 80 GiB.
// Half of all programs are *unseen*: of them nobody is shown more than sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::bench {

inline constexpr std::uint64_t kLeastProgramEvents = 2000;
inline constexpr std::uint64_t kMostProgramEvents = 30000;
inline constexpr std::uint64_t kLeastProgramBytes = 300ULL << 20;
inline constexpr std::uint64_t kMostProgramBytes = 80ULL << 30;

/// "decoder", "lora", ... in their order.
std::vector<std::string> family_names();

/// Which program of a corpus.
struct ProgramId {
  std::uint64_t seed = 1;   // of the corpus
  std::uint64_t index = 0;  // from 0

  bool operator==(const ProgramId&) const = default;
};

/// The family is drawn too, where `family` is empty. Throws std::invalid_argument for one that is
/// none.
Trace corpus_program(const ProgramId& id, const std::string& family = {});
/// Of a program: its family. The same as corpus_program() takes.
std::string family_of(const ProgramId& id);

/// Whether only sums over it may be shown: half of all, by a hash of the program's own seed, so
/// that no program changes sides when others come or go.
bool is_unseen(const ProgramId& id);

/// A digest of what a trace asks for: kinds, blocks, sizes, streams, in order.
std::uint64_t digest_of(const Trace& trace);

}  // namespace gapless::bench
