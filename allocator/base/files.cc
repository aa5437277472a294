#include "allocator/base/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "allocator/base/error.h"

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

}  // namespace gapless
