// From a command to advice: run as it is, run with room, causes, remedies, those that are tried.
//
//   as it is, 16 GiB     no: 2.32 GiB asked in step 0
//   with room, 1 TiB     24.1 GiB at its peak: what it needs, and what that is for (causes.h)
//   remedies             estimates from that run's trace (remedies.h); those asked for are run
//   together             where none alone is enough: those tried, added one by one, least lost
//   first
//
// The run with room sees what would have come after the request that failed, so an answer such as
// "no allocator helps" rests on the whole program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/advise/remedies.h"
#include "tools/advise/settings.h"
#include "tools/traced_run.h"

namespace gapless::tools {

struct AdviseOptions {
  SimulatedGpus gpus;
  std::string allocator = "native";
  std::vector<std::string> tries = {"allocator"};
  double limit_seconds = 0;
  bool show_output = false;
  std::vector<std::string> command;
};

/// A configuration file as a remedy would have it.
struct ChangedFile {
  std::string remedy;
  std::string path;  // as the command names it
  std::string text;
  std::string lines;    // that differ
  std::string written;  // where it lies; empty where it was not written
};

struct Advice {
  std::vector<FitsRun> runs;  // as it is, and with other allocators; the first is as it is
  std::unique_ptr<const FitsRun> roomy;  // on GPUs of 1 TiB, where it did not fit
  Subject as_is;                         // in the first of `runs`
  Subject needed;                        // in `roomy` where there is one, else as_is
  /// Whether `needed` saw the program to its end.
  bool complete = false;
  std::uint64_t usable_bytes = 0;  // of that GPU, beside the context
  std::vector<Cause> causes;
  std::vector<Remedy> remedies;
  std::vector<std::string> together;  // ids; empty where that was not tried
  std::optional<Trial> together_trial;
  std::vector<ChangedFile> files;
  std::vector<std::string> answers;  // sentences
};

/// Runs the program as often as that takes. Throws InputError.
Advice advise(const AdviseOptions& options);

}  // namespace gapless::tools
