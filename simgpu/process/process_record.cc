#include "simgpu/process/process_record.h"

#include <fstream>

#include "allocator/base/text_of_file.h"

namespace gapless::simgpu {

std::optional<ProcessRecord> read_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ProcessRecord record;
  file.read(reinterpret_cast<char*>(&record), sizeof record);
  if (!file || record.magic != ProcessRecord::kMagic) return {};
  record.unknown_workspaces[sizeof record.unknown_workspaces - 1] = '\0';
  record.not_simulated[sizeof record.not_simulated - 1] = '\0';
  return record;
}

bool is_running(int pid) {
  const std::string stat = text_of_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');  // the name may have any characters
  return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'Z';
}

}  // namespace gapless::simgpu
