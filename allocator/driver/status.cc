#include "allocator/driver/status.h"

namespace gapless {

const char* to_string(DriverStatus status) {
  switch (status) {
    case DriverStatus::ok:
      return "CUDA_SUCCESS";
    case DriverStatus::invalid_value:
      return "CUDA_ERROR_INVALID_VALUE";
    case DriverStatus::out_of_memory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case DriverStatus::not_initialized:
      return "CUDA_ERROR_NOT_INITIALIZED";
    case DriverStatus::deinitialized:
      return "CUDA_ERROR_DEINITIALIZED";
    case DriverStatus::no_device:
      return "CUDA_ERROR_NO_DEVICE";
    case DriverStatus::invalid_device:
      return "CUDA_ERROR_INVALID_DEVICE";
    case DriverStatus::invalid_context:
      return "CUDA_ERROR_INVALID_CONTEXT";
    case DriverStatus::invalid_handle:
      return "CUDA_ERROR_INVALID_HANDLE";
    case DriverStatus::not_found:
      return "CUDA_ERROR_NOT_FOUND";
    case DriverStatus::not_ready:
      return "CUDA_ERROR_NOT_READY";
    case DriverStatus::illegal_address:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case DriverStatus::not_permitted:
      return "CUDA_ERROR_NOT_PERMITTED";
    case DriverStatus::not_supported:
      return "CUDA_ERROR_NOT_SUPPORTED";
    case DriverStatus::capture_unsupported:
      return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case DriverStatus::capture_invalidated:
      return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case DriverStatus::capture_isolation:
      return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    case DriverStatus::captured_event:
      return "CUDA_ERROR_CAPTURED_EVENT";
    case DriverStatus::unknown:
      break;
  }
  return "CUDA_ERROR_UNKNOWN";
}

}  // namespace gapless
