// How a process ends, as far as it can say so itself: by exit (which is returning from main, too),
// by _exit, by abort, or with another program in its place. Only a signal ends it without a word.
//
// The functions here stand in front of the C library's (the library is preloaded). They are called
// in every process of a command, and in children between fork and exec: where no GPU was used they
// only pass on.
#include "simgpu/process/end_hook.h"

#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simgpu/process/api.h"
#include "simgpu/process/kept_variables.h"
#include "simgpu/process/loaded_libraries.h"
#include "simgpu/process/no_gpu.h"
#include "simgpu/process/python_watch.h"
#include "simgpu/process/recorder.h"

namespace gapless::simgpu {
namespace {

using End = ProcessRecord::End;

// The recorder, in a process that has used a GPU.
Recorder* recorder() {
  Recorder* const any = Recorder::if_any();
  return any != nullptr && any->kept() ? any : nullptr;
}

[[noreturn]] void leave(int status) {
  if (Recorder* const to = recorder(); to != nullptr) {
    tell_python_of_end();
    to->end(End::exited, status);
  }
  for (;;) syscall(SYS_exit_group, status);
}

// Returns only where there is no such program: what was said of the end is taken back.
int replace(const char* path, char* const* words, char* const* variables) {
  Recorder* const to = recorder();
  if (to != nullptr) {
    tell_python_of_end();
    to->end(End::replaced, 0);
  }
  const KeptVariables all(variables);
  const auto failed = static_cast<int>(syscall(SYS_execve, path, words, all.get()));
  if (to != nullptr) to->end(End::none, 0);
  return failed;
}

// A torch that was built without CUDA never calls the simulated GPU; the command says which it was.
[[gnu::destructor]] void note_torch_without_cuda() {
  const std::string torch = path_of_loaded("libtorch_cpu.so");
  if (torch.empty() || !path_of_loaded("libc10_cuda.so").empty()) return;
  note_why_no_gpu("its torch was built without CUDA (" + torch + "): install the CUDA build");
}

}  // namespace

void record_exit() {
  (void)on_exit(
      [](int status, void*) {
        if (Recorder* const to = recorder(); to != nullptr) to->end(End::exited, status);
      },
      nullptr);
}

}  // namespace gapless::simgpu

extern "C" {

SIMGPU_API void _exit(int status) { gapless::simgpu::leave(status); }
SIMGPU_API void _Exit(int status) noexcept { gapless::simgpu::leave(status); }

SIMGPU_API void abort() noexcept {
  if (auto* const to = gapless::simgpu::recorder(); to != nullptr) {
    to->end(gapless::simgpu::ProcessRecord::End::aborted, 0);
  }
  using Abort = void (*)();
  if (const auto next = reinterpret_cast<Abort>(dlsym(RTLD_NEXT, "abort"))) next();
  __builtin_trap();
}

SIMGPU_API int execve(const char* path, char* const* words, char* const* variables) noexcept {
  return gapless::simgpu::replace(path, words, variables);
}
SIMGPU_API int execv(const char* path, char* const* words) noexcept {
  return gapless::simgpu::replace(path, words, environ);
}
// As env calls it, which may have been told to empty the environment.
SIMGPU_API int execvp(const char* file, char* const* words) noexcept {
  using Execvpe = int (*)(const char*, char* const*, char* const*);
  static const auto next = reinterpret_cast<Execvpe>(dlsym(RTLD_NEXT, "execvpe"));
  const gapless::simgpu::KeptVariables all(environ);
  return next(file, words, all.get());
}

}  // extern "C"
