// What the options `check` and `fence` ask for.
//
//   check:poison+redzones            both, of every block
//   check:fence                      every block behind a fence (fence.h)
//   check:nvtx                       a tool is told of every block
//   fence:1/1000                     one request of a thousand, chosen at random
//   fence:1/10+4MiB-1GiB             of those from 4 MiB to 1 GiB one of ten
//   fence:train.py:42                those that line 42 of train.py makes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gapless {

struct RequestedChecks {
  bool poison = false;
  bool redzones = false;
  bool fence = false;
  bool nvtx = false;  // tell a tool of blocks (nvtx_memory.h)

  bool operator==(const RequestedChecks&) const = default;
};

/// Which requests get a fence: those for which all of this holds.
struct FencedRequests {
  std::uint64_t one_of = 0;  // 0: none
  std::uint64_t from_bytes = 0;
  std::uint64_t to_bytes = UINT64_MAX;
  std::string call_site;  // the end of "folder/train.py:42"; empty: any

  bool operator==(const FencedRequests&) const = default;
};

/// The words of an option, and back. read_... are false, with the cause, where a word is wrong.
std::string text_of(const RequestedChecks& checks);
std::string text_of(const FencedRequests& requests);
bool read_checks(std::string_view text, RequestedChecks& checks, std::string& cause);
bool read_fenced(std::string_view text, FencedRequests& requests, std::string& cause);

}  // namespace gapless
