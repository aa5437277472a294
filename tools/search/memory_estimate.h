// MemoryEstimate: what settings that were not tried would take, by those that were.
//
//   share of the GPU         .                one completed probe: in proportion to the setting
//                        .                    several: a line between two, and on beyond the last
//                    o
//                o
//   setting      8   16  24  32
//
// For choosing what to try, and for nothing else: answers are proven by probes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace gapless::tools {

class MemoryEstimate {
 public:
  /// A probe that fitted had at most this share of what the fullest GPU has for it.
  void fitted(double setting, double share);
  /// One that failed for want of this share, which is more than all of it.
  void wanted(double setting, double share);

  /// The last of these settings, which ascend, that should fit; -1 where none should. Nothing where
  /// nothing is known.
  [[nodiscard]] std::optional<std::ptrdiff_t> largest(const std::vector<double>& settings) const;
  [[nodiscard]] bool empty() const { return points_.empty() && hopeless_.empty(); }

 private:
  [[nodiscard]] double share(double setting) const;

  std::map<double, double> points_;
  std::map<double, double> hopeless_;
};

}  // namespace gapless::tools
