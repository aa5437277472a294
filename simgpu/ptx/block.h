// Block: the threads that share memory and barriers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "simgpu/ptx/launch.h"
#include "simgpu/ptx/races.h"
#include "simgpu/ptx/warp.h"

namespace gapless::simgpu::ptx {

/// A generic address with this bit is in shared or in a thread's own memory.
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 62;
constexpr std::uint64_t kLocalWindow = std::uint64_t{1} << 61;

/// What the blocks of a launch have in common.
struct Grid {
  const Kernel& kernel;
  const LaunchSettings& settings;
  const std::vector<unsigned char>& parameters;
  GlobalMemory& memory;
  LaunchResult& result;
};

/// Ends a launch; the finding was noted.
struct LaunchEnded {};

class Block {
 public:
  Block(Grid& grid, Dim3 index);

  [[nodiscard]] const Kernel& kernel() const { return grid_.kernel; }
  [[nodiscard]] Grid& grid() { return grid_; }
  [[nodiscard]] unsigned thread_count() const { return thread_count_; }
  [[nodiscard]] bool has_ended() const { return ended_threads_ == thread_count_; }

  /// Gives each warp a turn. False where none can go on.
  bool run();
  /// All that do not wait for each other wait for ever: throws LaunchEnded.
  [[noreturn]] void stuck();

  // --- for operations ---
  struct Access {
    std::uint64_t address = 0;
    unsigned bytes = 0;
    unsigned lane = 0;
  };
  void read(Warp& warp, const Instruction& instruction, const Access& access, void* target);
  void write(Warp& warp, const Instruction& instruction, const Access& access, const void* source);

  /// Lanes arrive at a barrier, and wait if `waits`; `threads` of the block meet there, 0: all.
  /// `reduce`: the predicates of bar.red; its result goes to the row of each lane.
  struct Arrival {
    unsigned barrier = 0;
    unsigned threads = 0;
    bool waits = true;
    Row reduced = kNoRow;
    std::uint8_t operation = 0;  // 0 popc, 1 and, 2 or
    Mask predicates = 0;
  };
  void arrive(Warp& warp, const Instruction& instruction, Mask lanes, const Arrival& arrival);
  void ended(Warp& warp, Mask lanes);
  void synchronized(Warp& warp) { races_.warp_synchronized(warp.index()); }

  void find(Finding::Kind kind, const Warp& warp, const Instruction& instruction, unsigned lane,
            const std::string& what);
  [[noreturn]] void fail(Finding::Kind kind, const Warp& warp, const Instruction& instruction,
                         unsigned lane, const std::string& what);

 private:
  struct Barrier {
    struct Waiting {
      Warp* warp = nullptr;
      Mask lanes = 0;
      Row reduced = kNoRow;
      const Instruction* instruction = nullptr;
    };
    std::vector<Waiting> waiting;
    unsigned arrived = 0;
    unsigned threads = 0;  // that are expected; 0: all
    unsigned count = 0, yes = 0;
    std::uint8_t operation = 0;
  };

  void complete_if_all_came(Barrier& barrier);
  unsigned char* place(Warp& warp, const Instruction& instruction, const Access& access,
                       const void* written);
  [[noreturn]] void no_memory(const Warp& warp, const Instruction& instruction,
                              const Access& access, const char* verb);
  unsigned char* inside(Warp& warp, const Instruction& instruction, const Access& access,
                        bool writes);
  [[nodiscard]] Dim3 position(unsigned thread) const;
  void fill_specials(Warp& warp) const;
  void set_clock(Warp& warp) const;

  Grid& grid_;
  Dim3 index_;
  unsigned thread_count_;
  unsigned ended_threads_ = 0;
  std::vector<unsigned char> shared_;
  std::vector<unsigned char> local_;
  std::array<Barrier, 16> barriers_;
  Races races_;
  std::vector<std::unique_ptr<Warp>> warps_;
};

}  // namespace gapless::simgpu::ptx
