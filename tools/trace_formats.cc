#include "tools/trace_formats.h"

#include <functional>
#include <iterator>
#include <map>

#include "allocator/base/files.h"
#include "allocator/trace/compact_format.h"
#include "allocator/trace/minimalloc.h"
#include "allocator/trace/perfetto.h"
#include "allocator/trace/snapshot_writer.h"
#include "allocator/trace/speedscope.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char* name;
  const char* ending;
};
constexpr Format kFormats[] = {{"gtrace", ".gtrace"},
                               {"pickle", ".pickle"},
                               {"minimalloc", ".csv"},
                               {"perfetto", ".perfetto.json"},
                               {"speedscope", ".speedscope.json"}};
// What else people call them.
constexpr std::pair<const char*, TraceFormat> kOtherEndings[] = {{".pkl", TraceFormat::pickle},
                                                                 {".json", TraceFormat::perfetto}};

// Writes a file and says how large it is.
std::uint64_t write_counted(const fs::path& file, const ProduceBytes& produce) {
  std::uint64_t bytes = 0;
  write_file(file.string(), [&](const WriteBytes& write) {
    produce([&](std::string_view piece) {
      bytes += piece.size();
      write(piece);
    });
  });
  return bytes;
}

}  // namespace

std::vector<std::string> trace_format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::optional<TraceFormat> trace_format_named(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kFormats); ++i) {
    if (name == kFormats[i].name) return static_cast<TraceFormat>(i);
  }
  return {};
}

std::optional<TraceFormat> trace_format_of(const fs::path& file) {
  const std::string name = file.filename().string();
  for (std::size_t i = 0; i < std::size(kFormats); ++i) {
    if (name.ends_with(kFormats[i].ending)) return static_cast<TraceFormat>(i);
  }
  for (const auto& [ending, format] : kOtherEndings) {
    if (name.ends_with(ending)) return format;
  }
  return {};
}

fs::path with_ending(fs::path input, TraceFormat format) {
  return input.replace_extension(kFormats[static_cast<std::size_t>(format)].ending);
}

std::vector<fs::path> files_of(const fs::path& output, TraceFormat format,
                               const std::vector<Trace>& traces) {
  if (format != TraceFormat::minimalloc || traces.size() <= 1) return {output};
  std::vector<fs::path> files;
  std::map<int, int> of_device;  // of several processes there may be more than one
  for (const Trace& trace : traces) {
    const int count = ++of_device[trace.device];
    const std::string name = output.stem().string() + "-gpu" + std::to_string(trace.device) +
                             (count == 1 ? "" : "-" + std::to_string(count)) +
                             output.extension().string();
    files.push_back(output.parent_path() / name);
  }
  return files;
}

Written write_traces(const std::vector<Trace>& traces, TraceFormat format,
                     const std::vector<fs::path>& files) {
  Written written;
  switch (format) {
    case TraceFormat::gtrace: {
      const std::string bytes = write_compact(traces);
      write_file(files.front().string(), bytes);
      written.bytes = bytes.size();
      break;
    }
    case TraceFormat::pickle: {
      const WrittenSnapshot snapshot = write_snapshot(traces);
      write_file(files.front().string(), snapshot.bytes);
      written.bytes = snapshot.bytes.size();
      for (const std::string& added : snapshot.added) {
        written.notes.push_back(added + " were not recorded; they are laid out by gapless");
      }
      break;
    }
    case TraceFormat::minimalloc:
      for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string bytes = write_minimalloc(traces.at(i));
        write_file(files[i].string(), bytes);
        written.bytes += bytes.size();
      }
      break;
    case TraceFormat::perfetto:
      written.bytes = write_counted(
          files.front(), [&](const WriteBytes& write) { write_perfetto(traces, write); });
      break;
    case TraceFormat::speedscope:
      written.bytes = write_counted(
          files.front(), [&](const WriteBytes& write) { write_speedscope(traces, write); });
      break;
  }
  return written;
}

}  // namespace gapless::tools
