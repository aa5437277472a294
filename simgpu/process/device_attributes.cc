#include "simgpu/process/device_attributes.h"

namespace gapless::simgpu {

// NOLINTBEGIN(bugprone-branch-clone): a table by number
int device_attribute(const GpuProfile& gpu, int attribute) {
  switch (attribute) {
    case 1:
      return 1024;  // threads per block
    case 2:
    case 3:
      return 1024;  // block x, y
    case 4:
      return 64;  // block z
    case 5:
      return 2147483647;  // grid x
    case 6:
    case 7:
      return 65535;  // grid y, z
    case 8:
      return 48 << 10;  // shared memory per block
    case 9:
      return 64 << 10;  // constant memory
    case 10:
      return 32;  // warp
    case 11:
      return 2147483647;  // pitch
    case 12:
      return 65536;  // registers per block
    case 13:
      return 1410000;  // clock, kHz
    case 14:
      return 512;  // texture alignment
    case 15:
      return 1;  // overlap
    case 16:
      return gpu.multiprocessors;
    case 19:
      return 1;  // can map host memory
    case 31:
      return 1;  // concurrent kernels
    case 36:
      return 1593000;  // memory clock, kHz
    case 37:
      return 5120;  // bus width
    case 38:
      return static_cast<int>(gpu.l2_bytes);
    case 39:
      return gpu.threads_per_multiprocessor;
    case 40:
      return 3;  // copy engines
    case 41:
      return 1;  // unified addressing
    case 75:
      return gpu.major;
    case 76:
      return gpu.minor;
    case 78:
      return 1;  // stream priorities
    case 79:
    case 80:
      return 1;  // L1 caches
    case 81:
      return static_cast<int>(gpu.shared_per_multiprocessor_bytes);
    case 82:
      return 65536;  // registers per multiprocessor
    case 83:
      return 1;  // managed memory
    case 86:
      return 0;  // host native atomics
    case 89:
      return 1;  // concurrent managed access
    case 90:
      return 1;  // compute preemption
    case 91:
      return 1;  // host pointers for registered memory
    case 95:
      return 1;  // cooperative launch
    case 97:
      return static_cast<int>(gpu.shared_per_block_optin_bytes);
    case 99:
      return 1;  // host register
    case 102:
      return 1;  // virtual memory management
    case 103:
      return 1;  // POSIX file descriptor handles
    case 106:
      return 32;  // blocks per multiprocessor
    case 111:
      return 1024;  // reserved shared memory per block
    case 115:
      return 1;  // memory pools
    case 119:
      return 0x1;  // pool handle types: POSIX
    case 120:
      return gpu.major >= 9;  // cluster launch
    case 132:
      return 0;  // multicast
    default:
      return 0;
  }
}
// NOLINTEND(bugprone-branch-clone)

}  // namespace gapless::simgpu
