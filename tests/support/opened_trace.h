// A compact trace, opened: what lies behind its checksums, so that a test or a fuzzer can change it
// and close it again. In a closed file every checksum, size and offset is right whatever was
// changed: the reader must look at what it unpacks.
//
//   {"format": 1, "devices": [...]}                                  the header
//   {"frames": [{"offset": "@0", "bytes": "#0", "trace": 0, ...}]}   the index; @0, #0: where frame
//   0 120 80                                                           will lie; bytes of each
//   frame
//   ...                                                              the frames, one behind another
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gapless::testing {

struct OpenedTrace {
  std::string header;
  std::string index;
  std::vector<std::string> frames;  // events, 40 bytes each

  /// Of a compact trace that is right.
  static OpenedTrace open(std::string_view compact);
  /// Of any bytes, as text() writes them; what is missing is empty.
  static OpenedTrace of_text(std::string_view text);
  /// A compact trace; the same frame in two places of the index lies in the file once.
  [[nodiscard]] std::string close() const;
  [[nodiscard]] std::string text() const;

  /// Replaces the first `from` of the header or index, where it must be.
  void change_header(std::string_view from, std::string_view to);
  void change_index(std::string_view from, std::string_view to);
};

/// One zstd frame with a checksum.
std::string zstd(std::string_view bytes);

}  // namespace gapless::testing
