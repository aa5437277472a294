// What a driver call answers. The numbers are the CUDA driver's own (CUresult in cuda.h), so that a
// code seen in a log is the code NVIDIA's documentation explains.
#pragma once

#include <cstdint>

namespace gapless {

enum class DriverStatus : std::int32_t {
  ok = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  not_permitted = 800,
  not_supported = 801,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_isolation = 905,
  captured_event = 907,
  unknown = 999,
};

/// "CUDA_ERROR_OUT_OF_MEMORY" and so on; "CUDA_SUCCESS" for ok.
const char* to_string(DriverStatus status);

}  // namespace gapless
