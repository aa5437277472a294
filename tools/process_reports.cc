#include "tools/process_reports.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

#include "allocator/base/text_of_file.h"
#include "tools/json_values.h"

namespace gapless::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using simgpu::ProcessEnd;
using simgpu::ProcessRecord;

// Whether its exit was the answer to another process of the command, which wanted it to end, and
// not to anything that went wrong.
bool left_as_asked(const ProcessReport& report) {
  const ProcessRecord& record = report.record;
  return record.asked_to_end_by != 0 && record.end_status != 0 &&
         record.out_of_memory == record.survived && !member(report.torch, "exception").is_object();
}

ProcessEnd end_of(const ProcessReport& report, const Ended& started, bool is_last_image) {
  using How = ProcessEnd::How;
  if (!is_last_image) return {How::continued, 0};
  // Whom we waited for may have died after its last words.
  if (report.pid == started.pid) {
    return started.by_signal ? ProcessEnd{How::signalled, started.code}
                             : ProcessEnd{How::exited, started.code};
  }
  switch (report.record.end) {
    case ProcessRecord::End::exited:
      if (left_as_asked(report)) return {How::stopped, report.record.asked_to_end_by};
      return {How::exited, report.record.end_status & 0xff};
    case ProcessRecord::End::aborted:
      return {How::signalled, SIGABRT};
    case ProcessRecord::End::replaced:
      return {How::replaced, 0};
    case ProcessRecord::End::none:
      break;
  }
  if (simgpu::is_running(report.pid)) return {How::running, 0};
  // Who is asked first and told then has said its last words when it was asked.
  const bool has_told = report.record.told_before_stop ||
                        (report.record.asked_to_end_by != 0 && report.record.stopped_by != 0);
  return has_told ? ProcessEnd{How::stopped, report.record.stopped_by}
                  : ProcessEnd{How::not_known, 0};
}

// The device of what watch_garbage.py tells, as it was used.
const ProcessRecord::Device* device_of(const ProcessReport& report, const json& told) {
  const int device = told.value("device", -1);
  const bool is_known = device >= 0 && device < ProcessRecord::kDevices;
  return is_known && report.record.devices[device].total_bytes != 0 ? &report.record.devices[device]
                                                                    : nullptr;
}

// By how much a request failed, fragments left out: what is allocated and asked for has to find
// room beside context and libraries.
std::uint64_t short_by(const ProcessRecord::Device& device, const json& request) {
  const auto told = [&](const char* name) { return request.value(name, std::uint64_t{0}); };
  const std::uint64_t torchs =
      std::min(device.total_bytes, told("reserved_bytes") + told("free_bytes"));
  const std::uint64_t others = device.total_bytes - torchs;
  const std::uint64_t wanted = told("asked_bytes") + told("allocated_bytes") + others;
  return wanted - std::min(wanted, device.total_bytes);
}

void add_garbage(const ProcessReport& report, simgpu::ProcessFacts& facts) {
  const json request = report.torch.value("last_out_of_memory", json());
  const bool refused = request.is_object();
  const auto is_refused_on = [&](const json& told) {
    return refused && told["device"] == member(request, "device");
  };
  for (const json& freed : report.torch.value("garbage", json::array())) {
    const ProcessRecord::Device* const device = device_of(report, freed);
    if (device == nullptr) continue;
    const auto bytes = freed.value("bytes", std::uint64_t{0});
    const std::uint64_t room =
        device->total_bytes - std::min(device->total_bytes, device->peak_used_bytes);
    if (!facts.collected || bytes > facts.collected->bytes) facts.collected = {bytes, room};
    // Half as much: with what lies beside it, it may be one of the pieces that were looked for.
    if (is_refused_on(freed) && short_by(*device, request) == 0 &&
        2 * bytes >= request.value("asked_bytes", std::uint64_t{0})) {
      facts.in_pieces_after = bytes;
    }
  }
  for (const json& waiting : report.torch.value("garbage_at_end", json::array())) {
    const ProcessRecord::Device* const device = device_of(report, waiting);
    if (device == nullptr || !is_refused_on(waiting)) continue;
    facts.waiting = {waiting.value("bytes", std::uint64_t{0}), short_by(*device, request)};
  }
}

simgpu::ProcessFacts facts_of(const ProcessReport& report, const ProcessEnd& end) {
  simgpu::ProcessFacts facts;
  facts.end = end;
  facts.out_of_memory = report.record.out_of_memory;
  facts.survived = report.record.survived;
  std::istringstream missed(report.record.not_simulated);
  for (std::string line; std::getline(missed, line);) facts.not_simulated.push_back(line);
  const auto told = [&](const char* name) {
    const auto found = report.torch.find(name);
    return found == report.torch.end() ? json() : *found;
  };
  facts.thread_ended = told("thread_out_of_memory").is_object();
  facts.asserted = told("assertion").is_object();
  if (const json exception = told("exception"); exception.is_object()) {
    facts.exception = {exception.value("type", ""), exception.value("text", ""),
                       exception.value("out_of_memory", false)};
  }
  if (told("stopped_after_steps").is_number()) {
    facts.without_step = report.torch.value("optimizers_without_step", std::uint64_t{0});
    for (int device = 0; device < ProcessRecord::kDevices; ++device) {
      const std::optional<simgpu::Growth> growth = growth_of(report, device);
      if (growth && growth->matters()) facts.grew_when_stopped = growth;
    }
  }
  add_garbage(report, facts);
  return facts;
}

void doubt(ProcessReport& report, const std::string& reason) {
  report.verdict.fits = simgpu::Verdict::Fits::not_known;
  report.verdict.reason = reason;
  if (const std::string& more = report.facts.too_few_gpus; !more.empty()) {
    report.verdict.reason += "; " + more;
  }
}

// Where the command failed and each process that used a GPU ended well, as a notebook's kernel does
// whatever was raised in it, something else went wrong: what was still to come did not.
void doubt_unexplained_failure(std::vector<ProcessReport>& reports, const Ended& started) {
  using Fits = simgpu::Verdict::Fits;
  if (started.status() == 0) return;
  const bool all_well = std::all_of(reports.begin(), reports.end(), [](const auto& report) {
    return report.verdict.fits == Fits::yes;
  });
  if (!all_well) return;
  for (ProcessReport& report : reports) {
    doubt(report,
          fmt::format("it ended well, but the command ended with status {}", started.status()));
  }
}

// Who ends a process of its own is done with it, unless something else went wrong: a launcher ends
// the other ranks when one has failed.
void doubt_those_stopped_early(std::vector<ProcessReport>& reports) {
  using Fits = simgpu::Verdict::Fits;
  const bool all_well = std::all_of(reports.begin(), reports.end(), [](const auto& report) {
    return report.verdict.fits == Fits::yes;
  });
  if (all_well) return;
  for (ProcessReport& report : reports) {
    const ProcessEnd& end = report.facts.end;
    if (report.verdict.fits != Fits::yes || end.how != ProcessEnd::How::stopped) continue;
    doubt(report, fmt::format("the program itself ended it, by {}, when another had failed",
                              simgpu::signal_name(end.code)));
  }
}

// What is told of the highest number; empty where there were enough.
std::string too_few_gpus_in(const fs::path& folder) {
  int highest = -1;
  for (const auto& entry : fs::directory_iterator(folder)) {
    int device = 0;
    if (std::sscanf(entry.path().filename().c_str(), "too_few_gpus.%d", &device) == 1) {
      highest = std::max(highest, device);
    }
  }
  return highest < 0 ? "" : text_of_file(folder / ("too_few_gpus." + std::to_string(highest)));
}

}  // namespace

std::optional<simgpu::Growth> growth_of(const ProcessReport& report, int device) {
  const ProcessRecord::Device& used = report.record.devices[device];
  const simgpu::StepGrowth& growth = used.by_step.growth;
  if (!growth.is_steady()) return {};
  std::uint64_t left = used.total_bytes - std::min(used.total_bytes, used.peak_used_bytes);
  for (const json& told : report.torch.value("devices", json::array())) {
    const json& limit = member(told, "limit_bytes");
    if (member(told, "device") != device || !limit.is_number()) continue;
    left = std::min(left, number(limit) - std::min(number(limit), used.peak_reserved_bytes));
  }
  return simgpu::Growth{growth.steps, growth.grown_bytes, left};
}

int ProcessReport::rank() const {
  const auto told = torch.find("rank");
  return told != torch.end() && told->is_number_integer() ? told->get<int>() : record.rank;
}

std::vector<ProcessReport> read_reports(const fs::path& folder, const Ended& started) {
  std::vector<ProcessReport> reports;
  for (const auto& entry : fs::directory_iterator(folder)) {
    ProcessReport report;
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".gpu") ||
        std::sscanf(name.c_str(), "%d.%d.gpu", &report.pid, &report.image) != 2) {
      continue;
    }
    const auto record = simgpu::read_record(entry.path().string());
    if (!record) continue;
    report.record = *record;
    const json torch = json::parse(
        text_of_file(fs::path(entry.path()).replace_extension(".torch.json")), nullptr, false);
    if (torch.is_object()) report.torch = torch;
    reports.push_back(std::move(report));
  }
  const std::string too_few_gpus = too_few_gpus_in(folder);
  for (ProcessReport& report : reports) {
    const bool is_last_image = std::none_of(reports.begin(), reports.end(), [&](const auto& other) {
      return other.pid == report.pid && other.image > report.image;
    });
    report.facts = facts_of(report, end_of(report, started, is_last_image));
    report.facts.host_memory_ran_out = started.memory_ran_out;
    report.facts.too_few_gpus = too_few_gpus;
    report.facts.command_failed = report.pid != started.pid && started.status() != 0;
    report.verdict = simgpu::judge(report.facts);
  }
  doubt_unexplained_failure(reports, started);
  doubt_those_stopped_early(reports);
  const auto place = [](const ProcessReport& report) {
    const int rank = report.rank();
    return std::tuple(rank < 0, rank, report.pid, report.image);
  };
  std::sort(reports.begin(), reports.end(),
            [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return reports;
}

std::vector<int> absent_ranks(const fs::path& folder) {
  std::vector<int> ranks;
  for (const auto& entry : fs::directory_iterator(folder)) {
    int rank = 0;
    if (std::sscanf(entry.path().filename().c_str(), "absent.%d", &rank) == 1) {
      ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string why_no_gpu(const fs::path& folder) {
  const std::string why = text_of_file(folder / "no_gpu");
  return why.empty() ? too_few_gpus_in(folder) : why;
}

}  // namespace gapless::tools
