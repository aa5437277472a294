// What libnvtx_recorder.so tells: a tool that NVTX loads, which keeps what it is told of memory.
//
//   NVTX_INJECTION64_PATH=.../libnvtx_recorder.so   program -> NVTX -> the recorder's functions
//   dlopen(the same path)                           test    -> these functions
//
// It judges as well: what compute-sanitizer's guide asks of callers is a mistake where it is not
// so. Plain C, since tests in Python ask, too.
#pragma once

#include <cstddef>
#include <cstdint>

struct NvtxRange {
  std::uint64_t address;
  std::uint64_t bytes;
  char name[64];  // empty: none
};

extern "C" {
/// What there is now, by address: up to `room` of it are written, and all are counted.
std::size_t nvtx_recorder_heaps(NvtxRange* ranges, std::size_t room);
std::size_t nvtx_recorder_regions(NvtxRange* ranges, std::size_t room);
/// How often it was called in all, regions and heaps.
std::uint64_t nvtx_recorder_calls();
/// Sentences, one a line; empty where all was well.
const char* nvtx_recorder_mistakes();
/// Of so many heaps from now on one is refused; 0: none.
void nvtx_recorder_refuse(std::uint64_t one_of);
/// Forgets everything, for the next test of the process.
void nvtx_recorder_reset();
}
