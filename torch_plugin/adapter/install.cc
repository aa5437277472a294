#include "torch_plugin/adapter/install.h"

#include <cstdio>
#include <mutex>

#include "allocator/base/error.h"
#include "simgpu/torch/torch_version.h"
#include "torch_plugin/adapter/call_sites.h"
#include "torch_plugin/adapter/settings.h"
#include "torch_plugin/adapter/torch_allocator.h"

namespace gapless::torch_plugin {
namespace {

struct Answer {
  gapless_torch_result result;
  std::string message;
};

Answer install() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (installed() != nullptr) return {GAPLESS_TORCH_WAS_INSTALLED, "gapless is installed already"};
  // Before anything of torch's is touched: its classes differ between versions.
  const std::string version = simgpu::loaded_torch_version();
  if (version != GAPLESS_TORCH_VERSION) {
    return {GAPLESS_TORCH_REFUSED,
            "this adapter was built for torch " GAPLESS_TORCH_VERSION ", and torch " +
                (version.empty() ? "is not loaded, or too old to tell its version"
                                 : version + " is loaded")};
  }
  settings::parse();
  CUDAAllocator* const previous = torch_cuda::get();
  const bool late = previous->initialized();
  auto* const allocator = new TorchAllocator(options_from_environment(), previous);
  if (late) {
    // Everything that may fail comes before anyone sees the new allocator.
    try {
      allocator->find_begun_pools();
      allocator->init(c10::cuda::device_count());
    } catch (...) {
      delete allocator;
      throw;
    }
  }
  Answer answer{GAPLESS_TORCH_INSTALLED, {}};
  if (const std::string name = previous->name(); name != "native") {
    answer.message = "gapless takes the place of the allocator \"" + name + "\"";
  }
  if (const std::string keys =
          settings::without_effect(c10::CachingAllocator::getAllocatorSettings());
      !keys.empty()) {
    answer.message += (answer.message.empty() ? "" : "; ") + keys +
                      " in PyTorch's allocator settings: no effect with gapless";
  }
  installed() = allocator;
  torch_cuda::allocator.store(allocator);
  constexpr std::uint8_t kPriority = 100;  // above the native one's
  c10::SetAllocator(c10::kCUDA, allocator, kPriority);
  // What the other one has cached would be lost to the job.
  if (late) previous->emptyCache();
  return answer;
}

}  // namespace
}  // namespace gapless::torch_plugin

gapless_torch_result gapless_torch_install(char* message, size_t room) {
  using gapless::torch_plugin::Answer;
  Answer answer{GAPLESS_TORCH_REFUSED, "an unknown error"};
  try {
    answer = gapless::torch_plugin::install();
  } catch (const gapless::InputError& error) {
    answer = {GAPLESS_TORCH_WRONG_OPTIONS, error.what()};
  } catch (const c10::Error& error) {
    answer.message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    answer.message = error.what();
  } catch (...) {  // nothing may cross this boundary
  }
  if (message != nullptr && room != 0) {
    std::snprintf(message, room, "%s", answer.message.c_str());
  }
  return answer.result;
}

void gapless_torch_name_call_sites(gapless_torch_call_sites function) {
  gapless::torch_plugin::set_call_sites_namer(function);
}

void gapless_torch_tell_call_site(gapless_torch_call_site function) {
  gapless::torch_plugin::set_call_site_teller(function);
}

void gapless_torch_set_package(const char* folder) {
  gapless::torch_plugin::set_package(folder == nullptr ? "" : folder);
}

const char* gapless_torch_version(void) { return GAPLESS_TORCH_VERSION; }

gapless_allocator* gapless_torch_allocator(void) {
  auto* const allocator = gapless::torch_plugin::installed();
  return allocator == nullptr ? nullptr : allocator->handle();
}
