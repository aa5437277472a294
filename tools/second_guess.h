// Whether an answer hangs on numbers that nobody knows. Where the host read integers or flags of
// that kind (a count, a length, whether to stop) nobody can see whether it went by them; where the
// sizes of tensors followed from some, they may have been larger. So the program is run once more,
// with other numbers in their place:
//
//   read    with zeros  3.91 GiB, fits   with noise  3.91 GiB, fits   -> yes, and a note
//                                                    4.80 GiB         -> not known
//                                                    out of memory    -> not known
//                                                    ended by an error -> yes, and a note
//   read    with zeros  does not fit     with noise  fits             -> not known
//   chose   (val.item() < best: false)   with true   4.80 GiB         -> not known
//                                                    2.10 GiB         -> yes, and a note
//   sizes   with zeros  3.91 GiB, fits   with the most there can be
//                                        4.01 GiB, nothing read       -> yes, at the most
//                                        3.91 GiB                     -> yes, and a note
//                                        4.01 GiB, something was read -> not known
//
// A program that such numbers end (1 / 0, assert std > 0) is run with noise instead, and, where it
// read some, with other noise as well.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/fits_report.h"
#include "tools/simulated_run.h"

namespace gapless::tools {

/// The first run with such numbers (--unknown) whose answer is to be tried with others; null where
/// none is.
const FitsRun* wants_second_guess(const std::vector<FitsRun>& runs, const SimulatedGpus& gpus,
                                  std::string_view unknown = "zeros");

/// Whether a run would fit, but for sizes that followed from numbers that nobody knows.
bool fits_but_for_sizes(const FitsRun& run, const SimulatedGpus& gpus);

/// Whether zeros may have ended a process of the run (estimates_from.h).
bool may_have_died_of_zeros(const FitsRun& run, const SimulatedGpus& gpus);

/// Notes of the rows of `again`, which noise brought to its end, what zeros did to `first`.
void note_what_zeros_did(FitsRun& again, const FitsRun& first);

/// What the run chose at each place by numbers that nobody knows, for SimulatedGpus::choices; empty
/// where it did not.
std::string choices_of(const FitsRun& run);

/// The same for each run in which they are made the other way: all of them, then each alone where
/// there are several, six at most. One empty text where there are none.
std::vector<std::string> other_ways(const FitsRun& first);

/// How long the second run may take: one that goes by such numbers may never end.
double second_guess_limit_seconds(const FitsRun& first);

/// Judges the rows of `runs` anew that fit, by what their process did in `again`, which had the
/// allocator of `first`, one of them. Adds "other_numbers" to each: what it did there.
void judge_by_second_guess(std::vector<FitsRun>& runs, const FitsRun& first, const FitsRun& again);

/// The first run that does not fit, with zeros, and read such numbers or took sizes of them before;
/// null where none is.
const FitsRun* wants_second_guess_of_no(const std::vector<FitsRun>& runs,
                                        const SimulatedGpus& gpus);

/// Whether sizes followed from such numbers in a run that does not fit.
bool went_by_sizes(const FitsRun& run);

/// Judges the rows of `runs` anew that do not fit, where their process does in `again`.
void judge_no_by_second_guess(std::vector<FitsRun>& runs, const FitsRun& again);

/// The same of rows that would fit but for sizes, by a run with the most there can be that is not
/// known to fit.
void judge_by_most(std::vector<FitsRun>& runs, const FitsRun& first, const FitsRun& again);

}  // namespace gapless::tools
