// Course: memory over a replayed pass, in the columns of an image: of five million events no more
// is kept than of a thousand.
//
//   reserved   ########|########|########|      each column: the most while an equal part of the
//   allocated  ###     |######  |####    |      events was played
//              0      1/3      2/3       1  of the pass
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/trace/trace.h"
#include "bench/peers/peer.h"

namespace gapless::bench {

struct CourseColumn {
  std::uint64_t allocated_bytes = 0;  // blocks rounded up to 512 B
  std::uint64_t reserved_bytes = 0;
};

/// As many columns as the pass has, fewer where it failed on its way.
using PassCourse = std::vector<CourseColumn>;

inline constexpr std::size_t kMostCourseColumns = 1024;
/// So many passes are kept, the first ones: programs that repeat themselves have settled by then.
inline constexpr std::size_t kMostCoursePasses = 4;

/// Columns of a whole pass of so many events.
std::size_t course_columns(std::size_t events);

class CourseTaker {
 public:
  CourseTaker(const Trace& trace, const Peer& peer);

  /// Whether the pass that begins is kept; only then it may be noted.
  bool begin_pass();
  /// That event of the pass was played.
  void played(std::size_t event);
  /// The pass is over, or failed at that event.
  void end_pass(std::size_t event);

  [[nodiscard]] const std::vector<PassCourse>& passes() const { return passes_; }

 private:
  // Columns up to that event's, each with what there was before it.
  void reach(std::size_t event);

  const Trace& trace_;
  const Peer& peer_;
  std::vector<std::uint64_t> sizes_;  // by block, while it lives
  CourseColumn now_;
  std::uint64_t peak_reserved_bytes_ = 0;
  std::vector<PassCourse> passes_;
};

}  // namespace gapless::bench
