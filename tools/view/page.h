// The page of `gapless view`: one file that needs no other and no network.
//
//   <meta CSP: nothing from anywhere, no script but with this page's nonce>
//   <script type="text/plain">eJzt...</script>    a trace each: page_table(), deflated, in base64
//   <script nonce>d3, page/*.js</script>          unpack them and draw
//
// All that comes from files stands in the tables, where it is data to the browser as well; the
// title alone is text, and escaped.
#pragma once

#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/trace/trace.h"
#include "tools/view/page_data.h"

namespace gapless::tools {

/// One trace as it stands in a page, ready to be written.
struct PageTrace {
  std::string title;  // "qwen-lora-varlen"
  PageNumbers numbers;
  std::shared_future<std::string> base64;  // of the table, which is deflated meanwhile
  /// What stands at the top of the page while the trace is shown: whole sentences.
  std::vector<std::string> findings;
};
PageTrace page_trace(const Trace& trace);

std::string page_of(const std::vector<PageTrace>& traces);

/// zlib's format, which browsers call "deflate".
std::string deflated(std::string_view bytes);
std::string base64_of(std::string_view bytes);

}  // namespace gapless::tools
