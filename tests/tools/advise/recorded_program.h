// A run as `advise` has it, put together by hand: blocks with what they held, and what was told of
// the program.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "tools/advise/causes.h"

namespace gapless::tools {

class RecordedProgram {
 public:
  explicit RecordedProgram(nlohmann::json program = nlohmann::json::object()) {
    run_.allocator = "native";
    run_.rows.push_back({{"pid", 1},
                         {"rank", nullptr},
                         {"device", 0},
                         {"fits", false},
                         {"steps", 2},
                         {"total_bytes", 16 * GiB},
                         {"peak_allocated_bytes", GiB},
                         {"peak_reserved_bytes", 2 * GiB},
                         {"peak_used_bytes", 3 * GiB},
                         {"memory", {{"at", "out of memory"}, {"fragmentation_bytes", GiB}}}});
    run_.told.push_back({{"program", std::move(program)}});
    run_.memory.emplace_back(TracedMemory{});
  }

  /// Live from one event until another.
  RecordedProgram& block(simgpu::Holder holder, std::uint64_t bytes, std::uint64_t begin = 0,
                         std::uint64_t end = std::numeric_limits<std::uint64_t>::max(),
                         std::uint64_t address = 0, std::uint32_t site = 0) {
    run_.memory[0]->blocks.push_back({address, bytes, begin, end, site, 0, holder});
    return *this;
  }
  RecordedProgram& site(const simgpu::MemorySite& site) {
    run_.memory[0]->sites.push_back(site);
    return *this;
  }
  RecordedProgram& peak(std::uint64_t event, std::uint64_t bytes) {
    run_.memory[0]->course.peak.event = event;
    run_.memory[0]->course.peak.allocated_bytes = bytes;
    return *this;
  }

  [[nodiscard]] Subject subject() const { return {&run_, 0}; }
  [[nodiscard]] const std::vector<simgpu::HeldBlock>& blocks() const {
    return run_.memory[0]->blocks;
  }

 private:
  FitsRun run_;
};

/// The cause or remedy of that name; null where there is none.
template <class Named>
const Named* find(const std::vector<Named>& all, const std::string& id) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.id == id; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace gapless::tools
