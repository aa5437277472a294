// Of a dry run's row: what followed from numbers that nobody knows, in words.
//
//   "estimates_from": {"kind": "size", "count": 3, "step": 0, "line": "train.py:12", ...}
//     -> peaks are estimates from here: ... 3 times, first in step 0 (train.py:12)
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace gapless::tools {

/// Where the row's process came by something that followed from numbers that nobody knows: a
/// sentence; empty where nothing is to be said of that.
std::string estimate_note(const nlohmann::json& row);
/// Where sizes may have followed from them, "yes" becomes "not known", with the note for a reason;
/// or "yes, by estimates", where those are accepted. Where all of them were as large as they can be
/// (--unknown most) and the host read nothing that it may steer by, "yes" becomes "yes, at the
/// most"; and there "no" becomes "not known". "by_estimates" says whether it fits but for that.
void judge_estimates(nlohmann::json& row, bool accepted);

/// Of a row with --unknown most: whether all sizes that followed from such numbers were at their
/// most. Some have none (repeat_interleave, bincount) and say nothing.
bool sizes_were_bounded(const nlohmann::json& row);

/// Whether the row's process ended with an error that such numbers, zeros here, may have brought
/// about: a division by them, an assertion.
bool may_have_died_of_zeros(const nlohmann::json& row);

/// Whether a run with other numbers took as much memory. Within 0.5 %: a program without a seed
/// meets its data in another order.
bool took_as_much(double bytes_before, double bytes_now);

/// Whether the row's reason says that already.
bool tells(const nlohmann::json& row, const std::string& note);

/// "once", "twice", "3 times"
std::string times(std::uint64_t count);
/// " (train.py:12, in transformers/trainer.py:2500)", of an object with "line" and "library_line".
std::string lines_text(const nlohmann::json& lines);

}  // namespace gapless::tools
