#include "tools/top/process_state.h"

#include <algorithm>
#include <fstream>

#include "allocator/base/error.h"
#include "allocator/base/text_of_file.h"
#include "allocator/live/live_client.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

// Its words with blanks between; its name where it has none (it ended, or is the kernel's).
std::string command_of(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::string text = text_of_file(folder + "/cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  if (text.empty()) {
    std::ifstream name(folder + "/comm");
    std::getline(name, text);
  }
  return text;
}

std::vector<NamedBytes> rows_of(const json& object, const char* list, const char* key) {
  std::vector<NamedBytes> rows;
  if (!object.contains(list)) return rows;
  for (const json& row : object.at(list)) {
    const json& name = row.at(key);
    rows.push_back({name.is_string() ? name.get<std::string>() : name.dump(),
                    row.at("allocated_bytes").get<std::uint64_t>()});
  }
  return rows;
}

DeviceState device_of(const json& device) {
  DeviceState state;
  state.device = device.at("device").get<int>();
  state.total_bytes = device.at("total_bytes").get<std::uint64_t>();
  if (const json& limit = device.at("limit_bytes"); !limit.is_null()) {
    state.limit_bytes = limit.get<std::uint64_t>();
  }
  state.allocated_bytes = device.at("allocated_bytes").at("now").get<std::uint64_t>();
  state.peak_allocated_bytes = device.at("allocated_bytes").at("peak").get<std::uint64_t>();
  state.reserved_bytes = device.at("reserved_bytes").at("now").get<std::uint64_t>();
  state.peak_reserved_bytes = device.at("reserved_bytes").at("peak").get<std::uint64_t>();
  state.allocations = device.at("allocations").at("ever").get<std::uint64_t>();
  state.ooms = device.at("ooms").get<std::uint64_t>();
  state.waits = device.at("waits").get<std::uint64_t>();
  state.syncs = device.at("syncs").get<std::uint64_t>();
  state.host_bytes = device.at("host_bytes").get<std::uint64_t>();
  state.streams = rows_of(device, "streams", "stream");
  state.pools = rows_of(device, "pools", "pool");
  return state;
}

}  // namespace

ProcessState state_of_process(int pid) {
  ProcessState state;
  state.pid = pid;
  state.command = command_of(pid);
  try {
    LiveClient client(pid);
    constexpr std::uint64_t kMostMs = 1000;
    state.answer = json::parse(client.ask(R"({"do":"status","details":true})", kMostMs));
    state.when = std::chrono::steady_clock::now();
    for (const json& device : state.answer.at("devices")) {
      state.devices.push_back(device_of(device));
    }
    if (const json& recording = state.answer.at("recording"); !recording.is_null()) {
      state.recorded_to = recording.at("path").get<std::string>();
      state.recorded_events = recording.at("events").get<std::uint64_t>();
      state.lost_events = recording.at("lost").get<std::uint64_t>();
      state.recording_failed = recording.at("failed").get<std::string>();
      state.sites = rows_of(recording, "sites", "site");
    }
  } catch (const InputError& error) {
    state.problem = error.what();
  } catch (const json::exception&) {
    state.devices.clear();
    state.problem = "process " + std::to_string(pid) + ": its answer cannot be understood";
  }
  return state;
}

}  // namespace gapless::tools
