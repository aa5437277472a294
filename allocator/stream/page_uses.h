// PageUses: by stream and page, when memory there was freed last that the stream had used.
//
//   page       0   1   2   3   4
//   stream 0   7   7   -   9   9      who takes pages 1 to 3 comes after epoch 9 of stream 0,
//   stream 1   -   8   8   -   -      and after epoch 8 of stream 1
//
// Free memory is everyone's (heap/home.h). After whom one must come who takes it, this says;
// whether that is a wait, the ledger does (stream_ledger.h).
#pragma once

#include <algorithm>
#include <vector>

#include "allocator/heap/block.h"
#include "allocator/stream/stream_sets.h"

namespace gapless {

class PageUses {
 public:
  explicit PageUses(PageId pages) : pages_(pages) {}

  /// Memory in pages [first, end) was freed in that epoch, which the stream had used.
  void note(StreamIndex stream, PageId first, PageId end, Epoch epoch) {
    if (stream >= freed_.size()) freed_.resize(stream + std::size_t{1});
    std::vector<Epoch>& freed = freed_[stream];
    if (freed.empty()) freed.resize(pages_, 0);
    std::fill(freed.begin() + first, freed.begin() + end, epoch);
  }
  /// The last epoch in which that was so of any of them; 0: never.
  [[nodiscard]] Epoch last(StreamIndex stream, PageId first, PageId end) const {
    if (stream >= freed_.size() || freed_[stream].empty()) return 0;
    const std::vector<Epoch>& freed = freed_[stream];
    return *std::max_element(freed.begin() + first, freed.begin() + end);
  }
  /// Calls f(page, epoch) for the pages of which that is so.
  template <class F>
  void for_each_page(StreamIndex stream, F&& f) const {
    const std::vector<Epoch>& freed = freed_[stream];
    for (PageId page = 0; page < freed.size(); ++page) {
      if (freed[page] != 0) f(page, freed[page]);
    }
  }
  /// Streams above this have used nothing.
  [[nodiscard]] StreamIndex streams() const { return static_cast<StreamIndex>(freed_.size()); }

 private:
  PageId pages_;
  std::vector<std::vector<Epoch>> freed_;  // by stream and page; none before a stream's first free
};

}  // namespace gapless
