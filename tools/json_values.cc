#include "tools/json_values.h"

#include "allocator/base/bytes.h"

namespace gapless::tools {

using nlohmann::json;

json member(const json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found == object.end() ? json() : *found;
}

std::uint64_t number(const json& value) {
  return value.is_number() ? value.get<std::uint64_t>() : 0;
}

std::string size_text(const json& bytes) {
  return bytes.is_number() ? format_bytes(bytes.get<std::uint64_t>()) : "-";
}

}  // namespace gapless::tools
