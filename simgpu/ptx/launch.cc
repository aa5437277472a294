#include "simgpu/ptx/launch.h"

#include <list>

#include "simgpu/ptx/block.h"

namespace gapless::simgpu::ptx {
namespace {

std::string text_of(const Dim3& position) {
  return "(" + std::to_string(position[0]) + "," + std::to_string(position[1]) + "," +
         std::to_string(position[2]) + ")";
}

// The grid's blocks, x first.
class Blocks {
 public:
  explicit Blocks(const Dim3& grid) : grid_(grid) {}
  [[nodiscard]] bool at_end() const { return next_[2] >= grid_[2]; }
  Dim3 take() {
    const Dim3 taken = next_;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (++next_[axis] < grid_[axis] || axis == 2) break;
      next_[axis] = 0;
    }
    return taken;
  }

 private:
  Dim3 grid_;
  Dim3 next_{};
};

}  // namespace

std::string text_of(const Finding& finding) {
  static constexpr std::array<const char*, 7> kNames{"access outside of memory",
                                                     "misaligned access",
                                                     "race",
                                                     "barrier",
                                                     "stuck",
                                                     "trap",
                                                     "not known"};
  return std::string(kNames[static_cast<std::size_t>(finding.kind)]) + " in " + finding.kernel +
         " at line " + std::to_string(finding.line) + " (" + finding.instruction + "), block " +
         text_of(finding.block) + ", thread " + text_of(finding.thread) + ": " + finding.what;
}

LaunchResult launch(const Kernel& kernel, const LaunchSettings& settings,
                    const std::vector<unsigned char>& parameters, GlobalMemory& memory) {
  LaunchResult result;
  if (!kernel.error.empty()) {
    result.findings.push_back(
        {Finding::Kind::unknown, kernel.name, kernel.line, "", {}, {}, kernel.error});
    return result;
  }
  Grid grid{kernel, settings, parameters, memory, result};
  Blocks blocks(settings.grid);
  std::list<Block> resident;
  try {
    while (true) {
      while (!blocks.at_end() && resident.size() < settings.resident_blocks) {
        resident.emplace_back(grid, blocks.take());
      }
      if (resident.empty()) break;
      bool ran = false;
      for (Block& block : resident) ran = block.run() || ran;
      if (!ran) resident.front().stuck();
      resident.remove_if([](const Block& block) { return block.has_ended(); });
    }
    result.completed = true;
  } catch (const LaunchEnded&) {
    result.completed = false;
  }
  return result;
}

}  // namespace gapless::simgpu::ptx
