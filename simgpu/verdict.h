// Verdict: what may be said of whether a process fits, by how it ended and what it was refused.
//
//   ended well             never out of memory                   yes
//                          out of memory twice, and went on      yes, after 2 out of memory
//                          in less room than twice what one      not known
//                          collection of Python's garbage freed
//                          stopped (--steps) before each         not known
//                          optimizer had made a step, or while
//                          more was allocated from step to step
//   ended by another of    which ended well, as the others did   yes
//   the program's own      with an error, or others did          not known
//                          with an error, and it was last out    no
//                          of memory
//   ended with an error    by out of memory                      no
//                          with enough garbage to be collected   not known
//                          in pieces, after such a collection    not known
//                          by something else                     not known
//   no word of its end     killed, still running, ...            not known
//                          after an exception, out of memory     no
//
// A wrong "yes" is the worst answer there is: what ended with an error, or said nothing of its end,
// is never "yes".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gapless::simgpu {

struct ProcessEnd {
  /// `stopped`: by another process of the command, after it had said its last words.
  /// `continued`: by another program in its place that used GPUs too, and is judged for itself.
  /// `replaced`: by one that did not, of whose end nothing is known.
  enum class How { not_known, running, exited, signalled, stopped, continued, replaced };
  How how = How::not_known;
  int code = 0;  // the exit status, or the signal that ended it
};

/// "exited", "signal", ...: as JSON has it.
std::string name_of(ProcessEnd::How how);
/// "SIGKILL"
std::string signal_name(int signal);

/// A file with the CUDA runtime linked into it found no GPU: what it would have used is not known.
inline constexpr std::string_view kLinkedRuntime = "the CUDA runtime linked into ";

/// What was allocated grew from step to step (simgpu/process/step_growth.h), on a GPU with so much
/// left.
struct Growth {
  std::uint64_t steps = 0;
  std::uint64_t grown_bytes = 0;
  std::uint64_t left_bytes = 0;

  /// After how many more steps nothing is left.
  [[nodiscard]] std::uint64_t lasts_steps() const;
  /// Whether a training may have so many steps.
  [[nodiscard]] bool matters() const;
  /// A sentence.
  [[nodiscard]] std::string text() const;
};

struct ProcessFacts {
  ProcessEnd end;
  /// Requests that failed for good, and how many of them it lived to be given memory again after.
  std::uint64_t out_of_memory = 0;
  std::uint64_t survived = 0;
  /// A thread ended by running out of memory, which nobody caught.
  bool thread_ended = false;
  /// A kernel's assertion did not hold (simgpu/torch/index_checks.h), whatever the program made of
  /// the error.
  bool asserted = false;
  /// It is a helper of the command's, and the command ended with an error.
  bool command_failed = false;
  /// The system ended processes since this machine's own memory had run out.
  bool host_memory_ran_out = false;
  /// The exception that ended it, where its language has such and told.
  struct Exception {
    std::string type;
    std::string text;
    bool out_of_memory = false;
  };
  std::optional<Exception> exception;
  /// Memory that reference cycles held until Python's garbage collector came, which is at another
  /// time in another run: the most that one collection freed on a GPU, and what room was left there
  /// at the peak; what was waiting when a request failed, and by how much it failed at least.
  struct Garbage {
    std::uint64_t bytes = 0;
    std::uint64_t room_bytes = 0;  // or what was short
  };
  std::optional<Garbage> collected;
  std::optional<Garbage> waiting;
  /// Where a request failed although as much was free, in pieces: what one collection had freed on
  /// that GPU before, if that was as much as was asked for. Where the pieces lie hangs on when it
  /// came.
  std::optional<std::uint64_t> in_pieces_after;
  /// What it asked for that is not simulated: "cuFoo", kLinkedRuntime + "libfoo.so".
  std::vector<std::string> not_simulated;
  /// The command asked for more GPUs than there are: what to tell of it
  /// (simgpu/process/too_few_gpus.h).
  std::string too_few_gpus;
  /// Optimizers that had made no step, and had made no states, when it was stopped (--steps).
  std::uint64_t without_step = 0;
  /// It was stopped (--steps) while this went on.
  std::optional<Growth> grew_when_stopped;
};

struct Verdict {
  enum class Fits { yes, no, not_known };
  Fits fits = Fits::not_known;
  /// Out of memory that did not end it.
  std::uint64_t caught = 0;
  /// It is not known because reference cycles held memory: another run may fit, or not.
  bool by_garbage = false;
  /// Why it is not known: "it ended with status 1 (ValueError: ...)".
  std::string reason;

  /// "yes", "yes, after 2 out of memory", "no", "not known"
  [[nodiscard]] std::string text() const;
};

Verdict judge(const ProcessFacts& facts);

}  // namespace gapless::simgpu
