// A folder of one test's own, gone with it: tests run beside each other, and two that write one
// file by name spoil each other now and then.
//
//   ScratchFolder folder;
//   write_file(folder.file("profile.json"), ...);   // /tmp/gapless-test-8fQ2aX/profile.json
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace gapless {

class ScratchFolder {
 public:
  ScratchFolder() : path_(::testing::TempDir() + "gapless-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
    path_ += "/";
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }  // ends with a slash
  std::string file(const std::string& name) const { return path_ + name; }

 private:
  std::string path_;
};

}  // namespace gapless
