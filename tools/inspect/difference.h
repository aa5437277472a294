// Difference: what grew between two moments, of two recordings or of two dumps.
//
//   by site                     before      after     grew by
//   model.py:41 forward       3.10 GiB   6.20 GiB   +3.10 GiB
//   train.py:12 <module>      1.00 GiB   0 bytes    -1.00 GiB
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/inspect/moment_report.h"

namespace gapless::tools {

struct GroupChange {
  std::string name;
  std::uint64_t before_bytes = 0;
  std::uint64_t after_bytes = 0;
  std::uint64_t before_blocks = 0;
  std::uint64_t after_blocks = 0;

  [[nodiscard]] std::int64_t grew_by() const {
    return static_cast<std::int64_t>(after_bytes) - static_cast<std::int64_t>(before_bytes);
  }
};

/// What grew most first, what shrank most last.
std::vector<GroupChange> changes_between(const std::vector<BlockGroup>& before,
                                         const std::vector<BlockGroup>& after);

/// For people: so many groups at either end, and what was requested, allocated, active, reserved.
std::string difference_text(const MomentReport& before, const MomentReport& after, GroupBy by,
                            std::size_t rows, bool colour, std::size_t columns);
nlohmann::json difference_json(const MomentReport& before, const MomentReport& after, GroupBy by);

}  // namespace gapless::tools
