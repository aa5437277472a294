#include "tools/fits_report.h"

#include <algorithm>
#include <map>
#include <regex>

#include <fmt/format.h>

#include "allocator/base/bytes.h"
#include "tools/commands.h"
#include "tools/dryrun_rows.h"
#include "tools/estimates_from.h"
#include "tools/json_values.h"
#include "tools/lacking_kernels.h"
#include "tools/last_words.h"
#include "tools/left_open.h"
#include "tools/native_lines.h"
#include "tools/process_reports.h"
#include "tools/simulated_run.h"
#include "tools/table.h"
#include "tools/torch_settings.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using simgpu::Holder;
using simgpu::kHolders;
using simgpu::MemoryMoment;

constexpr std::size_t kSamples = 480;  // columns of a picture
constexpr std::size_t kPlaces = 12;
constexpr std::size_t kLastLines = 12;

// --- what held the memory ------------------------------------------------------------------------

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json json_of(const MemoryMoment& moment, const std::vector<simgpu::MemorySite>& sites,
             const char* at) {
  json holders = json::object();
  for (std::size_t i = 0; i < kHolders; ++i) {
    holders[simgpu::name_of(static_cast<Holder>(i))] = moment.held_bytes[i];
  }
  // Stacks that differ only inside a library, or in what they were at, are one place to a user.
  std::vector<json> places;
  std::map<std::tuple<std::string, std::string, std::string, Holder>, std::size_t> known;
  for (const MemoryMoment::Place& place : moment.places) {
    const bool has_site = place.site != 0 && place.site <= sites.size();
    const simgpu::MemorySite site = has_site ? sites[place.site - 1] : simgpu::MemorySite{};
    const auto [found, fresh] =
        known.try_emplace({site.line, site.library_line, site.part, place.holder}, places.size());
    if (fresh) {
      places.push_back({{"line", or_null(site.line)},
                        {"library_line", or_null(site.library_line)},
                        {"called", or_null(site.called)},
                        {"part", or_null(site.part)},
                        {"holder", simgpu::name_of(place.holder)},
                        {"bytes", 0U},
                        {"blocks", 0U}});
    }
    json& row = places[found->second];
    row["bytes"] = row["bytes"].get<std::uint64_t>() + place.bytes;
    row["blocks"] = row["blocks"].get<std::uint64_t>() + place.blocks;
  }
  std::stable_sort(places.begin(), places.end(), [](const json& a, const json& b) {
    return a["bytes"].get<std::uint64_t>() > b["bytes"].get<std::uint64_t>();
  });
  if (places.size() > kPlaces) places.resize(kPlaces);
  return {{"at", at},
          {"step", moment.steps},
          {"allocated_bytes", moment.allocated_bytes},
          {"reserved_bytes", moment.reserved_bytes},
          {"fragmentation_bytes",
           moment.reserved_bytes - std::min(moment.reserved_bytes, moment.allocated_bytes)},
          {"holders", std::move(holders)},
          {"places", std::move(places)}};
}

struct ProcessMemory {
  std::vector<simgpu::MemoryCourse> courses;
  std::vector<simgpu::MemorySite> sites;
  std::vector<simgpu::HeldBlock> blocks;
};

ProcessMemory memory_of(const fs::path& stem, bool blocks) {
  ProcessMemory memory;
  memory.sites = simgpu::read_memory_sites(stem.string() + ".sites");
  tell_native_lines(memory.sites);
  const auto events = simgpu::read_memory_trace(stem.string() + ".memory");
  if (!events.empty()) memory.courses = simgpu::memory_courses(events, memory.sites, kSamples);
  if (blocks) memory.blocks = simgpu::held_blocks(events, memory.sites);
  return memory;
}

void add_memory(json& row, const ProcessMemory& memory, std::optional<TracedMemory>& traced,
                std::vector<std::string>& notes) {
  row["memory"] = nullptr;
  row["memory_at_peak"] = nullptr;
  const auto course = std::find_if(memory.courses.begin(), memory.courses.end(),
                                   [&](const auto& one) { return one.device == row["device"]; });
  if (course == memory.courses.end()) return;
  traced = TracedMemory{*course, memory.sites, {}};
  std::copy_if(memory.blocks.begin(), memory.blocks.end(), std::back_inserter(traced->blocks),
               [&](const simgpu::HeldBlock& block) { return block.device == course->device; });
  row["memory_at_peak"] = json_of(course->peak, memory.sites, "peak");
  const json& request = row["out_of_memory"];
  const bool died_here = row["fits"] == false && course->failed && request.is_object() &&
                         request["device"] == row["device"];
  row["memory"] =
      died_here ? json_of(*course->failed, memory.sites, "out of memory") : row["memory_at_peak"];
  if (row["steps"].is_null()) {  // no Python counted them
    for (const char* const moment : {"memory", "memory_at_peak"}) row[moment]["step"] = nullptr;
  }
  if (course->cut) {
    notes.emplace_back(
        "what held the memory is told of the run's begin only: it allocated too often to be "
        "written down to its end");
  }
}

// --- verdicts ------------------------------------------------------------------------------------

std::string times(std::uint64_t count, const char* one, const char* many) {
  return count == 1 ? fmt::format("1 {}", one) : fmt::format("{} {}", with_commas(count), many);
}

// Of one that did not end by itself.
std::string who_ended(const WatchedEnd& end) {
  return end.by == WatchedEnd::By::limit ? "it was stopped at its time limit (--time-limit)"
                                         : "it was interrupted";
}

// Why a run that ended well still does not say that it fits; empty where it does.
std::string unsure_because(const json& row, const WatchedEnd& end, const std::string& asked) {
  if (end.by != WatchedEnd::By::itself) return who_ended(end) + "; so far it was well";
  const std::string used = row["allocator"];
  if (asked == "gapless" && used != "gapless") {
    return used + " served it in place of gapless" +
           (used == "cudaMalloc" ? " (for programs without PyTorch preload libgapless_cuda.so)"
                                 : ", as it says itself (--show-output)");
  }
  return {};
}

void judge(json& row, const WatchedEnd& end, const std::string& asked) {
  if (row["fits"] == true) {
    if (const std::string why = unsure_because(row, end, asked); !why.empty()) {
      row["fits"] = nullptr;
      row["verdict"] = "not known";
      row["reason"] = why;
      return;
    }
    std::vector<std::string> buts;
    if (const std::uint64_t retries = number(row["retries"]); retries != 0) {
      buts.push_back(fmt::format("{} in {}", times(number(row["stalls"]), "stall", "stalls"),
                                 times(retries, "retry", "retries")));
    }
    if (const std::uint64_t caught = number(row["caught_out_of_memory"]); caught != 0) {
      buts.push_back(times(caught, "out of memory caught", "out of memory caught"));
    }
    row["verdict"] = buts.empty() ? "yes" : fmt::format("yes, but {}", fmt::join(buts, " and "));
    if (number(row["retries"]) != 0 && row["reason"].is_null()) {
      row["reason"] =
          "the allocator had to give memory back and wait for the GPU before it was served";
    }
  } else if (row["fits"].is_null() && end.by != WatchedEnd::By::itself) {
    row["reason"] = fmt::format("{} ({})", who_ended(end), row["reason"].get<std::string>());
  }
}

// --- the program's own words ---------------------------------------------------------------------

// For one that ended for want of the network, of what nobody typed, or of the simulated GPUs.
std::string hint_of(const std::vector<std::string>& words) {
  static const std::regex wanted(
      "couldn't connect|Max retries exceeded|Name or service not known|name resolution|"
      "Network is unreachable|ConnectionError|ConnectError|LocalEntryNotFoundError|URLError|"
      "offline mode|not find .* in the cached files",
      std::regex::icase);
  const auto any = [&](const auto& is) { return std::any_of(words.begin(), words.end(), is); };
  if (any([](const std::string& line) { return line.starts_with("EOFError: EOF when reading"); })) {
    return "; it asked for what nobody typed: give it that in a file (< FILE), or let it read the "
           "terminal (--show-output)";
  }
  if (any([](const std::string& line) {
        return line.find("Found no NVIDIA driver") != std::string::npos;
      })) {
    return "; simulated GPUs are preloaded, and something took LD_PRELOAD away before it began "
           "(env -i, sudo, a container)";
  }
  // What others say beside an exception is not why a program ended: a logger's thread that sends
  // what nobody waits for.
  const std::vector<std::string> exceptions = exceptions_in(words);
  const std::vector<std::string>& why = exceptions.empty() ? words : exceptions;
  return std::any_of(why.begin(), why.end(),
                     [](const std::string& line) {
                       return line.size() < 2000 && std::regex_search(line, wanted);
                     })
             ? "; it seems to have wanted something from the network: have it fetched before, or "
               "give it weights and data of the same shape"
             : "";
}

// Whether it ended with an error that is no exception, but said something before: sys.exit("no data
// in ./data"), a wrong option.
bool gave_up_in_words(const json& row, const std::vector<std::string>& words) {
  const json& end = row["end"];
  return row["exception"].is_null() && row["assertion"].is_null() && !words.empty() &&
         end["how"] == "exited" && end["status"] != 0;
}

// Where a program in C++ asked for what it was refused; Python tells that itself.
void tell_line_of_failure(ProcessReport& report, const ProcessMemory& memory) {
  if (report.record.out_of_memory == 0 || report.torch.contains("last_out_of_memory")) return;
  const simgpu::ProcessRecord::OutOfMemory& last = report.record.last;
  for (const simgpu::MemoryCourse& course : memory.courses) {
    if (course.device != last.device || !course.failed) continue;
    if (course.failed_site == 0 || course.failed_site > memory.sites.size()) continue;
    report.torch["last_out_of_memory"] = {
        {"device", last.device},
        {"asked_bytes", last.asked_bytes},
        {"allocated_bytes", last.allocated_bytes},
        {"reserved_bytes", last.reserved_bytes},
        {"step", nullptr},
        {"line", or_null(memory.sites[course.failed_site - 1].line)},
        {"library_line", nullptr}};
  }
}

std::string why_nothing(const std::string& program, const WatchedEnd& end, const std::string& why,
                        const std::vector<std::string>& words) {
  if (end.by == WatchedEnd::By::limit) {
    return "it had used no GPU when it was stopped at its time limit (--time-limit)";
  }
  if (end.by == WatchedEnd::By::user) return "it had used no GPU when it was interrupted";
  const int status = end.ended.status();
  std::string text = no_gpu_used(program, end.ended, why);
  if (status != 0 && why.empty() && !words.empty()) text += ": " + why_it_ended(words);
  return status != 0 ? text + hint_of(words) : text;
}

}  // namespace

// As if all had their peaks at once. Where that is more than there is they had not, and nothing is
// said.
const json* counterpart(const json& rows, std::size_t at, const json& row) {
  const auto is = [&](const json& other) {
    return member(other, "device") == row["device"] && member(other, "rank") == row["rank"];
  };
  if (row["rank"].is_number()) {
    const auto found = std::find_if(rows.begin(), rows.end(), is);
    return found == rows.end() ? nullptr : &*found;
  }
  return at < rows.size() && is(rows[at]) ? &rows[at] : nullptr;
}

void judge_end(json& row, const WatchedEnd& end) {
  if (end.by != WatchedEnd::By::itself) judge(row, end, row["allocator"]);
}

void add_headroom(FitsRun& run) {
  std::map<int, std::uint64_t> used;
  for (std::size_t i = 0; i < run.installed.size(); ++i) {
    used[run.installed[i]] += number(run.rows[i]["peak_used_bytes"]);
  }
  for (std::size_t i = 0; i < run.installed.size(); ++i) {
    json& row = run.rows[i];
    row["headroom_bytes"] = nullptr;
    row["headroom_percent"] = nullptr;
    const std::uint64_t total = number(row["total_bytes"]);
    if (row["fits"] != true || used[run.installed[i]] > total) continue;
    std::uint64_t left = total - used[run.installed[i]];
    if (const json limit = member(row, "limit_bytes"); limit.is_number()) {
      const std::uint64_t reserved = number(row["peak_reserved_bytes"]);
      left = std::min(left, number(limit) - std::min(number(limit), reserved));
    }
    row["headroom_bytes"] = left;
    row["headroom_percent"] =
        total == 0 ? 0.0 : 100.0 * static_cast<double>(left) / static_cast<double>(total);
  }
}

std::optional<bool> FitsRun::fits() const {
  bool known = true;
  for (const json& row : rows) {
    if (row["fits"] == false) return false;
    known = known && row["fits"] == true;
  }
  return known ? std::optional<bool>(true) : std::nullopt;
}

int FitsRun::exit_status() const {
  if (fits() == true) return kExitOk;
  const int own = end.ended.status();
  const bool by_itself = end.by == WatchedEnd::By::itself;
  return fits() == false || own == 0 || !by_itself ? kExitNoFit : own;
}

FitsRun judge_run(const std::string& allocator, const std::string& program, const fs::path& reports,
                  const fs::path& output, const WatchedEnd& end, const Judging& judging) {
  FitsRun run;
  run.allocator = allocator;
  run.end = end;
  const std::vector<std::string> words = lines_said_last(output);
  run.last_words = last_of(words, kLastLines);
  const std::string passed = end.ended.status() == 0 ? exception_passed_over(words) : std::string();
  for (ProcessReport& report : read_reports(reports, end.ended)) {
    const ProcessMemory memory =
        memory_of(reports / fmt::format("{}.{}", report.pid, report.image), judging.blocks);
    tell_line_of_failure(report, memory);
    for (json& row : rows_of({report}, allocator, end.ended.status())) {
      std::vector<std::string> notes;
      judge(row, end, allocator);
      judge_estimates(row, judging.estimates);
      judge_kernels(row);
      if (row["fits"].is_null()) {
        const bool says_why = report.pid == end.ended.pid && report.facts.too_few_gpus.empty() &&
                              gave_up_in_words(row, words);
        row["reason"] = row["reason"].get<std::string>() +
                        (says_why ? ": " + why_it_ended(words) : "") + hint_of(words);
      }
      if (row["steps"].is_number() || report.record.steps != 0) {
        row["steps"] = report.record.steps;
      }
      std::optional<TracedMemory> traced;
      add_memory(row, memory, traced, notes);
      // A little more than was allocated where threads allocate at one time.
      if (const json& row_memory = row["memory_at_peak"];
          row_memory.is_object() &&
          number(row_memory["allocated_bytes"]) < number(row["peak_allocated_bytes"])) {
        notes.push_back(fmt::format("what held the memory was told up to {} of {} allocated",
                                    format_bytes(number(row_memory["allocated_bytes"])),
                                    format_bytes(number(row["peak_allocated_bytes"]))));
      }
      if (!traced && number(row["peak_allocated_bytes"]) != 0) {
        notes.push_back("what held the memory is not known: " +
                        row["allocator"].get<std::string>() + " does not tell what it gives out");
      }
      if (row["fits"] == true && number(row["peak_allocated_bytes"]) == 0 &&
          report.record.has_torch) {
        notes.emplace_back("it used a GPU, and never asked for memory there");
      }
      row["host"] = {{"peak_pinned_bytes", report.record.peak_pinned_bytes},
                     {"peak_managed_bytes", report.record.peak_managed_bytes},
                     {"peak_resident_bytes", report.record.peak_resident_bytes == 0
                                                 ? json()
                                                 : json(report.record.peak_resident_bytes)},
                     {"peak_shared_bytes", report.record.peak_shared_bytes}};
      if (judging.worst_case) note_worst_case(row);
      if (const std::string note = estimate_note(row); !note.empty() && !tells(row, note)) {
        notes.push_back(note);
      }
      if (const std::string note = replaced_settings_note(row); !note.empty()) {
        notes.push_back(note);
      }
      for (const std::string& note : left_open(row)) notes.push_back(note);
      if (row["fits"] == true && run.rows.empty() && !passed.empty()) {
        notes.push_back("an exception was printed, and did not end the program: " + passed);
      }
      row["notes"] = notes;
      run.installed.push_back(report.record.devices[row["device"].get<int>()].installed_index);
      run.rows.push_back(std::move(row));
      run.memory.push_back(std::move(traced));
      run.told.push_back({{"program", member(report.torch, "program")},
                          {"changed", member(report.torch, "changed")}});
    }
  }
  add_headroom(run);
  if (run.rows.empty()) {
    run.rows.push_back({{"pid", nullptr},
                        {"rank", nullptr},
                        {"device", nullptr},
                        {"allocator", allocator},
                        {"fits", nullptr},
                        {"verdict", "not known"},
                        {"reason", why_nothing(program, end, why_no_gpu(reports), words)},
                        {"exit_status", end.ended.status()}});
    run.memory.emplace_back();
    run.told.push_back(json::object());
  }
  run.absent = absent_ranks(reports);
  for (json& row : run.rows) {
    row["asked_allocator"] = allocator;
    row["ranks_not_run"] = run.absent;
  }
  return run;
}

}  // namespace gapless::tools
