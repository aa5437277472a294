// A dry run's results: one row for each process and GPU, as JSON has them and as people read them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/process_reports.h"

namespace gapless::tools {

/// `allocator` is what was asked for; rows name what served them: "cudaMalloc" where a program has
/// no PyTorch.
nlohmann::json rows_of(const std::vector<ProcessReport>& reports, const std::string& allocator,
                       int exit_status);

/// The table, and under it a sentence for each process that is not plainly "yes".
std::string text_of_rows(const nlohmann::json& rows, bool colour);

/// What makes one wary of their peaks: sentences.
std::vector<std::string> notes_of(const nlohmann::json& rows);

/// That it was stopped before its end, as asked (--steps); empty where not.
std::string stopped_note(const nlohmann::json& row);

/// Where the longest items were asked for and there was no data to look for them in, that is added
/// to what is said of the data.
void note_worst_case(nlohmann::json& row);

}  // namespace gapless::tools
