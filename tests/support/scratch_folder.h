// A folder of one test's own, gone with it: tests run beside each other, and two that write one
// file by name spoil each other now and then.
//
//   ScratchFolder folder;
//   write_file(folder.file("profile.json"), ...);   // /tmp/gapless-test-8fQ2aX/profile.json
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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
  // A device such as /dev/null (minor 3) or /dev/full (7) of the test's own: what goes wrong with
  // it, in a test that root runs, is not the machine's. Empty where none can be had.
  std::string device(unsigned minor) const {
    constexpr unsigned kMemoryDevices = 1;
    const std::string name = file("device" + std::to_string(minor));
    if (mknod(name.c_str(), S_IFCHR | 0600, makedev(kMemoryDevices, minor)) != 0) return "";
    return access(name.c_str(), W_OK) == 0 && std::ofstream(name).is_open() ? name : "";
  }

 private:
  std::string path_;
};

}  // namespace gapless
