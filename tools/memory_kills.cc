#include "tools/memory_kills.h"

#include <sstream>

#include "allocator/base/text_of_file.h"

namespace gapless::tools {

std::uint64_t memory_kills(const std::string& statistics) {
  std::istringstream lines(text_of_file(statistics));
  std::string name;
  for (std::uint64_t count = 0; lines >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

}  // namespace gapless::tools
