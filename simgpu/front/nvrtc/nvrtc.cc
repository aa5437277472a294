// libnvrtc.so.13: every program compiles, to a kernel that does nothing.
#include <cstddef>
#include <cstring>
#include <set>
#include <string>

#define NVRTC extern "C" __attribute__((visibility("default")))

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
  *major = 13;
  *minor = 0;
  return kSuccess;
}
NVRTC int nvrtcGetNumSupportedArchs(int* count) {
  *count = 6;
  return kSuccess;
}
NVRTC int nvrtcGetSupportedArchs(int* architectures) {
  const int known[] = {75, 80, 86, 90, 100, 120};
  std::memcpy(architectures, known, sizeof known);
  return kSuccess;
}
NVRTC int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*,
                             const char* const*) {
  *program = new Program;
  return kSuccess;
}
NVRTC int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kSuccess;
}
NVRTC int nvrtcCompileProgram(void*, int, const char* const*) { return kSuccess; }
NVRTC int nvrtcAddNameExpression(void* program, const char* name) {
  static_cast<Program*>(program)->names.insert(name);
  return kSuccess;
}
NVRTC int nvrtcGetLoweredName(void* program, const char* name, const char** lowered) {
  *lowered = static_cast<Program*>(program)->names.insert(name).first->c_str();
  return kSuccess;
}
NVRTC int nvrtcGetPTXSize(void*, std::size_t* bytes) { return give_size(bytes); }
NVRTC int nvrtcGetPTX(void*, char* target) { return give(target); }
NVRTC int nvrtcGetCUBINSize(void*, std::size_t* bytes) { return give_size(bytes); }
NVRTC int nvrtcGetCUBIN(void*, char* target) { return give(target); }
NVRTC int nvrtcGetProgramLogSize(void*, std::size_t* bytes) {
  *bytes = 1;
  return kSuccess;
}
NVRTC int nvrtcGetProgramLog(void*, char* target) {
  *target = '\0';
  return kSuccess;
}
NVRTC const char* nvrtcGetErrorString(int status) {
  return status == kSuccess ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INTERNAL_ERROR";
}
