// libnvrtc.so.13: programs are compiled by the real one where it is installed, and their machine
// code is PTX, which is run (simgpu/ptx). Else every program compiles, to a kernel that does
// nothing.
#include <cstddef>
#include <cstring>
#include <set>
#include <string>

#include "simgpu/front/nvrtc/real.h"

#define NVRTC extern "C" __attribute__((visibility("default")))
// Calls the real function of the one that this stands in, where there is one.
#define FORWARD(FUNCTION, ...)                                                                    \
  if (int status = 0; gapless::simgpu::nvrtc::forward(status, &FUNCTION, #FUNCTION, __VA_ARGS__)) \
  return status

namespace {

constexpr int kSuccess = 0;

struct Program {
  std::set<std::string> names;
};

// A text that ends where cubin and PTX end for those who take them for one.
constexpr char kImage[] = "simulated";

int give(char* target) {
  std::memcpy(target, kImage, sizeof kImage);
  return kSuccess;
}
int give_size(std::size_t* bytes) {
  *bytes = sizeof kImage;
  return kSuccess;
}

}  // namespace

NVRTC int nvrtcVersion(int* major, int* minor) {
  FORWARD(nvrtcVersion, major, minor);
  *major = 13;
  *minor = 0;
  return kSuccess;
}
NVRTC int nvrtcGetNumSupportedArchs(int* count) {
  FORWARD(nvrtcGetNumSupportedArchs, count);
  *count = 6;
  return kSuccess;
}
NVRTC int nvrtcGetSupportedArchs(int* architectures) {
  FORWARD(nvrtcGetSupportedArchs, architectures);
  const int known[] = {75, 80, 86, 90, 100, 120};
  std::memcpy(architectures, known, sizeof known);
  return kSuccess;
}
NVRTC int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers,
                             const char* const* sources, const char* const* names) {
  FORWARD(nvrtcCreateProgram, program, source, name, headers, sources, names);
  *program = new Program;
  return kSuccess;
}
NVRTC int nvrtcDestroyProgram(void** program) {
  FORWARD(nvrtcDestroyProgram, program);
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kSuccess;
}
NVRTC int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  FORWARD(nvrtcCompileProgram, program, count, options);
  return kSuccess;
}
NVRTC int nvrtcAddNameExpression(void* program, const char* name) {
  FORWARD(nvrtcAddNameExpression, program, name);
  static_cast<Program*>(program)->names.insert(name);
  return kSuccess;
}
NVRTC int nvrtcGetLoweredName(void* program, const char* name, const char** lowered) {
  FORWARD(nvrtcGetLoweredName, program, name, lowered);
  *lowered = static_cast<Program*>(program)->names.insert(name).first->c_str();
  return kSuccess;
}
NVRTC int nvrtcGetPTXSize(void* program, std::size_t* bytes) {
  FORWARD(nvrtcGetPTXSize, program, bytes);
  return give_size(bytes);
}
NVRTC int nvrtcGetPTX(void* program, char* target) {
  FORWARD(nvrtcGetPTX, program, target);
  return give(target);
}
// The same: who loads it may as well load PTX.
NVRTC int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  return nvrtcGetPTXSize(program, bytes);
}
NVRTC int nvrtcGetCUBIN(void* program, char* target) { return nvrtcGetPTX(program, target); }
NVRTC int nvrtcGetProgramLogSize(void* program, std::size_t* bytes) {
  FORWARD(nvrtcGetProgramLogSize, program, bytes);
  *bytes = 1;
  return kSuccess;
}
NVRTC int nvrtcGetProgramLog(void* program, char* target) {
  FORWARD(nvrtcGetProgramLog, program, target);
  *target = '\0';
  return kSuccess;
}
NVRTC const char* nvrtcGetErrorString(int status) {
  using Function = const char* (*)(int);
  if (void* const function = gapless::simgpu::nvrtc::real_function("nvrtcGetErrorString")) {
    return reinterpret_cast<Function>(function)(status);
  }
  return status == kSuccess ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INTERNAL_ERROR";
}
