#include "simgpu/cost_profile.h"

#include <filesystem>
#include <stdexcept>

#include "allocator/base/bytes.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"

namespace gapless::simgpu {
namespace {

struct BuiltInCost {
  DriverCall call;
  double a100_ns;
  double desktop_ns;
};

// Measured, per call on 2 MiB (address_reserve: on 8 GiB): kvcached's VMM benchmark on an A100, and
// a VMM benchmark on a card of 24-32 GB. mem_alloc and mem_free: PyTorch users' reports of
// cudaMalloc (about 50 us) and of cudaFree on an idle device (14 us). Of the rest no measurement is
// known; they are set to the cost of the nearest call (release as reserve, the stream and event
// calls as a map) until the GPU tests have measured them.
constexpr BuiltInCost kBuiltIn[] = {
    {DriverCall::mem_info, 6000, 6000},
    {DriverCall::mem_create, 193000, 7600},
    {DriverCall::mem_release, 19000, 9000},
    {DriverCall::mem_export, 19000, 9000},
    {DriverCall::mem_import, 19000, 9000},
    {DriverCall::address_reserve, 19000, 9000},
    {DriverCall::address_free, 19000, 9000},
    {DriverCall::mem_map, 1450, 1050},
    {DriverCall::mem_unmap, 25600, 11500},
    {DriverCall::mem_set_access, 36000, 20800},
    {DriverCall::mem_alloc, 50000, 50000},
    {DriverCall::mem_free, 14000, 14000},
    {DriverCall::stream_create, 1450, 1050},
    {DriverCall::stream_destroy, 1450, 1050},
    {DriverCall::stream_synchronize, 1450, 1050},
    {DriverCall::stream_wait_event, 1450, 1050},
    {DriverCall::stream_is_capturing, 1450, 1050},
    {DriverCall::stream_capture_point, 1450, 1050},
    {DriverCall::graph_node_dependencies, 1450, 1050},
    {DriverCall::device_synchronize, 1450, 1050},
    {DriverCall::event_create, 1450, 1050},
    {DriverCall::event_destroy, 1450, 1050},
    {DriverCall::event_record, 1450, 1050},
    {DriverCall::event_query, 1450, 1050},
    {DriverCall::event_synchronize, 1450, 1050},
};

constexpr double kMostNs = 1e12;  // clocks must not overflow

CostProfile built_in(const std::string& name) {
  CostProfile profile;
  profile.name = name;
  for (const BuiltInCost& cost : kBuiltIn) {
    profile.calls[static_cast<std::size_t>(cost.call)].fixed_ns =
        name == "a100" ? cost.a100_ns : cost.desktop_ns;
  }
  return profile;
}

CostProfile read_profile(const std::string& path) {
  const auto fail = [&](const std::string& cause) -> std::runtime_error {
    return std::runtime_error("cost profile " + path + ": " + cause);
  };
  if (!std::filesystem::exists(path)) {
    throw fail("no built-in profile (a100, desktop, free) and no file of that name");
  }
  const std::string text = read_file(path);
  ReadBudget budget("cost profile " + path, text.size());
  const nlohmann::json document = parse_json(text, budget, "");
  CostProfile profile;
  if (!document.is_object() || !document.contains("calls") || !document["calls"].is_object()) {
    throw fail("it has no object \"calls\"");
  }
  profile.name = path;
  if (document.contains("name")) profile.name = JsonFields(document, path, "").text("name");
  for (const auto& [name, cost] : document["calls"].items()) {
    const auto call = driver_call_named(name);
    if (!call) throw fail("calls: there is no driver call \"" + name + "\"");
    if (!cost.is_object()) throw fail("calls." + name + ": not an object");
    CallCost read;
    for (const auto& [field, value] : cost.items()) {
      double* slot = field == "fixed_ns"      ? &read.fixed_ns
                     : field == "per_page_ns" ? &read.per_page_ns
                                              : nullptr;
      if (slot == nullptr) throw fail("calls." + name + ": unknown field \"" + field + "\"");
      *slot = value.is_number() ? value.get<double>() : -1;
      if (!(*slot >= 0 && *slot <= kMostNs)) {
        throw fail("calls." + name + "." + field + ": not a number of nanoseconds from 0 to 1e12");
      }
    }
    profile.calls[static_cast<std::size_t>(*call)] = read;
  }
  return profile;
}

}  // namespace

std::uint64_t CostProfile::cost_ns(DriverCall call, std::uint64_t bytes) const {
  const CallCost& cost = calls[static_cast<std::size_t>(call)];
  const auto pages = static_cast<double>(div_up(bytes, 2 * MiB));
  return static_cast<std::uint64_t>(cost.fixed_ns + cost.per_page_ns * pages);
}

std::vector<std::string> built_in_profiles() { return {"a100", "desktop", "free"}; }

CostProfile load_cost_profile(const std::string& name_or_path) {
  if (name_or_path == "free") return {};
  if (name_or_path == "a100" || name_or_path == "desktop") return built_in(name_or_path);
  return read_profile(name_or_path);
}

}  // namespace gapless::simgpu
