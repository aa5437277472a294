#include "allocator/trace/load.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "allocator/base/error.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/pickle.h"

namespace gapless {

std::string read_file(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw InputError(path + ": is a folder");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw InputError(path + ": " + std::strerror(errno));
  std::string bytes(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw InputError(path + ": could not be read to its end");
  }
  return bytes;
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string part = path + ".part";
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    if (!file) throw InputError(path + ": " + std::strerror(errno));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      std::remove(part.c_str());
      throw InputError(path + ": could not be written (is the disk full?)");
    }
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string cause = std::strerror(errno);
    std::remove(part.c_str());
    throw InputError(path + ": " + cause);
  }
}

Snapshot load_snapshot(const std::string& path) {
  std::string bytes = read_file(path);
  if (!looks_like_pickle(bytes)) {
    throw InputError(path, "byte 0",
                     "neither a gapless file nor a PyTorch memory snapshot (pickle, protocol 2 "
                     "to 5)");
  }
  const PickleDocument document(std::move(bytes), path);
  Snapshot snapshot = read_snapshot(document);
  for (const Trace& trace : snapshot.traces) check_trace(trace);
  return snapshot;
}

std::vector<Trace> load_traces(const std::string& path) {
  std::vector<Trace> traces;
  if (std::string bytes = read_file(path); looks_like_compact(bytes)) {
    traces = read_compact(bytes, path);
  } else {
    traces = load_snapshot(path).traces;
  }
  if (traces.empty()) {
    throw InputError(path +
                     ": holds no events; record them with "
                     "torch.cuda.memory._record_memory_history() (gapless inspect shows what is "
                     "there)");
  }
  return traces;
}

}  // namespace gapless
