// Groups: the live blocks of a moment by what they have in common.
//
//   by site      model.py:41 forward        aten::bmm     6.20 GiB   812 blocks
//                train.py:9, in transformers/models/llama/modeling_llama.py:250
//   by line      train.py:9                 the program's own alone
//   by kind      activations                              9.10 GiB  1,920
//   by module    model.py                                 8.80 GiB  1,744
//   by size      4 MiB to 8 MiB                           2.10 GiB    390
//   by lifetime  within one step                          7.30 GiB  1,402
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/report/lifetimes.h"
#include "allocator/report/memory_kinds.h"
#include "allocator/report/memory_state.h"

namespace gapless::tools {

enum class GroupBy : std::uint8_t {
  site,
  line,
  module,
  size,
  stream,
  pool,
  segment,
  kind,
  lifetime
};
/// "site", "module", ...: as --by has them.
const std::vector<std::string>& group_names();
/// Of one of these names.
GroupBy group_by(std::string_view name);

struct BlockGroup {
  std::string name;    // empty where it is not known
  std::string called;  // of a site: what the line called for most of its bytes
  std::string kind;    // of a site: what most of its bytes are
  std::uint64_t bytes = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t blocks = 0;
};

/// The most bytes first; pending blocks count as live. `trace`, `kinds` and `lifetimes` are of the
/// recording the state is a moment of; nullptr where there is none.
std::vector<BlockGroup> group_blocks(const MemoryState& state, GroupBy by, const Trace* trace,
                                     const MemoryKinds* kinds,
                                     const Lifetimes* lifetimes = nullptr);

}  // namespace gapless::tools
