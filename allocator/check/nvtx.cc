#include "allocator/check/nvtx.h"

#if GAPLESS_NVTX
#include <nvtx3/nvToolsExtMem.h>
#endif

namespace gapless::nvtx {

#if GAPLESS_NVTX
namespace {

// Of the library, not of a device: it lives as long as the process.
nvtxDomainHandle_t domain() {
  static nvtxDomainHandle_t const made = nvtxDomainCreateA("gapless");
  return made;
}

const void* pointer_to(DeviceAddress address) { return reinterpret_cast<const void*>(address); }

}  // namespace

bool is_built() { return true; }

Heap register_heap(DeviceAddress address, std::uint64_t bytes) {
  nvtxMemVirtualRangeDesc_t range{};
  range.size = bytes;
  range.ptr = pointer_to(address);
  nvtxMemHeapDesc_t heap{};
  heap.extCompatID = NVTX_EXT_COMPATID_MEM;
  heap.structSize = sizeof heap;
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
  heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof range;
  heap.typeSpecificDesc = &range;
  nvtxMemHeapHandle_t const handle = nvtxMemHeapRegister(domain(), &heap);
  // Some versions of the header answer -1 where there is no tool, others nullptr; their name for it
  // does not compile as C++.
  return reinterpret_cast<std::intptr_t>(handle) == -1 ? nullptr : handle;
}

void unregister_heap(Heap heap) {
  nvtxMemHeapUnregister(domain(), static_cast<nvtxMemHeapHandle_t>(heap));
}

void register_region(Heap heap, DeviceAddress address, std::uint64_t bytes, const char* name) {
  nvtxMemVirtualRangeDesc_t range{};
  range.size = bytes;
  range.ptr = pointer_to(address);
  nvtxMemRegionsRegisterBatch_t regions{};
  regions.extCompatID = NVTX_EXT_COMPATID_MEM;
  regions.structSize = sizeof regions;
  regions.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  regions.heap = static_cast<nvtxMemHeapHandle_t>(heap);
  regions.regionCount = 1;
  regions.regionDescElementSize = sizeof range;
  regions.regionDescElements = &range;
  nvtxMemRegionsRegister(domain(), &regions);
  if (name == nullptr) return;
  nvtxMemRegionNameDesc_t label{};
  label.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  label.nameType = NVTX_MESSAGE_TYPE_ASCII;
  label.region.pointer = range.ptr;
  label.name.ascii = name;
  nvtxMemRegionsNameBatch_t names{};
  names.extCompatID = NVTX_EXT_COMPATID_MEM;
  names.structSize = sizeof names;
  names.regionCount = 1;
  names.regionElementSize = sizeof label;
  names.regionElements = &label;
  nvtxMemRegionsName(domain(), &names);
}

void unregister_region(DeviceAddress address) {
  nvtxMemRegionRef_t region{};
  region.pointer = pointer_to(address);
  nvtxMemRegionsUnregisterBatch_t regions{};
  regions.extCompatID = NVTX_EXT_COMPATID_MEM;
  regions.structSize = sizeof regions;
  regions.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  regions.refCount = 1;
  regions.refElementSize = sizeof region;
  regions.refElements = &region;
  nvtxMemRegionsUnregister(domain(), &regions);
}

#else

bool is_built() { return false; }
Heap register_heap(DeviceAddress /*address*/, std::uint64_t /*bytes*/) { return nullptr; }
void unregister_heap(Heap /*heap*/) {}
void register_region(Heap /*heap*/, DeviceAddress /*address*/, std::uint64_t /*bytes*/,
                     const char* /*name*/) {}
void unregister_region(DeviceAddress /*address*/) {}

#endif

}  // namespace gapless::nvtx
