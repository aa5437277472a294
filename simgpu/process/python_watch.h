// The part of the watch over a process that is written in Python (simgpu/python/watch_torch.py).
//
//   torch asks how many GPUs there are -> cudaGetDeviceCount -> watch_python(): runs the file
//   the file, by ctypes                -> simgpu_watch(): what it wants to be told
//
// It comes in through the interpreter, not through PYTHONPATH: so it is there whatever a launcher
// does to the environment, with python -I, -E and -S, and beside any sitecustomize.
#pragma once

#include "simgpu/process/api.h"

namespace gapless::simgpu {

/// To be called without the lock, for Python runs: brings the watch into this process, once, where
/// a report is kept (SIMGPU_REPORT_DIR) and the calling thread holds Python's lock.
SIMGPU_API void watch_python();

/// Python's last words, where the process ends without letting it say them.
void tell_python_of_end();
/// The same before another process ends it: from a thread of its own, without the lock.
void tell_python_of_stop();
/// The host has so often read back from one place what nobody knows. Call it without the lock.
void tell_python_of_reads(unsigned long long count);
/// For the first time, something followed from what nobody knows (Estimate). Call it without the
/// lock.
void tell_python_of_estimate(int what);
/// A kernel's assertion does not hold. Told on stderr where Python is not there. Call it without
/// the lock.
void tell_python_of_assertion(const char* what);

}  // namespace gapless::simgpu

extern "C" {
/// Python's functions, each null to be told no more: `reads(count)` at the 1,000th, 10,000th, ...
/// time that the host reads back from one place what nobody knows, `estimated(what)` when something
/// followed from that, for the first time of each kind, `asserted(text)` when a kernel's assertion
/// does not hold (the address of a C string), `ended()` before the process ends by _exit or exec.
/// Call it with Python's lock.
SIMGPU_API void simgpu_watch(void* reads, void* estimated, void* asserted, void* ended);
/// What reports of this process are to be named, without their endings; empty where it used no GPU.
SIMGPU_API const char* simgpu_report_stem();
/// An optimizer has made a step.
SIMGPU_API void simgpu_report_step();
}
