// Whether an answer for "16GiB" holds for an older card of that size. The simulated GPU is taken
// for one of compute capability 8.0 where only its size is given, and PyTorch has attention that
// older ones lack; what it does there may take much more:
//
//   gapless fits --gpu 16GiB    flash attention ran, 8.51 GiB: fits
//     once more as T4:16GiB     9.10 GiB, fits    -> yes, and a note; once more with each allocator
//                               out of memory     -> yes, on newer GPUs, and a note
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/fits_report.h"
#include "tools/simulated_run.h"

namespace gapless::tools {

/// What a verdict ends with that does not hold for older GPUs.
inline constexpr std::string_view kOnNewerGpus = ", on newer GPUs";

/// "8.0" of 80.
std::string capability_text(std::int32_t capability);

/// That the row's memory is that of newer GPUs, where it is and none was named, and what was found
/// of an older one where it was tried there; else empty.
std::string older_gpu_note(const nlohmann::json& row);

/// The first run that fits and whose answer is to be tried on an older GPU; null where none is.
const FitsRun* wants_older_gpu(std::span<const FitsRun> runs);

/// The same GPUs, older where they are not named.
SimulatedGpus older(SimulatedGpus gpus);

/// Whether `again`, a run of older GPUs which is else as `first` was, answers for every allocator:
/// it takes no more there, or does not fit.
bool answers_for_all(const FitsRun& first, const FitsRun& again);

/// Judges the rows of `runs` anew that fit, by what their process did in `again`, a run of older
/// GPUs which is else as `first`, one of them, was. Adds "on_older_gpu" to each. `tried` says to
/// the others what that was: empty where they differ by the allocator alone.
void judge_by_older_gpu(std::span<FitsRun> runs, const FitsRun& first, const FitsRun& again,
                        const std::string& tried = "");

}  // namespace gapless::tools
