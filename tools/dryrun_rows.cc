#include "tools/dryrun_rows.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "allocator/base/terminal_text.h"
#include "allocator/driver/call.h"
#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/left_open.h"
#include "tools/older_gpu.h"
#include "tools/same_program.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/torch_settings.h"

namespace gapless::tools {
namespace {

using nlohmann::json;
using simgpu::ProcessEnd;
using simgpu::ProcessRecord;
using simgpu::Verdict;
using Fits = Verdict::Fits;

// Calls by which memory is had, mapped and given back.
std::uint64_t memory_calls(const ProcessRecord& record) {
  std::uint64_t sum = 0;
  for (const DriverCall call :
       {DriverCall::mem_create, DriverCall::mem_release, DriverCall::address_reserve,
        DriverCall::address_free, DriverCall::mem_map, DriverCall::mem_unmap,
        DriverCall::mem_set_access, DriverCall::mem_alloc, DriverCall::mem_free}) {
    sum += record.calls[static_cast<std::size_t>(call)];
  }
  return sum;
}

json calls_of(const ProcessRecord& record) {
  json calls = json::object();
  for (std::size_t i = 0; i < kDriverCalls; ++i) {
    if (record.calls[i] == 0) continue;
    calls[std::string(name_of(static_cast<DriverCall>(i)))] = record.calls[i];
  }
  return calls;
}

json words_of(const char* text) {
  json words = json::array();
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// What served the process. A program may install an allocator of its own, and gapless may not be
// had for its torch (which was said).
std::string allocator_used(const ProcessReport& report, const std::string& asked) {
  const ProcessRecord& record = report.record;
  if (!record.has_torch) {
    const bool created = record.calls[static_cast<std::size_t>(DriverCall::mem_create)] != 0;
    return record.has_gapless && created ? "gapless" : "cudaMalloc";
  }
  const std::string expected = asked == "gapless" ? "gapless"
                               : asked == "async" ? "cudaMallocAsync"
                                                  : "native";
  const std::string unheard = asked == "gapless" && !record.has_adapter ? "native" : expected;
  const std::string used = report.torch.value("allocator", unheard);
  if (used == expected) return asked;
  // Until memory is asked for, torch has not made the allocator.
  const bool allocated =
      std::any_of(std::begin(record.devices), std::end(record.devices),
                  [](const auto& device) { return device.peak_allocated_bytes != 0; });
  return allocated || used == "gapless" ? used : asked;
}

json end_of(const ProcessEnd& end) {
  json row = {{"how", name_of(end.how)}};
  if (end.how == ProcessEnd::How::exited) row["status"] = end.code;
  const bool by_signal =
      end.how == ProcessEnd::How::signalled || end.how == ProcessEnd::How::stopped;
  if (by_signal) row["signal"] = simgpu::signal_name(end.code);
  return row;
}

// The request that failed: the one that ended the process, else the first. Null where none did.
json out_of_memory_of(const ProcessReport& report) {
  const ProcessRecord& record = report.record;
  const bool ended_by_it = report.verdict.fits == Fits::no;
  if (record.out_of_memory == 0 && !ended_by_it) return {};
  json request = member(report.torch, ended_by_it ? "last_out_of_memory" : "first_out_of_memory");
  if (!request.is_object()) {  // without Python, or by an allocator that does not tell it
    request = {{"device", nullptr},         {"asked_bytes", nullptr}, {"allocated_bytes", nullptr},
               {"reserved_bytes", nullptr}, {"step", nullptr},        {"line", nullptr},
               {"library_line", nullptr}};
    if (record.out_of_memory != 0) {
      const ProcessRecord::OutOfMemory& known = ended_by_it ? record.last : record.first;
      request["device"] = known.device;
      request["asked_bytes"] = known.asked_bytes;
      request["allocated_bytes"] = known.allocated_bytes;
      request["reserved_bytes"] = known.reserved_bytes;
    }
    if (ended_by_it) request["step"] = member(report.torch, "steps");
  }
  if (ended_by_it && request["line"].is_null()) {
    for (const char* const told : {"thread_out_of_memory", "exception"}) {
      const json lines = member(report.torch, told);
      if (!lines.is_object() || !lines.value("out_of_memory", true)) continue;
      request["line"] = member(lines, "line");
      request["library_line"] = member(lines, "library_line");
    }
  }
  return request;
}

std::string count_text(const json& count) {
  return count.is_number() ? with_commas(count.get<std::uint64_t>()) : "-";
}

// "2.24 GiB asked in step 1 (train.py:12), with 12.91 GiB allocated and 14.89 GiB reserved on GPU
// 0"
std::string request_text(const json& request, bool has_torch) {
  if (request["asked_bytes"].is_null()) return "out of memory" + lines_text(request);
  std::string text = size_text(request["asked_bytes"]) + " asked";
  if (request["step"].is_number()) text += fmt::format(" in step {}", count_text(request["step"]));
  text += lines_text(request) + ", with " + size_text(request["allocated_bytes"]);
  if (has_torch) {
    text += fmt::format(" allocated and {} reserved", size_text(request["reserved_bytes"]));
  } else {
    text += " in use";
  }
  text += fmt::format(" on GPU {}", request["device"].get<int>());
  if (const json limit = member(request, "limit_bytes"); limit.is_number()) {
    text +=
        fmt::format(", of which the program allows itself {} (memory fraction)", size_text(limit));
  }
  return text;
}

// The gravest of what followed from numbers that nobody knows, where it was first: a size, a flag
// that was read, a size that was made as large as it can be, integers, or another number. Without
// the library that computes numbers nobody tells what was read, and what had a size by it.
json estimates_of(const ProcessReport& report) {
  const ProcessRecord& record = report.record;
  constexpr const char* kNames[simgpu::kEstimates] = {"number", "integer", "bound", "flag", "size"};
  const json all = member(report.torch, "first_estimates");
  for (int kind = simgpu::kEstimates - 1; kind >= 0; --kind) {
    if (record.estimates[kind] == 0) continue;
    const json first = all.is_object() ? member(all, kNames[kind]) : json();
    const auto told = [&](const char* name) {
      return first.is_object() ? member(first, name) : json();
    };
    return {{"kind", kNames[kind]},
            {"count", record.estimates[kind]},
            {"bounded", record.estimates[static_cast<int>(simgpu::Estimate::bound)]},
            {"integers", record.estimates[static_cast<int>(simgpu::Estimate::integer)]},
            {"steered", record.estimates[static_cast<int>(simgpu::Estimate::integer)] +
                            record.estimates[static_cast<int>(simgpu::Estimate::flag)]},
            {"step", told("step")},
            {"line", told("line")},
            {"library_line", told("library_line")}};
  }
  return {};
}

// A sentence on what is not plainly "yes".
json reason_of(const ProcessReport& report, const json& request) {
  const Verdict& verdict = report.verdict;
  const std::string what = request.is_null() ? "" : request_text(request, report.record.has_torch);
  switch (verdict.fits) {
    case Fits::no: {
      std::string text = what;
      if (report.facts.thread_ended) text += "; it ended a thread";
      if (verdict.caught != 0) text += "; out of memory " + times(verdict.caught) + " before";
      return text;
    }
    case Fits::yes: {
      if (verdict.caught == 0) return {};
      const bool went_on = report.facts.survived == report.facts.out_of_memory;
      return fmt::format("out of memory {}, which the program caught{}; first {}",
                         times(verdict.caught),
                         went_on ? " and went on from" : " and asked for no more", what);
    }
    case Fits::not_known:
      break;
  }
  std::string text = verdict.reason + lines_text(member(report.torch, "exception"));
  if (const json assertion = member(report.torch, "assertion"); assertion.is_object()) {
    text += "; " + assertion.value("text", "") + lines_text(assertion);
  }
  if (verdict.caught != 0) {
    text += fmt::format("; out of memory {} before, first {}", times(verdict.caught), what);
  }
  return text;
}

json fits_of(const Verdict& verdict) {
  return verdict.fits == Fits::not_known ? json() : json(verdict.fits == Fits::yes);
}

std::string name_of_process(const json& row) {
  return row["rank"].is_number() ? fmt::format("rank {}", row["rank"].get<int>())
                                 : fmt::format("{}", row["pid"].get<int>());
}

}  // namespace

json rows_of(const std::vector<ProcessReport>& reports, const std::string& allocator,
             int exit_status) {
  json rows = json::array();
  for (const ProcessReport& report : reports) {
    const ProcessRecord& record = report.record;
    const json request = out_of_memory_of(report);
    const json of_process = {
        {"pid", report.pid},
        {"rank", report.rank() < 0 ? json() : json(report.rank())},
        {"allocator", allocator_used(report, allocator)},
        {"steps", member(report.torch, "steps")},
        {"stopped_after_steps", member(report.torch, "stopped_after_steps")},
        {"made_optimizer", member(report.torch, "made_optimizer")},
        {"offloaded_parameter_bytes", member(report.torch, "offloaded_bytes")},
        {"assert_passed_over", member(report.torch, "assert_passed_over")},
        {"choices", member(report.torch, "choices")},
        {"driver_calls", calls_of(record)},
        {"memory_calls", memory_calls(record)},
        {"fits", fits_of(report.verdict)},
        {"verdict", report.verdict.text()},
        {"reason", reason_of(report, request)},
        {"by_garbage", report.verdict.by_garbage},
        {"caught_out_of_memory", report.verdict.caught},
        {"out_of_memory", request},
        {"end", end_of(report.facts.end)},
        {"exception", member(report.torch, "exception")},
        {"assertion", member(report.torch, "assertion")},
        {"compiled", member(report.torch, "compiled")},
        {"built_for", member(report.torch, "built_for")},
        {"drew_from", member(report.torch, "drew_from")},
        {"replaced_settings", member(report.torch, "replaced_settings")},
        {"estimates_from", estimates_of(report)},
        {"unknown", simgpu::kUnknownNames[static_cast<int>(record.unknown)]},
        {"computes_numbers", record.has_torch ? json(record.computes_numbers) : json()},
        {"unknown_workspaces", words_of(record.unknown_workspaces)},
        {"not_simulated", report.facts.not_simulated},
        {"needs_compute_capability",
         record.needs_capability == 0 ? json() : json(capability_text(record.needs_capability))},
        {"data", member(report.torch, "data")},
        {"record", member(report.torch, "record")},
        {"exit_status", exit_status}};
    for (int device = 0; device < ProcessRecord::kDevices; ++device) {
      const ProcessRecord::Device& used = record.devices[device];
      if (used.total_bytes == 0) continue;
      json row = of_process;
      row["device"] = device;
      row["total_bytes"] = used.total_bytes;
      row["compute_capability"] = capability_text(used.capability);
      row["is_named"] = used.is_named;
      row["shared_per_block_bytes"] = used.shared_per_block_bytes;
      row["peak_used_bytes"] = used.peak_used_bytes;
      const std::optional<simgpu::Growth> growth = growth_of(report, device);
      row["growth"] = growth ? json{{"steps", growth->steps},
                                    {"bytes", growth->grown_bytes},
                                    {"left_bytes", growth->left_bytes}}
                             : json();
      const simgpu::StepPeaks& peaks = used.by_step.peaks;
      row["step_peaks"] = peaks.steps == 0 ? json()
                                           : json{{"steps", peaks.steps},
                                                  {"least_bytes", peaks.least_bytes},
                                                  {"most_bytes", peaks.most_bytes},
                                                  {"times_most", peaks.times_most},
                                                  {"differ", peaks.differ()}};
      row["state_bytes_of_first_step"] =
          member(member(report.torch, "states_of_first_step"), std::to_string(device).c_str());
      for (const char* const of_torch :
           {"name", "peak_allocated_bytes", "peak_reserved_bytes", "peak_requested_bytes",
            "requested_bytes", "retries", "stalls", "limit_bytes"}) {
        row[of_torch] = nullptr;
      }
      // PyTorch's own peaks begin anew where the program says so; those recorded do not.
      std::uint64_t allocated = used.peak_allocated_bytes;
      std::uint64_t reserved = used.peak_reserved_bytes;
      for (const json& known : report.torch.value("devices", json::array())) {
        if (known["device"] != device) continue;
        allocated = std::max(allocated, known["peak_allocated_bytes"].get<std::uint64_t>());
        reserved = std::max(reserved, known["peak_reserved_bytes"].get<std::uint64_t>());
        row["name"] = known["name"];
        row["retries"] = known["retries"];
        row["limit_bytes"] = member(known, "limit_bytes");
        for (const char* const asked : {"requested_bytes", "peak_requested_bytes"}) {
          const std::uint64_t bytes = number(member(known, asked));
          row[asked] = bytes == 0 ? json() : json(bytes);
        }
        // The host waited for the device so that memory could be given back or used again.
        row["stalls"] = record.calls[static_cast<std::size_t>(DriverCall::mem_free)] +
                        known["waits"].get<std::uint64_t>();
      }
      if (reserved != 0) {
        row["peak_allocated_bytes"] = allocated;
        row["peak_reserved_bytes"] = reserved;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string stopped_note(const json& row) {
  const json steps = member(row, "stopped_after_steps");
  if (!steps.is_number()) return {};
  const auto count = steps.get<std::uint64_t>();
  return fmt::format(
      "stopped after {} step{}, as asked (--steps): what would come later, nobody has seen",
      with_commas(count), count == 1 ? "" : "s");
}

std::vector<std::string> notes_of(const json& rows) {
  std::vector<std::string> notes;
  std::set<std::string> unknown;
  // The first run made them, and the others found what it left: it shows what that leaves open.
  const bool saw_making = !rows.empty() && member(rows.front(), "compiled") == "made";
  for (const json& row : rows) {
    for (const json& library : member(row, "unknown_workspaces")) unknown.insert(library);
    // What other numbers showed says more.
    const bool tried = member(row, "other_numbers").is_object();
    json said = tried ? member(row, "notes") : json::array({estimate_note(row)});
    said.push_back(replaced_settings_note(row));
    for (const std::string& note : left_open(row)) said.push_back(note);
    for (const std::string note : said) {
      if (saw_making && note == found_kernels_note(row)) continue;
      if (!note.empty() && !tells(row, note) &&
          std::find(notes.begin(), notes.end(), note) == notes.end()) {
        notes.push_back(note);
      }
    }
    for (const json& loader : member(row, "data")) {
      if (member(loader, "may_be_larger") != true) continue;
      std::string text = "data: " + loader.value("text", "");
      if (std::find(notes.begin(), notes.end(), text) == notes.end()) {
        notes.push_back(std::move(text));
      }
    }
  }
  for (const json& row : rows) {
    const std::string note = stopped_note(row);
    if (note.empty()) continue;
    notes.push_back(note);
    break;
  }
  if (!unknown.empty()) {
    notes.push_back(fmt::format("peaks are lower bounds: workspaces of {} are not counted",
                                fmt::join(unknown, ", ")));
  }
  return notes;
}

void note_worst_case(json& row) {
  if (!row["data"].is_array() || !row["data"].empty()) return;
  row["data"].push_back(
      {{"may_be_larger", true},
       {"text",
        "--worst-case had nothing to feed: the program uses no DataLoader, its inputs were its "
        "own"}});
}

std::string text_of_rows(const json& rows, bool colour) {
  using Align = Table::Align;
  Table table({{"process", Align::left},
               {"gpu", Align::left},
               {"capacity"},
               {"allocator", Align::left},
               {"peak allocated"},
               {"peak reserved"},
               {"peak in use"},
               {"stalls"},
               {"driver calls"},
               {"steps"},
               {"fits", Align::left}});
  for (const json& row : rows) {
    const Colour verdict = row["fits"].is_null() ? Colour::none
                           : row["fits"]         ? Colour::good
                                                 : Colour::bad;
    table.add({{name_of_process(row)},
               {fmt::format("{}", row["device"].get<int>())},
               {size_text(row["total_bytes"])},
               {row["allocator"].get<std::string>()},
               {size_text(row["peak_allocated_bytes"])},
               {size_text(row["peak_reserved_bytes"])},
               {size_text(row["peak_used_bytes"])},
               {count_text(row["stalls"])},
               {count_text(row["memory_calls"])},
               {count_text(row["steps"])},
               {row["verdict"].get<std::string>(), verdict}});
  }
  const std::size_t columns = terminal_columns(STDERR_FILENO);
  std::string text = table.text(colour, columns);
  const auto add = [&](const std::string& words) {
    const std::string note = terminal_text(words);
    const std::size_t most = columns == 0 ? note.size() : columns;
    for (const std::string& line : lines_of(note, most)) text += line + "\n";
  };
  std::set<std::string> allocators;
  for (const json& row : rows) allocators.insert(row["allocator"].get<std::string>());
  std::set<std::string> said;
  for (const json& row : rows) {
    if (row["reason"].is_null()) continue;
    const std::string who =
        name_of_process(row) +
        (allocators.size() > 1 ? " with " + row["allocator"].get<std::string>() : "");
    const std::string note = fmt::format("{}: {}: {}", who, row["verdict"].get<std::string>(),
                                         row["reason"].get<std::string>());
    if (said.insert(note).second) add(note);
  }
  for (const std::string& note : notes_of(rows)) add(note);
  for (const json& row : rows) {
    for (const json& note : member(row, "notes")) {
      if (said.insert(note.get<std::string>()).second) add(note.get<std::string>());
    }
  }
  return text;
}

}  // namespace gapless::tools
