// StackTable: the stacks of a process that is being recorded, as numbers.
//
//   step() train.py:41  <-  main() train.py:80         number 2
//   loss() train.py:44  <-  main() train.py:80         number 3    shares what called both
//
// A frame is named by two words (a code object and a line; an address), and put into text once. The
// recorder's thread asks what is new and writes it down.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/trace/call_stacks.h"

namespace gapless {

class StackTable {
 public:
  struct FrameKey {
    std::uint64_t first = 0;
    std::uint64_t second = 0;

    bool operator==(const FrameKey&) const = default;
  };

  /// The number of a stack; 0 where it is empty, or no more are told apart. `text(i)` is what the
  /// i-th of `frames` is called, asked where that frame is new. By any thread.
  template <class F>
  std::uint32_t number_of(std::span<const FrameKey> innermost_first, F&& text) {
    const std::scoped_lock lock(mutex_);
    std::uint32_t node = 0;
    for (std::size_t i = innermost_first.size(); i-- > 0;) {
      const auto [frame, fresh] =
          frames_.try_emplace(innermost_first[i], static_cast<std::uint32_t>(texts_.size()));
      if (fresh) texts_.push_back(text(i));
      node = child(node, frame->second);
      if (node == 0) return 0;
    }
    return node;
  }

  /// How much of the table a recording has been told.
  struct Told {
    std::size_t frames = 1;  // the first of both is none
    std::size_t nodes = 1;
  };
  /// What came since, which is told now.
  void tell(Told& told, std::vector<std::string>& frames, std::vector<CallStacks::Node>& nodes);
  /// The frames of a stack, the innermost first.
  [[nodiscard]] std::vector<std::string> frames_of(std::uint32_t node);

 private:
  // A program with more different stacks than this does not settle: what is new has none.
  static constexpr std::size_t kMostNodes = std::size_t{1} << 21;

  struct Hash {
    std::size_t operator()(const FrameKey& key) const {
      constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
      return static_cast<std::size_t>((key.first * kOdd) ^ (key.second + (key.first >> 29)));
    }
  };
  std::uint32_t child(std::uint32_t parent, std::uint32_t frame);

  std::mutex mutex_;
  std::unordered_map<FrameKey, std::uint32_t, Hash> frames_;
  std::vector<std::string> texts_ = {""};
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // parent and frame
  std::vector<CallStacks::Node> nodes_ = {{}};
};

/// The process's own. Never destroyed: threads may ask for memory while it ends.
StackTable& recorded_stacks();

/// The calling thread's stack of native frames in recorded_stacks(): what a program without Python
/// has. Texts are what the dynamic linker knows: "library.so:0 function", else "library.so+0x1234",
/// which addr2line understands.
std::uint32_t native_stack();

}  // namespace gapless
