// The part of the CUDA driver's binary interface that gapless calls, written out so that the core
// builds with no CUDA toolkit. Source: the CUDA Driver API reference (cuda.h of CUDA 12 and 13).
// Where a toolkit is installed, a unit test compares every size, offset and value with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless::cuda_abi {

using Result = int;
using Device = int;
using DevicePtr = std::uint64_t;
using AllocationHandle = std::uint64_t;
using Context = void*;
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphNode = void*;

struct MemLocation {
  int type;
  int id;
};
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kLocationTypeHostNuma = 3;

struct MemAllocationProp {
  int type;
  int requested_handle_types;
  MemLocation location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    std::uint16_t usage;
    unsigned char reserved[4];
  } alloc_flags;
};
inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kHandleTypeNone = 0;
inline constexpr int kHandleTypeFd = 1;
inline constexpr int kHandleTypeFabric = 8;
inline constexpr int kGranularityMinimum = 0;

struct MemAccessDesc {
  MemLocation location;
  int flags;
};
inline constexpr int kAccessReadWrite = 3;

inline constexpr int kAttributeComputeCapabilityMajor = 75;
inline constexpr int kAttributeComputeCapabilityMinor = 76;
inline constexpr int kAttributeVirtualMemoryManagementSupported = 102;
inline constexpr int kAttributeFdSupported = 103;
inline constexpr int kAttributeRdmaWithVmmSupported = 110;
inline constexpr int kAttributeFabricSupported = 128;
inline constexpr int kAttributeHostNumaId = 134;
inline constexpr int kAttributeHostNumaVmmSupported = 141;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;

}  // namespace gapless::cuda_abi
