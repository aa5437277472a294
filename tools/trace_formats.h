// TraceFormat: the kinds of files that gapless convert writes, by name and by ending.
//
//   gtrace      run.gtrace             all of a trace
//   pickle      run.pickle             a snapshot of PyTorch's
//   minimalloc  run.csv                one for each device: run-gpu0.csv, run-gpu1.csv
//   perfetto    run.perfetto.json
//   speedscope  run.speedscope.json
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "allocator/trace/trace.h"

namespace gapless::tools {

enum class TraceFormat : std::uint8_t { gtrace, pickle, minimalloc, perfetto, speedscope };

/// "gtrace", "pickle", ...
std::vector<std::string> trace_format_names();
/// Nothing for a name that is none.
std::optional<TraceFormat> trace_format_named(const std::string& name);
/// What a file of that name is; nothing for an ending that says nothing.
std::optional<TraceFormat> trace_format_of(const std::filesystem::path& file);

/// The name of a file of that format beside `input`.
std::filesystem::path with_ending(std::filesystem::path input, TraceFormat format);

/// The files that hold traces of so many devices: `output`, or one for each device.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& output, TraceFormat format,
                                            const std::vector<Trace>& traces);

struct Written {
  std::uint64_t bytes = 0;
  std::vector<std::string> notes;  // what was added or is missing, in words
};
/// Writes them to files_of(). Each is written whole or not at all. Throws InputError.
Written write_traces(const std::vector<Trace>& traces, TraceFormat format,
                     const std::vector<std::filesystem::path>& files);

}  // namespace gapless::tools
