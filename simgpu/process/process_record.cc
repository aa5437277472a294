#include "simgpu/process/process_record.h"

#include <fstream>

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

}  // namespace gapless::simgpu
