// ReadBudget: what reading a file may cost, whatever the file says.
//
//   a file of 1 MB   64 MB + 48 MiB of memory     what all its readers hold together
//                    64 M + 64 M steps of work    a few ns each: about a second
//
// A small file can name one part of itself many times, claim to unpack to gigabytes, or nest ten
// thousand deep. Every reader says here what it is about to hold and to do, before it does; what
// is out of proportion to the file is an error that names the place. Real recordings stay far
// below both.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/bytes.h"

namespace gapless {

class ReadBudget {
 public:
  static constexpr std::uint64_t kTimesTheFile = 64;
  /// With what the program itself takes, 64 MiB.
  static constexpr std::uint64_t kBytesAnyway = 48 * MiB;
  static constexpr std::uint64_t kStepsAnyway = std::uint64_t{64} << 20;

  /// For a file of that many bytes, which are held from now on; `file` stands in errors.
  ReadBudget(std::string file, std::uint64_t file_bytes)
      : file_(std::move(file)),
        file_bytes_(file_bytes),
        most_bytes_(file_bytes * kTimesTheFile + kBytesAnyway),
        steps_left_(file_bytes * kTimesTheFile + kStepsAnyway),
        held_bytes_(file_bytes) {}

  /// Before so many more bytes are allocated. A place is a text or a function that makes one.
  /// Throws InputError that names it.
  template <class Place>
  void hold(std::uint64_t bytes, const Place& place) {
    if (bytes > most_bytes_ - held_bytes_) [[unlikely]]
      too_large(bytes, text_of(place));
    held_bytes_ += bytes;
  }
  /// After so many bytes were freed.
  void give_back(std::uint64_t bytes) { held_bytes_ -= bytes; }

  /// Before so many steps: a value looked at, some bytes copied or compared. Throws InputError.
  template <class Place>
  void work(std::uint64_t steps, const Place& place) {
    if (steps > steps_left_) [[unlikely]]
      too_long(text_of(place));
    steps_left_ -= steps;
  }

  /// Room for so many more elements, doubled as the vector itself would; both buffers are held
  /// while one is moved into the other.
  template <class T, class Place>
  void make_room(std::vector<T>& list, std::uint64_t more, const Place& place) {
    if (more <= list.capacity() - list.size()) [[likely]]
      return;
    if (more > most_bytes_) too_large(more, text_of(place));
    const std::uint64_t before = list.capacity();
    const std::uint64_t after = std::max<std::uint64_t>(2 * before, list.size() + more);
    constexpr std::uint64_t each =
        sizeof(T);  // NOLINT(bugprone-sizeof-expression): of pointers, too
    hold(allocated(after * each), place);
    list.reserve(after);
    if (before != 0) give_back(allocated(before * each));
  }

  /// What an allocation of so many bytes takes of the heap.
  static constexpr std::uint64_t allocated(std::uint64_t bytes) {
    return std::max<std::uint64_t>(32, align_up(bytes + 8, 16));
  }
  /// What such a text takes beyond the std::string itself.
  static constexpr std::uint64_t allocated_text(std::uint64_t bytes) {
    return bytes < 16 ? 0 : allocated(bytes + 1);
  }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }

 private:
  template <class Place>
  static std::string text_of(const Place& place) {
    if constexpr (std::invocable<const Place&>) {
      return place();
    } else {
      return std::string(place);
    }
  }
  [[noreturn]] void too_large(std::uint64_t bytes, const std::string& place) const;
  [[noreturn]] void too_long(const std::string& place) const;

  std::string file_;
  std::uint64_t file_bytes_;
  std::uint64_t most_bytes_;
  std::uint64_t steps_left_;
  std::uint64_t held_bytes_;
};

}  // namespace gapless
