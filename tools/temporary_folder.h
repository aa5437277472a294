// A folder of the command's own, gone with it.
#pragma once

#include <filesystem>

namespace gapless::tools {

class TemporaryFolder {
 public:
  /// In TMPDIR, or /tmp. Throws InputError where it cannot be made there.
  TemporaryFolder();
  /// There. Throws as well.
  explicit TemporaryFolder(const std::filesystem::path& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// From the root, for programs may change their folder.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace gapless::tools
