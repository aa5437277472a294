// What a file tells, device by device, at the moment that was asked for on the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/inspect/moment_report.h"

namespace gapless::tools {

/// "peak", "end", "oom" or the number of an event; empty: the best moment.
std::optional<MomentChoice> read_moment(const std::string& text);
/// For an option that takes one.
CLI::Validator moment_check();

/// Devices with events first, then one report of all that have none. Throws InputError; also where
/// the moment asked for is not in the file.
std::vector<MomentReport> reports_of_file(const std::string& path, const MomentOptions& options);

}  // namespace gapless::tools
