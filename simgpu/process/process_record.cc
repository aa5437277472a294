#include "simgpu/process/process_record.h"

#include <fstream>
#include <iterator>

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
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat", std::ios::binary);
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = stat.rfind(')');  // the name may have any characters
  return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'Z';
}

}  // namespace gapless::simgpu
