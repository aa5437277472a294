// Whether the runs with several allocators, or with one, were of one program. What it asks for does
// not hang on who serves it: in all it is the same, to the byte, unless the program draws numbers
// without a seed, or goes by time or by the memory that it finds free.
//
//   requested    gapless                  native
//   in all       6.19 GiB                 6.19 GiB                  -> each answer stands
//   in all       21.40 GiB, peak 2.90     38.02 GiB, peak 4.51      -> not known, of both
//                out of memory, peak 7.2  38.02 GiB, peak 4.51      -> not known, of the second
//
//   with gapless alone, numbers were drawn   once more with gapless
//   peak 2.90                                peak 4.51              -> not known
//
// Kernels that torch.compile makes are tried out once, and kept in a folder: the first run may ask
// for more than those after it, and so does one on a machine that has none yet. Where that would
// still fit, the answers stand.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/fits_report.h"

namespace gapless::tools {

/// That nobody has seen what the row's program asks for where no compiled kernels are kept yet;
/// empty where none were found, and where it does not fit anyway.
std::string found_kernels_note(const nlohmann::json& row);

/// Judges the rows anew that fit, of processes that requested other memory in each run, at its peak
/// as well (by more than 0.5 %). With `estimates` each run is taken as it came, and that is noted.
void judge_by_one_another(std::vector<FitsRun>& runs, bool estimates);

/// The generators that the run's processes drew from, where another run may draw other numbers;
/// empty where they drew from none, and where the run is not known to fit.
std::string drew_from(const FitsRun& run);

/// What that leaves open where no other run is compared with it; empty where nothing was drawn.
std::string drawn_note(const FitsRun& run);

/// Judges the rows of a run that fit: nobody knows, for that reason.
void take_for_not_known(FitsRun& run, const std::string& reason);

/// Judges the rows of a run that fit by another run of the same, with the same allocator.
void judge_by_another_run(FitsRun& run, FitsRun again);

}  // namespace gapless::tools
