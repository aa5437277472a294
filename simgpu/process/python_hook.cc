// Python's end, with threads of autograd's still at work.
//
// A thread that wants the interpreter while that is being finalized is ended by Python (up to 3.13)
// with pthread_exit, in the middle of C++ that may not be unwound: the whole process aborts
// ("terminate called without an active exception"). On a GPU the last synchronisation leaves such
// threads time to finish; here it takes none. So such a thread is left hanging, as Python 3.14
// does; the process ends without it.
#include <pthread.h>
#include <unistd.h>

#include "simgpu/process/api.h"
#include "simgpu/process/python.h"

extern "C" SIMGPU_API void pthread_exit(void* result) {
  while (gapless::simgpu::Python::is_finalizing()) pause();
  using Exit = void (*)(void*);
  static const auto next = reinterpret_cast<Exit>(dlsym(RTLD_NEXT, "pthread_exit"));
  next(result);
  __builtin_unreachable();
}
