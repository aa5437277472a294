// What a request to gapless answers, below the C API.
#pragma once

#include <cstdint>

namespace gapless {

enum class Status : std::uint8_t {
  ok,
  /// The device or the limit has no room, and no free memory could be put together.
  out_of_memory,
  /// The caller's mistake: an unknown address, device or option.
  invalid_argument,
  /// The driver refused something other than memory.
  driver_error,
};

constexpr const char* to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::out_of_memory:
      return "out of memory";
    case Status::invalid_argument:
      return "invalid argument";
    case Status::driver_error:
      return "driver error";
  }
  return "unknown";
}

}  // namespace gapless
