#include "allocator/trace/pickle_runs.h"

namespace gapless {

void PickleRuns::forget() {
  for (const auto& [opcodes, elements] : known_) {
    if (elements != nullptr) store_.let_go(elements);
  }
  known_.clear();
  budget_.give_back(held_bytes_);
  held_bytes_ = 0;
  kept_bytes_ = 0;
}

}  // namespace gapless
