#include "simgpu/process/kernel_writes.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <cxxabi.h>

#include "simgpu/process/values.h"

namespace gapless::simgpu {
namespace {

// The parameters in "void count<int, (Kind)1>(int const*, Pair<int, 2>)": what stands between
// commas of the last parentheses, those in brackets of any kind apart.
std::vector<std::string_view> parameters_in(std::string_view signature) {
  std::vector<std::string_view> found;
  if (signature.empty() || signature.back() != ')') return found;
  std::size_t end = signature.size() - 1;
  int depth = 0;
  for (std::size_t i = end; i-- > 0;) {
    const char c = signature[i];
    if (c == ')' || c == '>' || c == ']') ++depth;
    if (depth == 0 && (c == ',' || c == '(')) {
      found.insert(found.begin(), signature.substr(i + 1, end - i - 1));
      end = i;
      if (c == '(') return found;
    }
    if (c == '(' || c == '<' || c == '[') --depth;
  }
  return {};
}

bool points_to_const(std::string_view type) {
  constexpr std::string_view kSuffix = " const*";
  return type.size() > kSuffix.size() && type.substr(type.size() - kSuffix.size()) == kSuffix;
}

}  // namespace

std::vector<bool> only_read_as_named(const std::string& mangled_name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> signature(
      ::abi::__cxa_demangle(mangled_name.c_str(), nullptr, nullptr, &status), &std::free);
  std::vector<bool> found;
  if (signature == nullptr) return found;
  for (const std::string_view type : parameters_in(signature.get())) {
    found.push_back(points_to_const(type));
  }
  return found;
}

std::function<void()> forgets_what_it_writes(DeviceMemory& memory, const std::vector<bool>& reads,
                                             const ParameterSizes& sizes, void** arguments) {
  if (simgpu_operator()->operators != 0) return {};
  if (sizes.empty() || arguments == nullptr) {
    return [&memory] { memory.forget_all(); };
  }
  std::vector<DeviceAddress> written;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (reads.size() == sizes.size() && reads[i]) continue;
    for (std::size_t offset = 0; offset + sizeof(DeviceAddress) <= sizes[i];
         offset += sizeof(DeviceAddress)) {
      DeviceAddress word = 0;
      std::memcpy(&word, static_cast<const char*>(arguments[i]) + offset, sizeof word);
      if (memory.find(word)) written.push_back(word);
    }
  }
  if (written.empty()) return {};
  return [&memory, written] {
    for (const DeviceAddress address : written) memory.forget_from(address);
  };
}

}  // namespace gapless::simgpu
