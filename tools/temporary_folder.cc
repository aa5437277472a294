#include "tools/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "allocator/base/error.h"

namespace gapless::tools {

namespace fs = std::filesystem;

namespace {

fs::path temporary_parent() {
  const char* const chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
}

}  // namespace

TemporaryFolder::TemporaryFolder() : TemporaryFolder(temporary_parent()) {}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
  std::string pattern = (fs::absolute(parent) / "gapless-dryrun-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    const std::string cause = std::strerror(errno);
    throw InputError(parent.string() + ": no temporary folder can be made there: " + cause +
                     " (TMPDIR says where)");
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace gapless::tools
