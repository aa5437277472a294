// ByteSource: a file's bytes, piece by piece, as often as they are wanted.
//
//   next()    [ 1 MiB ]   [ 1 MiB ]   ...   [ rest ]   nothing: the end
//   rewind()  and the same again
//
// So that who reads a file in one direction holds two pieces of it and not the whole. What changes
// while it is read is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gapless {

class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// How many bytes there are.
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// How many of them are in memory at a time.
  [[nodiscard]] virtual std::uint64_t held_bytes() const = 0;
  /// The next piece, until the next call; empty at the end. Throws InputError.
  virtual std::string_view next() = 0;
  virtual void rewind() = 0;
  /// All of it; the source has none afterwards. Throws InputError.
  virtual std::string take_all() = 0;
  /// Throws InputError where the file is not what it was when it was opened.
  virtual void check_unchanged() const = 0;
};

/// Bytes that are in memory.
std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes);

/// A file; what cannot be read twice (a pipe) is read to its end. Throws InputError.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

}  // namespace gapless
