#include "simgpu/preload_path.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/error.h"

namespace gapless::simgpu {
namespace {

namespace fs = std::filesystem;

// The loader splits at spaces and colons, and puts other text in the place of $ORIGIN and its like.
bool can_be_preloaded(const fs::path& path) {
  return path.native().find_first_of(" :$") == std::string::npos;
}

// FNV-1a: one link for each folder, the same whenever it is asked for.
std::string name_of(const fs::path& folder) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : folder.native()) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

// A folder that nobody else can put anything into; made where it is not there.
bool is_private(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat facts {};
  return lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Where links may lie, the best first.
std::vector<fs::path> places() {
  std::vector<fs::path> found;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') {
    found.emplace_back(fs::path(cache) / "gapless");
  } else if (home != nullptr && *home != '\0') {
    found.emplace_back(fs::path(home) / ".cache" / "gapless");
  }
  std::error_code no_folder;
  if (const fs::path temporary = fs::temp_directory_path(no_folder); !no_folder) {
    found.emplace_back(temporary / ("gapless-" + std::to_string(geteuid())));
  }
  return found;
}

bool make_link(const fs::path& link, const fs::path& folder) {
  if (symlink(folder.c_str(), link.c_str()) != 0 && errno != EEXIST) return false;
  std::error_code error;
  return fs::read_symlink(link, error) == folder;
}

}  // namespace

fs::path preloadable(const fs::path& folder) {
  std::error_code error;
  fs::path whole = fs::canonical(folder, error);
  if (error) throw InputError(folder.string() + ": " + error.message());
  if (can_be_preloaded(whole)) return whole;
  std::string tried;
  for (const fs::path& place : places()) {
    const fs::path links = place / "links";
    tried += (tried.empty() ? "" : ", ") + links.string();
    if (!links.is_absolute() || !can_be_preloaded(links)) continue;
    fs::create_directories(place.parent_path(), error);
    if (!is_private(place) || !is_private(links)) continue;
    if (fs::path link = links / name_of(whole); make_link(link, whole)) return link;
  }
  throw InputError(
      whole.string() +
      ": LD_PRELOAD cannot name a folder with a space, a colon or a $ in its path, and "
      "there is no place for a link to it (tried " +
      tried + "): move it, or set TMPDIR to a folder of your own");
}

}  // namespace gapless::simgpu
