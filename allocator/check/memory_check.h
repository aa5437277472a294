// MemoryCheck: the checks of one device's memory that the options `check` and `fence` ask for.
//
//   request  -> pick?  -> Fence::make: pages of its own between unmapped ones
//            -> placed -> begin(): free memory still poisoned?  poison, bands
//   free     -> end(): bands as they were?  poison
//   tell()   -> what was found, on standard error, with no lock held
//
// It knows addresses and streams, and nothing of heaps. What is done to memory is in the order of
// the block's stream; what is looked at is waited for. A driver that refuses ends what is known of
// that block, not the program. Not thread-safe, but for the call site, which is the thread's own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "allocator/check/fence.h"
#include "allocator/check/poison.h"
#include "allocator/check/red_zones.h"

namespace gapless {

class MemoryCheck {
 public:
  using Ranges = Poison::Ranges;

  /// `vmm`: the device maps memory; without that no block gets a fence.
  MemoryCheck(Driver& driver, DeviceIndex device, std::uint64_t page_bytes, ShareType share,
              RequestedChecks checks, FencedRequests fenced, bool vmm);

  /// What each block has before its begin, and behind its end at least.
  [[nodiscard]] std::uint64_t before_bytes() const {
    return checks_.redzones ? RedZones::kBefore : 0;
  }
  [[nodiscard]] std::uint64_t behind_bytes() const {
    return checks_.redzones ? RedZones::kLeastBehind : 0;
  }
  void set_comparer(Contents::Comparer comparer) { contents_.set_comparer(std::move(comparer)); }

  /// Where the thread's next request comes from, as `source` says: "train.py:42 (step)".
  static void note_call_site(const std::function<std::string()>& source);
  /// What that was.
  [[nodiscard]] static const std::string& call_site();

  /// A block with a fence for the thread's request; nullptr where it is to have none.
  Fence::Block* fence_off(std::uint64_t bytes, StreamHandle stream);
  /// The block begins to live at `address`, with so many bytes behind it; its memory lies in these
  /// ranges of the home. `touch`: its memory may be written to now.
  void begin(DeviceAddress address, std::uint64_t bytes, std::uint64_t requested_bytes,
             StreamHandle stream, Ranges ranges, bool touch);
  /// It ends. `others`: devices whose work may use it too, this one for other streams of it.
  void end(DeviceAddress address, std::span<const DeviceIndex> others, Ranges ranges, bool touch);
  /// The program frees a block that has a fence.
  void end(Fence::Block& block, bool touch);
  /// How much memory went back to the driver ever: where that changed, other memory may be where
  /// freed memory was.
  void note_released(std::uint64_t pages);
  /// Looks at the bands of all live blocks now.
  void look_at_all();

  [[nodiscard]] Fence& fence() { return fence_; }
  [[nodiscard]] const Fence& fence() const { return fence_; }

  /// All that was found, the last kKept of it.
  [[nodiscard]] const std::vector<Mistake>& mistakes() const { return mistakes_; }
  [[nodiscard]] std::uint64_t found() const { return found_; }
  /// A sentence of somebody else's, to be told with what is found.
  void add_news(std::string sentence) { news_.push_back(std::move(sentence)); }
  /// Sentences for what was found since the last call.
  std::vector<std::string> take_news();
  /// The live blocks, by address; those with a fence last.
  [[nodiscard]] std::vector<CheckedBlock> live() const;
  /// What was freed lately, poisoned or behind a fence: the newest last.
  [[nodiscard]] std::vector<CheckedBlock> freed() const;

  static constexpr std::size_t kKept = 1000;

 private:
  struct Watched {
    CheckedBlock block;
    bool banded = false;
  };

  [[nodiscard]] bool worked(DriverStatus status);
  void add(Mistake::Kind kind, Mistake::Found found, const CheckedBlock& block,
           const Difference& difference, DeviceAddress begin);
  bool compare_bands(const CheckedBlock& block, std::uint64_t before, Mistake::Found found);

  Driver& driver_;
  DeviceIndex device_;
  RequestedChecks checks_;
  bool fences_;
  Contents contents_;
  Poison poison_;
  RedZones zones_;
  Fence fence_;
  std::map<DeviceAddress, Watched> live_;
  std::uint64_t released_ = 0;
  std::vector<Mistake> mistakes_;
  std::uint64_t found_ = 0;
  std::vector<std::string> news_;
  bool told_of_driver_ = false;
};

}  // namespace gapless
