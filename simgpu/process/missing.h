// Functions that the libraries export but that are not simulated.
//
//   SIMGPU_STRICT=1     stop at the first call of one
//   SIMGPU_LOG=FILE     where to say which were called; stderr where not set
#pragma once

#include "simgpu/process/api.h"

extern "C" {

/// Called by every generated function: says once which one was called, and returns `status`, its
/// library's "not supported". With SIMGPU_STRICT=1 the process ends there.
SIMGPU_API int simgpu_missing(const char* library, const char* function, int status);
}
