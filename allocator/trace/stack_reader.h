// StackReader: the "frames" of a snapshot's events and blocks, as nodes of one tree of stacks.
//
//   [{"filename": "train.py", "line": 41, "name": "step"}, {... 80 ...}]  ->  node 2
//
// Events share frames by the hundred and whole stacks by the thousand: each frame is read once and
// has its number noted in the dict it was read from, and a stack that is known costs a look at the
// numbers.
#pragma once

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <vector>

#include "allocator/trace/call_stacks.h"
#include "allocator/trace/interner.h"
#include "allocator/trace/snapshot_fields.h"

namespace gapless {

class StackReader {
 public:
  explicit StackReader(const SnapshotFields& fields) : fields_(fields), budget_(fields.budget()) {}

  /// The stack of an event or a block; 0 where it has none.
  template <class Place>
  std::uint32_t node_of(const PickleValue& dict, const Place& place) {
    const PickleValue* frames = fields_.find(dict, "frames", place);
    if (frames == nullptr || !frames->is_list()) return 0;
    const auto& all = frames->items();
    const std::size_t count = std::min(all.size(), kMostFrames);
    budget_.work(count, place);
    // The list may be that of other events as well.
    if (const std::uint32_t known = frames->container().number; known != 0) return known - 1;
    const bool all_read = note_numbers(all, count);
    const std::uint64_t hash = all_read ? hash_of_numbers() : 0;
    if (all_read) {
      const auto known = by_hash_.find(hash);
      if (known != by_hash_.end() && is_stack(known->second)) {
        frames->container().number = known->second.node + 1;
        return known->second.node;
      }
    }
    std::uint32_t node = 0;
    for (std::size_t i = count; i-- > 0;) {  // the outermost first
      if (!all[i].is_dict()) continue;
      node = child(node, frame_of(all[i], place), place);
    }
    if (all_read && node != 0) remember(hash, node, place);
    return node;
  }

  /// The line of the program that asked (call_site()); it stays where it is as long as this.
  template <class Place>
  const std::string& label(std::uint32_t node, const Place& place) {
    if (const auto known = labels_.find(node); known != labels_.end()) return known->second;
    std::vector<std::string_view> frames;
    for (std::uint32_t at = node; at != 0; at = stacks_.nodes[at].parent) {
      frames.emplace_back(stacks_.frames[stacks_.nodes[at].frame]);
    }
    budget_.work(8 * frames.size(), place);
    std::string text = call_site(frames);
    // Blocks carry their site's text with them; its end says most.
    if (text.size() > kLongestSite) text = text.substr(text.size() - kLongestSite);
    budget_.hold(node_bytes(sizeof(std::pair<const std::uint32_t, std::string>)) +
                     ReadBudget::allocated_text(text.size()),
                 place);
    return labels_.emplace(node, std::move(text)).first->second;
  }

  /// What was read.
  [[nodiscard]] CallStacks take() { return std::move(stacks_); }

 private:
  // A stack of a real program is a few hundred deep at most; the outermost of a deeper one are left
  // out.
  static constexpr std::size_t kMostFrames = 1024;
  static constexpr std::size_t kLongestSite = 1024;

  // The numbers of frames that were all read before, in `numbers_`; false where one was not.
  bool note_numbers(const std::vector<PickleValue>& frames, std::size_t count) {
    numbers_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t number = frames[i].is_dict() ? frames[i].container().number : 0;
      if (number == 0) return false;
      numbers_.push_back(number);
    }
    return true;
  }
  // Two at a time, in two lanes: one multiplication waits for the other, and this is done for each
  // event.
  [[nodiscard]] std::uint64_t hash_of_numbers() const {
    constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;
    const auto two_from = [&](std::size_t i) {
      const std::uint64_t high = i + 1 < numbers_.size() ? numbers_[i + 1] : 0;
      return i < numbers_.size() ? high << 32 | numbers_[i] : 0;
    };
    std::uint64_t even = numbers_.size();
    std::uint64_t odd = ~even;
    for (std::size_t i = 0; i < numbers_.size(); i += 4) {
      even = std::rotl((even ^ two_from(i)) * kPrime, 29);
      odd = std::rotl((odd ^ two_from(i + 2)) * kPrime, 31);
    }
    return (even ^ odd) * kPrime;
  }
  // A stack that was read: the numbers of its frames stand in `known_frames_`.
  struct KnownStack {
    std::uint32_t node = 0;
    std::uint32_t frames = 0;
    std::uint64_t first = 0;
  };
  [[nodiscard]] bool is_stack(const KnownStack& known) const {
    return known.frames == numbers_.size() &&
           std::equal(numbers_.begin(), numbers_.end(),
                      known_frames_.begin() + static_cast<std::ptrdiff_t>(known.first));
  }
  template <class Place>
  void remember(std::uint64_t hash, std::uint32_t node, const Place& place) {
    if (by_hash_.contains(hash)) return;  // two of one hash: the second is read each time
    budget_.hold(node_bytes(sizeof(std::pair<const std::uint64_t, KnownStack>)), place);
    budget_.make_room(known_frames_, numbers_.size(), place);
    by_hash_[hash] = {node, static_cast<std::uint32_t>(numbers_.size()), known_frames_.size()};
    known_frames_.insert(known_frames_.end(), numbers_.begin(), numbers_.end());
  }

  template <class Place>
  std::uint32_t child(std::uint32_t parent, std::uint32_t frame, const Place& place) {
    const std::uint64_t key = std::uint64_t{parent} << 32 | frame;
    if (const auto known = children_.find(key); known != children_.end()) return known->second;
    budget_.hold(node_bytes(sizeof(std::pair<const std::uint64_t, std::uint32_t>)), place);
    budget_.make_room(stacks_.nodes, 1, place);
    const auto node = static_cast<std::uint32_t>(stacks_.nodes.size());
    if (node == UINT32_MAX) return parent;
    stacks_.nodes.push_back({parent, frame});
    children_.emplace(key, node);
    return node;
  }

  template <class Place>
  std::uint32_t frame_of(const PickleValue& dict, const Place& place) {
    if (const std::uint32_t known = dict.container().number; known != 0) return known - 1;
    const std::string_view file = fields_.text(dict, "filename", place);
    const std::string_view name = fields_.text(dict, "name", place);
    constexpr std::uint64_t kLongestNumber = 24;
    const std::uint64_t most = file.size() + name.size() + kLongestNumber;
    budget_.work(most, place);
    budget_.hold(2 * ReadBudget::allocated_text(most), place);
    std::string text;
    text.reserve(most);
    text += file;
    // A text that is no frame of a program has no line (snapshot_writer.h).
    if (const PickleValue* line = fields_.find(dict, "line", place);
        line != nullptr && line->is_integer() && (line->integer() != 0 || !name.empty())) {
      text += ":" + std::to_string(line->integer());
    }
    if (!name.empty()) text.append(" ").append(name);
    std::uint32_t frame = 0;
    if (const auto same = by_text_.find(text); same != by_text_.end()) {
      frame = same->second;
      budget_.give_back(2 * ReadBudget::allocated_text(most));
    } else {
      budget_.hold(node_bytes(sizeof(std::pair<const std::string, std::uint32_t>)), place);
      budget_.make_room(stacks_.frames, 1, place);
      frame = static_cast<std::uint32_t>(stacks_.frames.size());
      stacks_.frames.push_back(text);
      by_text_.emplace(std::move(text), frame);
    }
    dict.container().number = frame + 1;
    return frame;
  }

  const SnapshotFields& fields_;
  ReadBudget& budget_;
  CallStacks stacks_;
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // parent and frame
  std::unordered_map<std::uint64_t, KnownStack> by_hash_;      // of whole stacks
  std::vector<std::uint32_t> known_frames_;
  std::vector<std::uint32_t> numbers_;  // of the frames that are looked at
  std::unordered_map<std::string, std::uint32_t> by_text_;
  std::unordered_map<std::uint32_t, std::string> labels_;
};

}  // namespace gapless
