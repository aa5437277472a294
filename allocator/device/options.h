// The options of gapless: one table, from which the structure, the environment parser, `--help` and
// docs/options.md are made.
//
//   GAPLESS_CONF="page_size:8MiB,limit:14GiB"        keys and values of the table below
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/check/requested_checks.h"
#include "allocator/driver/driver.h"

namespace gapless {

/// Whether and how a stream may have memory that others freed.
enum class CrossStream : std::uint8_t {
  budget,     // wait on the device, for what was freed longest ago, once the budget is used up
  completed,  // only what is known to be done; else new memory
  wait,       // wait on the device for anything, rather than take new memory
  never,      // only when memory runs out, as PyTorch's allocator
};

/// A signal that a program may have to itself.
enum class DumpSignal : std::uint8_t { none, usr1, usr2 };

//   X(type, name, default, help)     types: bytes, percent, flag, count, folder, and the choices
//                                    streams_choice, share_choice, signal_choice, checks_choice,
//                                    fence_choice
#define GAPLESS_OPTIONS(X)                                                                         \
  X(bytes, page_size, std::uint64_t{2} << 20,                                                      \
    "size of a physical page; larger pages mean fewer driver calls and more memory lost")          \
  X(count, handle_parts, 8192,                                                                     \
    "new memory comes in pieces of up to 16 pages, each at most one of so many parts of what is "  \
    "there, four times as much while nothing is freed; 0: single pages, which take more driver "   \
    "calls and lose a little less")                                                                \
  X(bytes, limit, UINT64_MAX, "never reserve more than this on one device")                        \
  X(bytes, soft_limit, UINT64_MAX,                                                                 \
    "give free pages back, waiting for the device, when more than this is reserved")               \
  X(bytes, headroom, 0, "leave this much of the device to other processes where that is possible") \
  X(bytes, spill, 0,                                                                               \
    "host memory to go on with, slowly, where a request would fail otherwise; 0: none")            \
  X(percent, copies_slack, 3.0,                                                                    \
    "grow rather than make a window while reserved stays within this much above what is "          \
    "allocated now, while most large blocks are copied into slightly larger ones, as growing "     \
    "key-value caches are")                                                                        \
  X(count, window_factor, 4,                                                                       \
    "pages mapped in windows, at most this many times the pages there are (several streams: "      \
    "twice)")                                                                                      \
  X(bytes, window_floor, std::uint64_t{16} << 30,                                                  \
    "that much may be mapped in windows in any case, however little memory there is")              \
  X(streams_choice, cross_stream, CrossStream::budget,                                             \
    "memory that another stream freed: budget, completed, wait or never")                          \
  X(percent, stream_budget, 3.0,                                                                   \
    "grow by this much of peak allocated rather than have one stream wait for another")            \
  X(share_choice, share, ShareType::fd,                                                            \
    "how memory may be given to other processes: fd, fabric or none")                              \
  X(flag, windows, true, "map scattered free pages side by side; off: like expandable segments")   \
  X(flag, edge_sharing, true, "a window may begin and end inside partly used pages")               \
  X(flag, vmm, true, "use virtual memory management where the device has it")                      \
  X(checks_choice, check, RequestedChecks{},                                                       \
    "mistakes in the use of memory to look for: poison, redzones, fence; nvtx: tell "              \
    "compute-sanitizer of blocks; joined by +, or none")                                           \
  X(fence_choice, fence, FencedRequests{},                                                         \
    "requests that get a fence: 1/1000, 4MiB-1GiB, train.py:42, joined by +, or none")             \
  X(flag, check_stop, false, "abort where a check finds something")                                \
  X(folder, dump_on_oom, "",                                                                       \
    "folder to write to where a request fails: what was live, why it failed, PyTorch's snapshot")  \
  X(signal_choice, dump_signal, DumpSignal::none,                                                  \
    "signal at which a dump is written, to that folder or the one the program runs in: USR1, "     \
    "USR2 or none; the program must not use it itself")                                            \
  X(folder, record, "",                                                                            \
    "folder to record to, one file a process: every request, for gapless replay, inspect and "     \
    "view")                                                                                        \
  X(flag, record_stacks, true,                                                                     \
    "record where in the program requests come from; off: a few nanoseconds a request, not "       \
    "microseconds")                                                                                \
  X(flag, live, true, "other programs of the same user may look (gapless top), record and dump")

enum class OptionType : std::uint8_t {
  bytes,
  percent,
  flag,
  count,
  folder,
  streams_choice,
  share_choice,
  signal_choice,
  checks_choice,
  fence_choice,
};

/// One value for each option, by name.
struct Options {
#define GAPLESS_MEMBER_bytes(name, value) std::uint64_t name = value;
#define GAPLESS_MEMBER_percent(name, value) double name = value;
#define GAPLESS_MEMBER_flag(name, value) bool name = value;
#define GAPLESS_MEMBER_count(name, value) std::uint64_t name = value;
#define GAPLESS_MEMBER_folder(name, value) std::string name = value;
#define GAPLESS_MEMBER_streams_choice(name, value) CrossStream name = value;
#define GAPLESS_MEMBER_share_choice(name, value) ShareType name = value;
#define GAPLESS_MEMBER_signal_choice(name, value) DumpSignal name = value;
#define GAPLESS_MEMBER_checks_choice(name, value) RequestedChecks name = value;
#define GAPLESS_MEMBER_fence_choice(name, value) FencedRequests name = value;
#define GAPLESS_MEMBER(type, name, value, help) GAPLESS_MEMBER_##type(name, value)
  GAPLESS_OPTIONS(GAPLESS_MEMBER)
#undef GAPLESS_MEMBER
#undef GAPLESS_MEMBER_bytes
#undef GAPLESS_MEMBER_percent
#undef GAPLESS_MEMBER_flag
#undef GAPLESS_MEMBER_count
#undef GAPLESS_MEMBER_folder
#undef GAPLESS_MEMBER_streams_choice
#undef GAPLESS_MEMBER_share_choice
#undef GAPLESS_MEMBER_signal_choice
#undef GAPLESS_MEMBER_checks_choice
#undef GAPLESS_MEMBER_fence_choice
};

struct OptionFacts {
  std::string_view name;
  OptionType type;
  std::string default_text;
  std::string_view help;
};

/// Every option, in the table's order.
std::span<const OptionFacts> option_table();

/// Sets one option from text; what was one in earlier versions only is passed over. False, with the
/// cause in `error`, where the name or the value is wrong; an unknown name brings the nearest known
/// one. `options` changes only on success.
bool set_option(Options& options, std::string_view name, std::string_view value,
                std::string& error);

/// Reads "key:value,key:value". What is wrong is left out and described in `warnings`, one text
/// for each; the rest is taken.
Options parse_options(std::string_view text, std::vector<std::string>& warnings);

/// The same where nothing may be wrong: who asks for a limit is not to run without it. Throws
/// InputError that names every key, value and cause, after `from` (where the text comes from).
Options read_options(std::string_view text, std::string_view from = "");

/// The names in such a text that were options in earlier versions only: they change nothing.
std::vector<std::string> passed_over(std::string_view text);

/// The options of GAPLESS_CONF, read anew at each call. Throws InputError as read_options().
Options options_from_environment();

/// The value as set_option would read it.
std::string option_text(const Options& options, std::string_view name);

}  // namespace gapless
