// What PTX cannot be run here, and where: "line 214: wmma.load.a.sync.aligned... is not known".
#pragma once

#include <stdexcept>
#include <string>

namespace gapless::simgpu::ptx {

class PtxError : public std::runtime_error {
 public:
  PtxError(unsigned line, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + ": " + what), line_(line) {}
  [[nodiscard]] unsigned line() const { return line_; }

 private:
  unsigned line_;
};

}  // namespace gapless::simgpu::ptx
