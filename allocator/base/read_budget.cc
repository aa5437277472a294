#include "allocator/base/read_budget.h"

#include "allocator/base/error.h"

namespace gapless {

void ReadBudget::too_large(std::uint64_t bytes, const std::string& place) const {
  throw InputError(file_, place,
                   "reading on would take " + format_bytes(bytes) + " beside the " +
                       format_bytes(held_bytes_) + " in use, out of proportion to a file of " +
                       format_bytes(file_bytes_) +
                       " (the same part over and over?); this is no recording");
}

void ReadBudget::too_long(const std::string& place) const {
  throw InputError(file_, place,
                   "reading takes too long for a file of " + format_bytes(file_bytes_) +
                       " (the same part over and over?); this is no recording");
}

}  // namespace gapless
