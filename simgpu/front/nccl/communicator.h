// Communicator: one rank's end of a meeting, and the operations it is about to do.
//
//   ncclGroupStart   send to 1, receive from 1, all-reduce ...     queued
//   ncclGroupEnd     each is advanced in turn until all are done, or nobody comes
//
// Collectives of one communicator follow each other; sends and receives wait only for each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simgpu/front/nccl/meeting.h"
#include "simgpu/process/process.h"

namespace gapless::simgpu::nccl {

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
};

/// The data of one rank in a collective; nothing where none of it is known.
struct Contribution {
  bool known = false;
  std::vector<unsigned char> data;
  /// Of each byte whether it is known, where not all are: a count beside a loss.
  std::vector<unsigned char> places;
};

struct Communicator {
  std::string name;
  int ranks = 1;
  int rank = 0;
  int device = 0;
  std::unique_ptr<Meeting> meeting;
  std::uint64_t number = 0;  // of the last collective
  std::uint64_t turn = 0;    // of the last small one
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  bool alone = false;  // somebody did not come: nobody is waited for any more
  /// By rank here, who does not run (simgpu/process/ranks.h), as far as that is known. They are
  /// taken to do what the first that runs does.
  std::vector<bool> absent;

  /// On that device of the process. Throws std::runtime_error where there is no shared memory.
  static Communicator* join(const std::string& name, int ranks, int rank, int device);

  /// Whether it has the GPU of another rank that has come. Says so then, and last_error() does.
  [[nodiscard]] bool shares_its_gpu() const;

  [[nodiscard]] int first_present() const;
  /// Once all that run have come, the others are absent.
  void note_absent();
  /// All ranks are this process's: none is absent.
  void all_here();
};

/// What the process was last told of an error, as ncclGetLastError() says it.
const std::string& last_error();

/// One step of an operation.
enum class Progress { waiting, done, refused };

struct Operation {
  Communicator* communicator = nullptr;
  bool collective = false;
  std::function<Progress()> advance;
  std::function<void()> give_up;  // nobody came: end it with what is here
};

/// Runs an operation now, or keeps it for the end of the group. A Result.
int submit(Operation operation);
/// Runs it now, also inside a group.
int complete(Operation operation);
void begin_group();
int end_group();

/// A collective in which every rank tells `bytes` bytes at `source` (nullptr: none) and gets to
/// know everybody's. `then` gets them by rank; empty where the operation was too large, or is
/// captured.
int collective(Communicator& communicator, const Signature& signature, const void* source,
               std::size_t bytes, void* stream,
               const std::function<void(const std::vector<Contribution>&)>& then);

int send(Communicator& communicator, const void* source, std::size_t bytes, int peer, void* stream);
int receive(Communicator& communicator, void* target, std::size_t bytes, int peer, void* stream);

/// What is known of device memory; and what becomes known of it.
Contribution read_known(const void* source, std::size_t bytes);
void write_known(void* target, const Contribution& contribution, std::size_t offset,
                 std::size_t bytes);
void forget(void* target, std::size_t bytes);

}  // namespace gapless::simgpu::nccl
