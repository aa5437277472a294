// What takes a program's memory, by name: causes, of what was seen.
//
//   blocks live at the peak, with their sites  +  parameters, losses, optimizers as told
//     -> float32 logits and their gradient          6.95 GiB   train.py:58
//        frozen parameters in float32               4.64 GiB   train.py:39, prepare_model_for...
//
// The parts add up to what was allocated at the peak; fragmentation, stalls and what the context
// takes stand beside it. Nothing is said by a program's name, only by what its blocks and tensors
// were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/advise/program_facts.h"
#include "tools/fits_report.h"

namespace gapless::tools {

struct Cause {
  std::string id;    // "float32_logits", as JSON has it
  std::string what;  // a line for people
  std::uint64_t bytes = 0;
  std::string line;     // the user's, and the library's; empty where unknown
  bool of_peak = true;  // part of what was allocated at the peak
};

/// A process on a GPU, of a run.
struct Subject {
  const FitsRun* run = nullptr;
  std::size_t row = 0;

  [[nodiscard]] const nlohmann::json& result() const { return run->rows[row]; }
  [[nodiscard]] const TracedMemory* traced() const {
    return run->memory[row] ? &*run->memory[row] : nullptr;
  }
  [[nodiscard]] ProgramFacts facts() const;
  /// Used by the context and libraries, beside what was reserved: bytes.
  [[nodiscard]] std::uint64_t outside_bytes() const;
};

/// The process and GPU of most interest: the first that does not fit, else the one with the most
/// memory; `run` null where nothing used a GPU's memory.
Subject subject_of(const FitsRun& run);
/// The same process and GPU in another run; `run` null where it has none.
Subject same_in(const FitsRun& run, const Subject& subject);

/// `needed`: of a run that went to its end where there was one, with room where it was had;
/// `as_is`: on the GPUs that were asked for. The most bytes first; what is less than a hundredth is
/// left out.
std::vector<Cause> causes_of(const Subject& needed, const Subject& as_is);

}  // namespace gapless::tools
