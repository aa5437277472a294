// cuDNN's graph API: descriptors as bags of attributes, one engine for every graph.
//
//   operation graph --> heuristic: results = one engine configuration --> plan --> execute: work
//
// Numbers of attributes, types and descriptors: cudnn_graph.h of cuDNN 9.
#include <cstring>
#include <map>
#include <vector>

#include "simgpu/front/cudnn/common.h"
#include "simgpu/process/library_handle.h"

using namespace gapless::simgpu::cudnn;

namespace {

enum Attribute : int {
  kHeuristicResults = 202,
  kConfigurationEngine = 300,
  kConfigurationWorkspace = 303,
  kPlanWorkspace = 402,
  kGraphEngineCount = 802,
  kEngineIndex = 1301,
};

constexpr int kInt64 = 3;  // cudnnBackendAttributeType_t
constexpr int kInt32 = 23;

struct Value {
  int type = 0;
  std::int64_t count = 0;
  std::vector<unsigned char> bytes;
};

struct Descriptor : gapless::simgpu::LibraryHandle {
  std::map<int, Value> values;
};

// Bytes of one element of a cudnnBackendAttributeType_t.
std::size_t element_bytes(int type) {
  switch (type) {
    case 2:   // boolean
    case 24:  // char
      return 1;
    case 0:  // handle
    case kInt64:
    case 5:   // double
    case 6:   // pointer
    case 15:  // descriptor
    case 26:  // fraction
      return 8;
    default:  // enumerations, int32, float
      return 4;
  }
}

int give_number(std::int64_t value, std::int64_t requested, std::int64_t* count, void* elements) {
  if (count != nullptr) *count = 1;
  if (requested > 0 && elements != nullptr) std::memcpy(elements, &value, sizeof value);
  return kSuccess;
}

}  // namespace

CUDNN int cudnnBackendCreateDescriptor(int, void** descriptor) {
  *descriptor = new Descriptor;
  return kSuccess;
}
CUDNN int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kSuccess;
}
CUDNN int cudnnBackendFinalize(void*) { return kSuccess; }

CUDNN int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, std::int64_t count,
                                   const void* elements) {
  if (descriptor == nullptr || count < 0 || (elements == nullptr && count != 0)) return kBadParam;
  Value& value = static_cast<Descriptor*>(descriptor)->values[attribute];
  const auto* from = static_cast<const unsigned char*>(elements);
  value.type = type;
  value.count = count;
  value.bytes.assign(from, from + element_bytes(type) * static_cast<std::size_t>(count));
  return kSuccess;
}

CUDNN int cudnnBackendGetAttribute(void* descriptor, int attribute, int type,
                                   std::int64_t requested, std::int64_t* count, void* elements) {
  if (descriptor == nullptr) return kBadParam;
  switch (attribute) {
    case kHeuristicResults:  // into descriptors of the caller's: nothing need be written there
    case kConfigurationEngine:
      if (count != nullptr) *count = 1;
      return kSuccess;
    case kConfigurationWorkspace:
    case kPlanWorkspace:
      simgpu_guess("libcudnn.so.9");
      return give_number(0, requested, count, elements);
    case kGraphEngineCount:
      return give_number(1, requested, count, elements);
    case kEngineIndex:
      return give_number(0, requested, count, elements);
    default:
      break;
  }
  const auto& values = static_cast<Descriptor*>(descriptor)->values;
  const auto found = values.find(attribute);
  if (found == values.end() || found->second.type != type) {
    // A number is zero; of knobs and notes there are none.
    const bool number = (type == kInt64 || type == kInt32) && requested == 1 && elements != nullptr;
    if (number) std::memset(elements, 0, element_bytes(type));
    if (count != nullptr) *count = number ? 1 : 0;
    return kSuccess;
  }
  const Value& value = found->second;
  if (count != nullptr) *count = value.count;
  if (elements != nullptr) {
    const std::int64_t given = std::min(requested, value.count);
    std::memcpy(elements, value.bytes.data(),
                element_bytes(type) * static_cast<std::size_t>(std::max<std::int64_t>(given, 0)));
  }
  return kSuccess;
}

CUDNN int cudnnBackendExecute(void* handle, void*, void*) {
  return simgpu_work(handle) == 0 ? kSuccess : kNotSupported;
}
