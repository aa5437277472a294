// What `gapless inspect` says of one moment, for people: what is wrong first, then the figures.
#pragma once

#include <string>

#include "tools/inspect/moment_report.h"

namespace gapless::tools {

struct InspectText {
  std::size_t rows = 12;     // of groups
  std::size_t segments = 8;  // with the most free memory
  GroupBy by = GroupBy::site;
  bool colour = false;
  std::size_t columns = 0;
};

std::string inspect_text(const MomentReport& report, const InspectText& options);

}  // namespace gapless::tools
