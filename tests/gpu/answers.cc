#include "tests/gpu/answers.h"

#include <stdexcept>

#include <dlfcn.h>
#include <fmt/format.h>

namespace gapless::testing {
namespace {

std::string kind_of(DriverStatus status) {
  switch (status) {
    case DriverStatus::ok:
      return "ok";
    case DriverStatus::out_of_memory:
      return "out_of_memory";
    case DriverStatus::not_ready:
      return "not_ready";
    default:
      return "error";
  }
}

void must(DriverStatus status, const char* what) {
  if (status != DriverStatus::ok) {
    throw std::runtime_error(
        fmt::format("{}, which the script begins with: {}", what, words(status)));
  }
}

}  // namespace

std::string words(DriverStatus status) {
  const std::string known = to_string(status);
  if (known != "CUDA_ERROR_UNKNOWN" || status == DriverStatus::unknown) return known;
  using GetName = int (*)(int, const char**);
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  static const auto get_name =
      reinterpret_cast<GetName>(library == nullptr ? nullptr : dlsym(library, "cuGetErrorName"));
  const char* name = nullptr;
  const auto number = static_cast<int>(status);
  if (get_name == nullptr || get_name(number, &name) != 0 || name == nullptr || name == known) {
    return fmt::format("CUresult {}", number);
  }
  return name;
}

DriverStatus Script::ask(DriverCall call, const std::string& with,
                         const std::function<DriverStatus()>& make) {
  Answer answer{.call = std::string(cuda_name_of(call)), .with = with, .said = {}, .kind = {}};
  tell_(answer);
  const DriverStatus status = make();
  answer.said = words(status);
  answer.kind = kind_of(status);
  tell_(answer);
  return status;
}

void Script::note(DriverCall call, const std::string& with, const std::string& fact) {
  tell_({.call = std::string(cuda_name_of(call)), .with = with, .said = fact, .kind = {}});
}

MemHandle Script::create(std::uint64_t pages) {
  MemHandle handle = 0;
  must(gpu.mem_create(0, pages * page, handle), "cuMemCreate");
  return handle;
}

DeviceAddress Script::reserve(std::uint64_t pages) {
  DeviceAddress address = 0;
  must(gpu.address_reserve(pages * page, 0, address), "cuMemAddressReserve");
  return address;
}

DeviceAddress Script::map(const std::vector<MemHandle>& handles) {
  const DeviceAddress address = reserve(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    must(gpu.mem_map(address + i * page, page, handles[i]), "cuMemMap");
  }
  must(gpu.mem_set_access(address, handles.size() * page, 0), "cuMemSetAccess");
  return address;
}

StreamHandle Script::stream() {
  StreamHandle made = 0;
  must(gpu.stream_create(0, made), "cuStreamCreate");
  return made;
}

EventHandle Script::event() {
  EventHandle made = 0;
  must(gpu.event_create(0, made), "cuEventCreate");
  return made;
}

std::uint64_t Script::free_bytes() {
  MemInfo info;
  must(gpu.mem_info(0, info), "cuMemGetInfo");
  return info.free_bytes;
}

std::uint32_t Script::word(DeviceAddress address) {
  std::uint32_t read = 0;
  must(gpu.copy_to_host(0, &read, address, 4, 0), "cuMemcpyDtoH");
  return read;
}

}  // namespace gapless::testing
