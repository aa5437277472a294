#include "allocator/base/json_writer.h"

#include "allocator/base/json_text.h"

namespace gapless {

std::string JsonWriter::json_string(std::string_view text) {
  return json_text(nlohmann::json(std::string(text)));
}

}  // namespace gapless
