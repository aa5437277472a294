#include "simgpu/process/device_code.h"

#include <cstring>
#include <utility>

#include "simgpu/process/fat_binary.h"
#include "simgpu/process/kernel_parameters.h"
#include "simgpu/ptx/error.h"
#include "simgpu/ptx/only_read.h"

namespace gapless::simgpu {
namespace {

// As compilers write it: comments first, or .version.
bool is_ptx(const void* image) {
  const auto* text = static_cast<const char*>(image);
  while (*text == ' ' || *text == '\n' || *text == '\r' || *text == '\t') ++text;
  return std::strncmp(text, "//", 2) == 0 || std::strncmp(text, ".version", 8) == 0;
}

std::string& next_ptx() {
  static thread_local std::string ptx;
  return ptx;
}

}  // namespace

std::string taken_ptx() { return std::exchange(next_ptx(), {}); }

void DeviceCode::made_of(const std::string& ptx) { only_read_ = ptx::only_read(ptx); }

void DeviceCode::read() {
  if (std::exchange(is_read_, true) || image_ == nullptr) return;
  if (is_ptx(image_)) return read_ptx(static_cast<const char*>(image_));
  parameters_ = kernel_parameters(image_);
  // A kernel's parameters are the same for every architecture; some images have a few kernels only.
  for (const DeviceImage& image : device_images(image_, DeviceImage::Kind::machine_code)) {
    parameters_.merge(kernel_parameters(image.bytes.data()));
  }
  for (DeviceImage& image : device_images(image_, DeviceImage::Kind::ptx)) {
    if (module_ == nullptr) read_ptx(std::move(image.bytes));
  }
}

void DeviceCode::read_ptx(std::string text) {
  auto module = std::make_unique<ptx::Module>();
  try {
    ptx::parse(std::move(text), *module, place_);
  } catch (const ptx::PtxError&) {
    return;  // as if there were none
  }
  module_ = std::move(module);
  for (const auto& [name, kernel] : module_->kernels) {
    ParameterSizes& sizes = parameters_[name];
    if (!sizes.empty()) continue;
    for (const ptx::Parameter& parameter : kernel.parameters) sizes.push_back(parameter.bytes);
  }
}

int DeviceCode::architecture(int most) const { return highest_architecture(image_, most); }

const ParameterSizes& DeviceCode::parameters(const std::string& kernel) {
  read();
  return parameters_[kernel];
}

const std::vector<bool>& DeviceCode::only_read(const std::string& kernel) {
  const auto [found, is_new] = only_read_.try_emplace(kernel);
  if (is_new) found->second = only_read_as_named(kernel);
  return found->second;
}

const ptx::Kernel* DeviceCode::kernel(const std::string& name) {
  read();
  if (module_ == nullptr) return nullptr;
  const auto found = module_->kernels.find(name);
  return found == module_->kernels.end() ? nullptr : &found->second;
}

const ptx::Variable* DeviceCode::variable(const std::string& name) {
  read();
  if (module_ == nullptr) return nullptr;
  const auto found = module_->variables.find(name);
  return found == module_->variables.end() ? nullptr : &found->second;
}

}  // namespace gapless::simgpu

void simgpu_next_module_is_made_of(const char* ptx) {
  gapless::simgpu::next_ptx() = ptx == nullptr ? "" : ptx;
}
