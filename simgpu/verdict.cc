#include "simgpu/verdict.h"

#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "allocator/base/bytes.h"

namespace gapless::simgpu {
namespace {

using How = ProcessEnd::How;
using Fits = Verdict::Fits;

// Whether the process itself gave up, rather than being ended by others.
bool gave_up(const ProcessEnd& end) {
  return end.how == How::exited ? end.code != 0 : end.how == How::signalled && end.code == SIGABRT;
}

// What its exception is, a process tells before it is on its way out: a launcher that ends the
// other ranks when one has failed may meet it there.
bool was_ended(const ProcessEnd& end) {
  return end.how == How::not_known || end.how == How::running || end.how == How::signalled ||
         end.how == How::stopped;
}

bool ended_well(const ProcessEnd& end) {
  return end.how == How::continued || (end.how == How::exited && end.code == 0);
}

// A server that the program had started ends when the program needs it no more.
bool was_done(const ProcessFacts& facts) {
  return facts.end.how == How::stopped && !facts.command_failed && !facts.exception &&
         facts.out_of_memory == facts.survived;
}

// Of the errors that follow a refusal in the same breath, the refusal is the cause; where memory
// was had again in between, it is not.
bool ended_by_refusal(const ProcessFacts& facts) {
  if (facts.thread_ended) return ended_well(facts.end) || gave_up(facts.end);
  // A notebook's kernel hands its exceptions to who asked, and ends well itself.
  const bool exited_well = facts.end.how == How::exited && facts.end.code == 0;
  if (facts.command_failed && (exited_well || facts.end.how == How::stopped) &&
      facts.out_of_memory > facts.survived) {
    return true;
  }
  const bool raised = facts.exception && facts.exception->out_of_memory;
  if (raised && was_ended(facts.end)) return true;
  if (!gave_up(facts.end)) return false;
  if (raised) return true;
  return facts.out_of_memory > facts.survived;
}

std::string how_it_ended(const ProcessFacts& facts) {
  std::string text;
  switch (facts.end.how) {
    case How::not_known:
      if (!facts.exception) {
        return facts.host_memory_ran_out
                   ? "it left no word of its end: it was killed, most likely by the system, since "
                     "this machine's own memory had run out"
                   : "it left no word of its end: it was killed, most likely";
      }
      text = "it was ended by others on its way out";
      break;
    case How::running:
      return "it was still running when the command had ended: let the command end it, or wait for "
             "it";
    case How::continued:
      return "the program that took its place is judged for itself";
    case How::replaced:
      return "another program took its place, of whose end nothing is known";
    case How::stopped:
      text = fmt::format("the program itself ended it, by {}", signal_name(facts.end.code));
      break;
    case How::exited:
      text = fmt::format("it ended with status {}", facts.end.code);
      break;
    case How::signalled:
      text = fmt::format("it was ended by {}", signal_name(facts.end.code));
      if (facts.end.code == SIGKILL && facts.host_memory_ran_out) {
        text += " when this machine's own memory had run out";
      }
      break;
  }
  if (facts.exception) {
    text += fmt::format(" ({}{}{})", facts.exception->type,
                        facts.exception->text.empty() ? "" : ": ", facts.exception->text);
  }
  if (!facts.not_simulated.empty()) {
    text += fmt::format("; it had asked for what is not simulated: {}",
                        fmt::join(facts.not_simulated, ", "));
  }
  if (!facts.too_few_gpus.empty()) text += "; " + facts.too_few_gpus;
  return text;
}

// A part of the program that may have gone on without a GPU; null where there is none.
const std::string* linked_runtime(const ProcessFacts& facts) {
  for (const std::string& what : facts.not_simulated) {
    if (what.starts_with(kLinkedRuntime)) return &what;
  }
  return nullptr;
}

}  // namespace

std::uint64_t Growth::lasts_steps() const {
  return grown_bytes == 0 ? UINT64_MAX
                          : static_cast<std::uint64_t>(static_cast<double>(left_bytes) /
                                                       static_cast<double>(grown_bytes) *
                                                       static_cast<double>(steps));
}

// A loss kept as a number of its own, 512 bytes a step, is nobody's concern.
bool Growth::matters() const { return lasts_steps() < 100'000; }

std::string Growth::text() const {
  return fmt::format(
      "what was allocated grew over the last {} steps, by {} a step: going on so, the {} that are "
      "left are taken after {} more (the lines: `gapless dryrun --record run.pickle`, then "
      "`gapless inspect run.*.pickle`)",
      steps, format_bytes(grown_bytes / steps), format_bytes(left_bytes), lasts_steps());
}

std::string name_of(How how) {
  switch (how) {
    case How::running:
      return "running";
    case How::exited:
      return "exited";
    case How::signalled:
      return "signal";
    case How::stopped:
      return "stopped";
    case How::continued:
      return "continued";
    case How::replaced:
      return "replaced";
    case How::not_known:
      break;
  }
  return "not known";
}

std::string signal_name(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string Verdict::text() const {
  switch (fits) {
    case Fits::yes:
      return caught == 0 ? "yes" : fmt::format("yes, after {} out of memory", caught);
    case Fits::no:
      return "no";
    case Fits::not_known:
      break;
  }
  return "not known";
}

Verdict judge(const ProcessFacts& facts) {
  Verdict verdict;
  const auto garbage_decides = [&](std::string reason) {
    verdict.fits = Fits::not_known;
    verdict.by_garbage = true;
    verdict.reason = std::move(reason);
  };
  if (ended_by_refusal(facts)) {
    verdict.fits = Fits::no;
    verdict.caught = facts.survived;
    if (facts.waiting && facts.waiting->bytes >= facts.waiting->room_bytes) {
      garbage_decides(fmt::format(
          "it ran out of memory while {} were held by reference cycles that Python's garbage "
          "collector had not come to, which it may in another run (gc.collect() before the step "
          "frees them)",
          format_bytes(facts.waiting->bytes)));
    } else if (facts.in_pieces_after) {
      garbage_decides(fmt::format(
          "it ran out of memory with as much free as was asked for, in pieces, and where those lie "
          "hangs on when Python's garbage collector comes, which freed {} at once: in another run "
          "it may fit (gc.collect() after each step shows whether it does)",
          format_bytes(*facts.in_pieces_after)));
    }
  } else if (ended_well(facts.end) || was_done(facts)) {
    verdict.fits = Fits::yes;
    verdict.caught = facts.out_of_memory;
    if (facts.asserted) {
      verdict.fits = Fits::not_known;
      verdict.reason =
          "a kernel's assertion does not hold, and a GPU does nothing more for the process then";
      return verdict;
    }
    // Twice as much: while it is there, other memory lies elsewhere, and cached memory fits less.
    if (verdict.caught == 0 && facts.collected &&
        2 * facts.collected->bytes > facts.collected->room_bytes) {
      garbage_decides(fmt::format(
          "Python's garbage collector freed {} at once, which reference cycles held; in another "
          "run it may come later, and there was room for no more than {} (gc.collect() after each "
          "step frees them in time)",
          format_bytes(facts.collected->bytes), format_bytes(facts.collected->room_bytes)));
    } else if (const std::string* const without_gpu = linked_runtime(facts)) {
      verdict.fits = Fits::not_known;
      verdict.reason =
          *without_gpu +
          " cannot run on a simulated GPU, and found none: what it would use there is not counted";
    } else if (facts.without_step != 0) {
      verdict.fits = Fits::not_known;
      verdict.reason = fmt::format(
          "it was stopped (--steps) before {} had made a step, whose states were not there yet: "
          "more steps would tell",
          facts.without_step == 1 ? "an optimizer"
                                  : fmt::format("{} optimizers", facts.without_step));
    } else if (facts.grew_when_stopped && facts.grew_when_stopped->matters()) {
      verdict.fits = Fits::not_known;
      verdict.reason = "it was stopped (--steps) while " + facts.grew_when_stopped->text();
    }
  } else {
    verdict.caught = facts.out_of_memory;
    verdict.reason = how_it_ended(facts);
  }
  return verdict;
}

}  // namespace gapless::simgpu
