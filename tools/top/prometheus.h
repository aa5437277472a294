// Figures of running processes in Prometheus' text format, for collectors that read files.
//
//   # HELP gapless_allocated_bytes Bytes in live blocks.
//   # TYPE gapless_allocated_bytes gauge
//   gapless_allocated_bytes{pid="4711",command="python train.py",gpu="0"} 14613000192
#pragma once

#include <string>
#include <vector>

#include "tools/top/process_state.h"

namespace gapless::tools {

/// Processes that did not answer are left out; gapless_up says so of each.
std::string prometheus_text(const std::vector<ProcessState>& processes);

}  // namespace gapless::tools
