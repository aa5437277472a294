// DeviceCode: what a module has for the device, as far as it is of use here: how large its kernels'
// parameters are, and the kernels themselves where it has them as PTX.
//
//   fat binary   sm_75 machine code  ->  parameters of count<int>: 8, 8, 4
//                compute_75 PTX      ->  count<int>, which can be run (simgpu/ptx)
//   cubin        sm_80 machine code  ->  parameters of triton_mm: 8, 8, 8
//     and the PTX it was made of     ->  triton_mm only reads through the first two
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "simgpu/process/kernel_writes.h"
#include "simgpu/ptx/module.h"

namespace gapless::simgpu {

class DeviceCode {
 public:
  /// Gives a variable of the module its place, and its first bytes.
  using Place = std::function<std::uint64_t(const ptx::Variable&)>;
  /// `image`: a file of machine code, PTX as text, or a fat binary; none of its kernels are known
  /// where it is something else. It is read when something is asked, with the lock.
  DeviceCode(const void* image, Place place) : image_(image), place_(std::move(place)) {}

  /// Reads it now: the image will not last.
  void read();
  /// What the machine code was made of: its kernels are not run, but what they only read is known.
  void made_of(const std::string& ptx);
  /// The image is gone.
  void drop() { image_ = nullptr; }

  /// The highest architecture up to `most` that it was built for; 0: not known.
  [[nodiscard]] int architecture(int most) const;
  const ParameterSizes& parameters(const std::string& kernel);
  /// Which of the kernel's parameters it only reads through, as its PTX or its name tells; empty:
  /// not known.
  const std::vector<bool>& only_read(const std::string& kernel);
  /// nullptr where there is no PTX of it.
  const ptx::Kernel* kernel(const std::string& name);
  /// nullptr where the PTX has no such variable.
  const ptx::Variable* variable(const std::string& name);

 private:
  void read_ptx(std::string text);

  const void* image_;
  Place place_;
  bool is_read_ = false;
  std::unordered_map<std::string, ParameterSizes> parameters_;
  std::map<std::string, std::vector<bool>, std::less<>> only_read_;
  std::unique_ptr<ptx::Module> module_;
};

/// What simgpu_next_module_is_made_of named, once.
SIMGPU_API std::string taken_ptx();

}  // namespace gapless::simgpu

extern "C" {
/// The PTX of the next module that the calling thread loads; nullptr: of none.
SIMGPU_API void simgpu_next_module_is_made_of(const char* ptx);
}
