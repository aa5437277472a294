// Meeting: shared memory in which the ranks of one communicator exchange small messages.
//
//   rank      0                1                2
//   turn 7    [sum, 3 x f32]   [sum, 3 x f32]   (not here yet)      all wait for rank 2
//   turn 8    [ ... ]                                               the other half: read 7 in peace
//   checks    [ring of what was done last]                          also for what is too large to
//   wait mail      0 -> 1 [..][..]  1 -> 0 [..]                          send and receive
//
// What a rank is about to do (operation, count, type) stands beside its data, so that ranks who do
// different things are told so instead of waiting for each other. A rank that ended, or that does
// not come in time, is waited for no more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gapless::simgpu::nccl {

/// Messages up to this size are exchanged; of larger ones only sizes are compared.
constexpr std::size_t kMessageBytes = std::size_t{64} << 10;

/// What a rank does in one turn; equal on all ranks of a correct program.
struct Signature {
  int operation = 0;
  int type = 0;
  int root = 0;
  int reduction = 0;
  std::uint64_t count = 0;

  bool operator==(const Signature&) const = default;
};

/// What a rank did in the collective of that number (1, 2, ...; written last).
struct Check {
  std::atomic<std::uint64_t> number;
  Signature signature;
};

/// What one rank tells another.
struct Told {
  bool known;    // whether data means something
  bool in_part;  // only where places says so, for each of its bytes
  unsigned char data[kMessageBytes];
  unsigned char places[kMessageBytes];  // takes no memory until it is needed
};

/// A rank's data in one turn. Only small collectives take turns: they wait for each other.
struct Message {
  std::atomic<std::uint64_t> turn;  // 1, 2, ...: written last
  Told told;
};

class Meeting {
 public:
  /// Joins the meeting of that name, making it where it is not there yet, with that GPU of all that
  /// are installed. Throws std::runtime_error.
  Meeting(const std::string& name, int ranks, int rank, int gpu);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int rank() const { return rank_; }

  /// A rank's message of a turn: room for two turns, since nobody can be further ahead.
  [[nodiscard]] Message& message(int rank, std::uint64_t turn) const;

  /// A rank's check of a collective; those of the last kChecks are kept.
  [[nodiscard]] Check& check(int rank, std::uint64_t number) const;
  static constexpr std::uint64_t kChecks = 64;

  /// The next letter from one rank to another; `full` says that it waits to be read.
  struct Letter {
    std::atomic<std::uint32_t> full;
    std::uint64_t bytes;
    Told told;
  };
  static constexpr std::uint64_t kLetters = 4;
  [[nodiscard]] Letter& letter(int from, int to, std::uint64_t number) const;

  /// Whether that rank has joined; and how many have.
  [[nodiscard]] bool came(int rank) const { return header().members[rank].pid.load() != 0; }
  [[nodiscard]] int joined() const { return header().joined.load(); }

  /// Whether that rank joined, and its process has ended since.
  [[nodiscard]] bool ended(int rank) const;
  /// A rank that joined with the same GPU, which NCCL does not have; -1 where none did.
  [[nodiscard]] int rank_on_same_gpu() const;

 private:
  struct Member {
    std::atomic<int> pid;  // 0: not here yet; written last
    std::atomic<int> gpu;
  };
  struct Header {
    std::atomic<int> joined;
    Member members[1];  // one for each rank
  };
  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(base_); }
  [[nodiscard]] std::size_t checks_at() const;
  [[nodiscard]] std::size_t messages_at() const;
  [[nodiscard]] std::size_t letters_at() const;

  int ranks_;
  int rank_;
  std::size_t bytes_ = 0;
  char* base_ = nullptr;
};

}  // namespace gapless::simgpu::nccl
