// What `fits` says to people: verdicts, what held the memory, and by which lines it was asked for.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/fits_report.h"

namespace gapless::tools {

/// In so many columns.
std::string text_of_fits(const std::vector<FitsRun>& runs, bool colour, std::size_t columns);

/// Parts of it: the table of verdicts with their reasons; and what stands below what held the
/// memory (the host's, the data, what makes one wary, the program's last words), or nothing.
std::string text_of_verdicts(const std::vector<FitsRun>& runs, bool colour, std::size_t columns);
std::string text_of_remarks(const std::vector<FitsRun>& runs, std::size_t columns);

/// "rank 0", "14872"; "-" where a run has no process.
std::string process_name(const nlohmann::json& row);

/// "logits and loss": as people read a holder's name in JSON.
inline std::string holder_text(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace gapless::tools
