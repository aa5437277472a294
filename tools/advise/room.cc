#include "tools/advise/room.h"

#include <algorithm>

#include "allocator/base/bytes.h"

namespace gapless::tools {

std::string with_room(const std::string& gpus) {
  constexpr const char* kRoom = "1024GiB";
  std::string roomy;
  std::size_t begin = 0;
  while (begin <= gpus.size()) {
    const std::size_t end = std::min(gpus.find(',', begin), gpus.size());
    std::string one = gpus.substr(begin, end - begin);
    one.erase(0, std::min(one.find_first_not_of(' '), one.size()));
    one.erase(one.find_last_not_of(' ') + 1);
    begin = end + 1;
    // COUNTx stays, and the name before the size.
    std::string count;
    const std::size_t digits = one.find_first_not_of("0123456789");
    if (digits != 0 && digits != std::string::npos && (one[digits] == 'x' || one[digits] == 'X')) {
      count = one.substr(0, digits + 1);
      one.erase(0, digits + 1);
    }
    const std::size_t colon = one.find(':');
    const bool is_size = colon == std::string::npos && parse_bytes(one).has_value();
    const std::string name = is_size ? "" : one.substr(0, colon) + ":";
    roomy += (roomy.empty() ? "" : ",") + count + name + kRoom;
  }
  return roomy;
}

}  // namespace gapless::tools
