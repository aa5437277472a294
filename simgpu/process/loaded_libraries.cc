#include "simgpu/process/loaded_libraries.h"

#include <link.h>

namespace gapless::simgpu {

std::string path_of_loaded(const std::string& name) {
  struct Search {
    std::string name;
    std::string found;
  } search{name, ""};
  const auto look = [](dl_phdr_info* library, std::size_t, void* data) {
    auto* wanted = static_cast<Search*>(data);
    const std::string path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
    if (path.compare(path.rfind('/') + 1, wanted->name.size(), wanted->name) != 0) return 0;
    wanted->found = path;
    return 1;
  };
  dl_iterate_phdr(look, &search);
  return search.found;
}

}  // namespace gapless::simgpu
