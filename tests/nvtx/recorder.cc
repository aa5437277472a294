#include "tests/nvtx/recorder.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExtMem.h>

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {

struct Heap {
  std::uint64_t bytes = 0;
};
struct Region {
  std::uint64_t bytes = 0;
  std::uint64_t heap = 0;
  std::string name;
};

// Domains are told apart by their names: other libraries of a process have theirs.
char ours = 0;
char others = 0;

// Of the heap, as an allocator may go after what belongs to this library has gone.
auto& mutex = *new std::mutex;
auto& heaps = *new std::map<std::uint64_t, Heap>;      // by address, which is the handle too
auto& regions = *new std::map<std::uint64_t, Region>;  // by address
auto& mistakes = *new std::string;
std::uint64_t calls = 0;
std::uint64_t refuse_one_of = 0;
std::uint64_t asked = 0;

void judge(bool holds, const char* rule, std::uint64_t address) {
  if (holds) return;
  char text[200];
  std::snprintf(text, sizeof text, "%s (%#llx)\n", rule, static_cast<unsigned long long>(address));
  mistakes += text;
}

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

template <class Map>
bool touches_another(const Map& map, std::uint64_t address, std::uint64_t bytes) {
  const auto next = map.lower_bound(address);
  if (next != map.end() && next->first < address + bytes) return true;
  return next != map.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
}

bool is_ours(nvtxDomainHandle_t domain) {
  ++calls;
  judge(domain != nullptr, "a call without a domain", 0);
  return reinterpret_cast<char*>(domain) == &ours;
}

nvtxDomainHandle_t create_domain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(std::strcmp(name, "gapless") == 0 ? &ours : &others);
}

nvtxMemHeapHandle_t register_heap(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t* heap) {
  const std::scoped_lock lock(mutex);
  if (!is_ours(domain)) return nullptr;
  judge(heap->extCompatID == NVTX_EXT_COMPATID_MEM && heap->structSize == sizeof *heap &&
            heap->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR &&
            heap->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS && heap->reserved0 == 0 &&
            heap->typeSpecificDescSize == sizeof(nvtxMemVirtualRangeDesc_t),
        "a heap of a kind that compute-sanitizer does not know", 0);
  const auto& range = *static_cast<const nvtxMemVirtualRangeDesc_t*>(heap->typeSpecificDesc);
  const std::uint64_t address = number(range.ptr);
  judge(range.size != 0 && !touches_another(heaps, address, range.size),
        "a heap of no bytes, or of another's", address);
  if (refuse_one_of != 0 && ++asked % refuse_one_of == 0) return nullptr;
  heaps[address] = {range.size};
  return reinterpret_cast<nvtxMemHeapHandle_t>(address);
}

void unregister_heap(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap) {
  const std::scoped_lock lock(mutex);
  if (!is_ours(domain)) return;
  judge(heaps.erase(number(heap)) == 1, "a heap goes that is none", number(heap));
  judge(std::none_of(regions.begin(), regions.end(),
                     [&](const auto& region) { return region.second.heap == number(heap); }),
        "a heap goes before its regions", number(heap));
}

void register_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t* batch) {
  const std::scoped_lock lock(mutex);
  if (!is_ours(domain)) return;
  const std::uint64_t heap = number(batch->heap);
  const auto found = heaps.find(heap);
  judge(found != heaps.end(), "regions in no heap", heap);
  judge(batch->extCompatID == NVTX_EXT_COMPATID_MEM && batch->structSize == sizeof *batch &&
            batch->regionType == NVTX_MEM_TYPE_VIRTUAL_ADDRESS &&
            batch->regionDescElementSize == sizeof(nvtxMemVirtualRangeDesc_t),
        "regions of a kind that compute-sanitizer does not know", heap);
  const auto* const ranges =
      static_cast<const nvtxMemVirtualRangeDesc_t*>(batch->regionDescElements);
  for (std::size_t i = 0; i < batch->regionCount; ++i) {
    const std::uint64_t address = number(ranges[i].ptr);
    judge(found != heaps.end() && address >= heap &&
              address + ranges[i].size <= heap + found->second.bytes,
          "a region is not in its heap", address);
    judge(ranges[i].size != 0 && !touches_another(regions, address, ranges[i].size),
          "a region of no bytes, or of another's", address);
    regions[address] = {ranges[i].size, heap, {}};
  }
}

void unregister_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t* batch) {
  const std::scoped_lock lock(mutex);
  if (!is_ours(domain)) return;
  judge(batch->extCompatID == NVTX_EXT_COMPATID_MEM && batch->structSize == sizeof *batch &&
            batch->refType == NVTX_MEM_REGION_REF_TYPE_POINTER &&
            batch->refElementSize == sizeof(nvtxMemRegionRef_t),
        "regions are named in a way that compute-sanitizer does not know", 0);
  for (std::size_t i = 0; i < batch->refCount; ++i) {
    const std::uint64_t address = number(batch->refElements[i].pointer);
    judge(regions.erase(address) == 1, "a region goes that is none", address);
  }
}

void name_regions(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t* batch) {
  const std::scoped_lock lock(mutex);
  if (!is_ours(domain)) return;
  judge(batch->extCompatID == NVTX_EXT_COMPATID_MEM && batch->structSize == sizeof *batch &&
            batch->reserved0 == 0 && batch->reserved1 == 0 &&
            batch->regionElementSize == sizeof(nvtxMemRegionNameDesc_t),
        "names of a kind that compute-sanitizer does not know", 0);
  for (std::size_t i = 0; i < batch->regionCount; ++i) {
    const nvtxMemRegionNameDesc_t& label = batch->regionElements[i];
    const std::uint64_t address = number(label.region.pointer);
    const auto found = regions.find(address);
    judge(found != regions.end(), "a name of no region", address);
    const std::string name = label.name.ascii;
    judge(label.regionRefType == NVTX_MEM_REGION_REF_TYPE_POINTER &&
              label.nameType == NVTX_MESSAGE_TYPE_ASCII && !name.empty() && name.size() <= 49 &&
              std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; }),
          "a name that compute-sanitizer does not take", address);
    if (found != regions.end()) found->second.name = name;
  }
}

template <class Map>
std::size_t list(const Map& map, NvtxRange* ranges, std::size_t room) {
  std::size_t count = 0;
  for (const auto& entry : map) {
    if (count++ >= room) continue;
    NvtxRange& range = ranges[count - 1];
    range = {entry.first, entry.second.bytes, {}};
    if constexpr (requires { entry.second.name; }) {
      std::snprintf(range.name, sizeof range.name, "%s", entry.second.name.c_str());
    }
  }
  return count;
}

template <class Function>
std::intptr_t slot(Function* function) {
  return reinterpret_cast<std::intptr_t>(function);
}

}  // namespace

// --- what NVTX calls when it loads a tool, once for each library that has NVTX in it -------------

EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
  return 1;
}

EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_MODULEID_MEM) return 0;
  std::intptr_t* const slots = module->segments->functionSlots;
  slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = slot(&register_heap);
  slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = slot(&unregister_heap);
  slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = slot(&register_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = slot(&unregister_regions);
  slots[NVTX3EXT_CBID_nvtxMemRegionsName] = slot(&name_regions);
  return 1;
}

// --- what tests ask
// -------------------------------------------------------------------------------

EXPORTED std::size_t nvtx_recorder_heaps(NvtxRange* ranges, std::size_t room) {
  const std::scoped_lock lock(mutex);
  return list(heaps, ranges, room);
}

EXPORTED std::size_t nvtx_recorder_regions(NvtxRange* ranges, std::size_t room) {
  const std::scoped_lock lock(mutex);
  return list(regions, ranges, room);
}

EXPORTED std::uint64_t nvtx_recorder_calls() {
  const std::scoped_lock lock(mutex);
  return calls;
}

EXPORTED const char* nvtx_recorder_mistakes() {
  static std::string told;
  const std::scoped_lock lock(mutex);
  told = mistakes;
  return told.c_str();
}

EXPORTED void nvtx_recorder_refuse(std::uint64_t one_of) {
  const std::scoped_lock lock(mutex);
  refuse_one_of = one_of;
  asked = 0;
}

EXPORTED void nvtx_recorder_reset() {
  const std::scoped_lock lock(mutex);
  heaps.clear();
  regions.clear();
  mistakes.clear();
  calls = 0;
  refuse_one_of = 0;
}
