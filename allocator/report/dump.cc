#include "allocator/report/dump.h"

#include "allocator/base/json_text.h"

namespace gapless {
namespace {

using nlohmann::json;

json to_json(const Stat& stat) {
  return {{"current", stat.current},
          {"peak", stat.peak},
          {"allocated", stat.allocated},
          {"freed", stat.freed}};
}

json to_json(const PoolStat& stat) {
  return {{"all", to_json(stat.all)},
          {"small_pool", to_json(stat.small_pool)},
          {"large_pool", to_json(stat.large_pool)}};
}

json to_json(const DeviceStatistics& statistics) {
  return {{"allocation", to_json(statistics.allocation)},
          {"segment", to_json(statistics.segment)},
          {"active", to_json(statistics.active)},
          {"inactive_split", to_json(statistics.inactive_split)},
          {"allocated_bytes", to_json(statistics.allocated_bytes)},
          {"reserved_bytes", to_json(statistics.reserved_bytes)},
          {"active_bytes", to_json(statistics.active_bytes)},
          {"inactive_split_bytes", to_json(statistics.inactive_split_bytes)},
          {"requested_bytes", to_json(statistics.requested_bytes)},
          {"num_alloc_retries", statistics.num_alloc_retries},
          {"num_ooms", statistics.num_ooms},
          {"num_sync_all_streams", statistics.num_sync_all_streams},
          {"num_device_alloc", statistics.num_device_alloc},
          {"num_device_free", statistics.num_device_free}};
}

const char* name_of(BlockReport::Kind kind) {
  switch (kind) {
    case BlockReport::Kind::live:
      return "live";
    case BlockReport::Kind::hole:
      return "hole";
    case BlockReport::Kind::lent:
      return "lent";
    case BlockReport::Kind::held:
      return "held";
  }
  return "?";
}

json to_json(const HeapCounters& counters) {
  return {{"home_growths", counters.home_growths},
          {"retries", counters.retries},
          {"stream_waits", counters.waits},
          {"window_hits", counters.windows.hits},
          {"windows_made", counters.windows.made},
          {"windows_extended", counters.windows.extended},
          {"windows_repaired", counters.windows.repaired},
          {"windows_evicted", counters.windows.evicted},
          {"window_pages_mapped", counters.windows.pages_mapped}};
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// A block that was freed; times in seconds before the dump.
json to_json(const CheckedBlock& block, std::chrono::steady_clock::time_point now) {
  json entry = {{"address", block.address},
                {"bytes", block.bytes},
                {"requested_bytes", block.requested_bytes},
                {"stream", block.stream},
                {"call_site", block.call_site},
                {"age_s", seconds(now - block.since)}};
  entry["freed_s"] = seconds(now - block.freed);
  entry["fenced"] = block.fenced;
  return entry;
}

json to_json(const Mistake& mistake) {
  json entry = {
      {"kind", name_of(mistake.kind)},        {"text", to_text(mistake)},
      {"address", mistake.block.address},     {"requested_bytes", mistake.block.requested_bytes},
      {"stream", mistake.block.stream},       {"call_site", mistake.block.call_site},
      {"first_offset", mistake.first_offset}, {"wrong_bytes", mistake.wrong_bytes},
      {"age_s", seconds(mistake.age)}};
  if (mistake.kind == Mistake::Kind::after_free) entry["free_for_s"] = seconds(mistake.free_for);
  return entry;
}

// What checks know, where they are asked for.
void add_checks(json& device, const HeapReport& report) {
  const auto now = std::chrono::steady_clock::now();
  device["freed"] = json::array();
  for (const CheckedBlock& block : report.freed) device["freed"].push_back(to_json(block, now));
  device["call_sites"] = json::array();
  for (const CheckedBlock& block : report.checked) {
    device["call_sites"].push_back({{"address", block.address},
                                    {"call_site", block.call_site},
                                    {"age_s", seconds(now - block.since)}});
  }
  device["mistakes"] = json::array();
  for (const Mistake& mistake : report.mistakes) device["mistakes"].push_back(to_json(mistake));
}

json to_json(const HeapReport& report) {
  json home = json::array();
  for (const BlockReport& block : report.home) {
    json entry = {{"kind", name_of(block.kind)},
                  {"address", block.address},
                  {"bytes", block.bytes},
                  {"stream", block.stream},
                  {"pool", {block.pool.first, block.pool.second}},
                  {"on_host", block.spilled}};
    if (block.kind == BlockReport::Kind::live) {
      entry["requested_bytes"] = block.requested_bytes;
      if (block.given != block.address) entry["given"] = block.given;
    }
    home.push_back(std::move(entry));
  }
  json window_blocks = json::array();
  for (const WindowBlockReport& block : report.window_blocks) {
    window_blocks.push_back({{"address", block.address},
                             {"bytes", block.bytes},
                             {"requested_bytes", block.requested_bytes},
                             {"stream", block.stream},
                             {"pool", {block.pool.first, block.pool.second}},
                             {"held", block.held}});
    if (block.given != block.address) window_blocks.back()["given"] = block.given;
    if (block.fenced) window_blocks.back()["fenced"] = true;
  }
  json device = {{"device", report.device},
                 {"device_name", report.device_name},
                 {"total_bytes", report.total_bytes},
                 {"limit_bytes", report.limit_bytes},
                 {"page_bytes", report.page_bytes},
                 {"statistics", to_json(report.statistics)},
                 {"counters", to_json(report.counters)},
                 {"home", std::move(home)},
                 {"window_blocks", std::move(window_blocks)},
                 {"windows", report.windows},
                 {"window_mapped_bytes", report.window_mapped_bytes},
                 {"windows_retired", report.window_addresses.retired_windows},
                 {"window_address_bytes", report.window_addresses.used_bytes},
                 {"window_address_bytes_reserved", report.window_addresses.reserved_bytes},
                 {"free_page_bytes", report.free_page_bytes},
                 {"spilled_bytes", report.spill.bytes}};
  if (report.checks) add_checks(device, report);
  return device;
}

}  // namespace

std::string write_dump(const std::vector<HeapReport>& reports) {
  json devices = json::array();
  for (const HeapReport& report : reports) devices.push_back(to_json(report));
  return json_text(json{{"gapless_dump", 1}, {"devices", std::move(devices)}}, 1);
}

std::string write_options(const Options& options) {
  json list = json::object();
  for (const OptionFacts& facts : option_table()) {
    list[std::string(facts.name)] = {{"value", option_text(options, facts.name)},
                                     {"default", facts.default_text},
                                     {"help", facts.help}};
  }
  return json_text(list, 1);
}

}  // namespace gapless
