#include "tools/inspect/inspect_json.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

json to_json(const MemorySum& sum) {
  return {{"name", sum.name},
          {"segments", sum.segments},
          {"reserved_bytes", sum.reserved_bytes},
          {"active_bytes", sum.active_bytes},
          {"allocated_bytes", sum.allocated_bytes},
          {"requested_bytes", sum.requested_bytes},
          {"free_bytes", sum.free_bytes},
          {"internal_fragmentation_bytes", sum.internal_bytes()},
          {"external_fragmentation", sum.external()},
          {"holes", sum.holes},
          {"largest_hole_bytes", sum.largest_hole_bytes},
          {"live_blocks", sum.live_blocks}};
}

json to_json(const std::vector<MemorySum>& sums) {
  json list = json::array();
  for (const MemorySum& sum : sums) list.push_back(to_json(sum));
  return list;
}

json to_json(const MemorySums& sums, bool reserved_known) {
  json entry = {{"requested_bytes", sums.requested_bytes},
                {"allocated_bytes", sums.allocated_bytes},
                {"active_bytes", sums.active_bytes},
                {"reserved_bytes", nullptr}};
  if (reserved_known) entry["reserved_bytes"] = sums.reserved_bytes;
  return entry;
}

json to_json(const std::vector<BlockGroup>& groups) {
  json list = json::array();
  for (const BlockGroup& group : groups) {
    json entry = {{"name", group.name},
                  {"bytes", group.bytes},
                  {"requested_bytes", group.requested_bytes},
                  {"blocks", group.blocks}};
    if (!group.called.empty()) entry["called"] = group.called;
    if (!group.kind.empty()) entry["kind"] = group.kind;
    list.push_back(std::move(entry));
  }
  return list;
}

json to_json(const LostMemory& lost) {
  json parts = json::object();
  for (std::size_t i = 0; i < kLosses; ++i) {
    parts[to_string(static_cast<Loss>(i))] = {{"bytes", lost.parts[i].bytes},
                                              {"pieces", lost.parts[i].pieces}};
  }
  json pinned = json::array();
  for (const PinnedSegment& segment : lost.pinned) {
    pinned.push_back({{"address", segment.address},
                      {"bytes", segment.bytes},
                      {"free_bytes", segment.free_bytes},
                      {"device", segment.device},
                      {"live_blocks", segment.blocks},
                      {"largest_block",
                       {{"address", segment.largest.given_address()},
                        {"bytes", segment.largest.bytes},
                        {"requested_bytes", segment.largest.requested_bytes},
                        {"site", segment.largest.site}}}});
  }
  return {{"free_bytes", lost.free_bytes}, {"parts", parts}, {"pinned_segments", pinned}};
}

json to_json(const std::vector<Cure>& cures) {
  json list = json::array();
  for (const Cure& cure : cures) {
    json entry = {{"name", cure.name},
                  {"allocator", cure.allocator},
                  {"allocated_bytes", cure.allocated_bytes},
                  {"reserved_bytes", cure.reserved_bytes},
                  {"least_capacity_bytes", nullptr}};
    if (cure.least_bytes) entry["least_capacity_bytes"] = *cure.least_bytes;
    if (!cure.without.empty()) entry["without_site"] = cure.without;
    list.push_back(std::move(entry));
  }
  return list;
}

json to_json(const std::vector<Leak>& leaks) {
  json list = json::array();
  for (const Leak& leak : leaks) {
    list.push_back({{"site", leak.site},
                    {"block_bytes", leak.block_bytes},
                    {"bytes", leak.bytes},
                    {"bytes_per_step", leak.bytes_per_step},
                    {"blocks", leak.blocks},
                    {"steps", leak.steps},
                    {"of_steps", leak.of_steps}});
  }
  return list;
}

// What is of recordings with events.
void add_events(json& entry, const MomentReport& report) {
  const bool known = report.reserved_known;
  entry["device"] = report.device;
  entry["event"] = report.event;
  entry["time_us"] = report.run->trace.events[report.event].time_us;
  entry["events"] = report.run->trace.events.size();
  entry["at_moment"] = to_json(report.sums, known);
  entry["at_peak"] = to_json(report.moments.at_peak, known);
  entry["at_peak"]["event"] = report.moments.peak;
  entry["at_reserved_peak"] = to_json(report.moments.at_reserved_peak, known);
  entry["at_reserved_peak"]["event"] = report.moments.reserved_peak;
  entry["at_end"] = to_json(report.moments.at_end, known);
  entry["segments_known"] = report.segments_known;
  entry["ended_out_of_memory"] = report.moments.ended_with_oom;
  entry["kinds"] = to_json(report.kinds);
  entry["growths"] = {{"times", report.growths.times},
                      {"bytes", report.growths.bytes},
                      {"needless_times", report.growths.needless_times},
                      {"needless_bytes", report.growths.needless_bytes},
                      {"large_requests", report.growths.large_requests},
                      {"large_requests_of_new_sizes", report.growths.new_sizes}};
  entry["leaks"] = to_json(report.leaks);
  if (report.step_ends) entry["step_ends"] = *report.step_ends;
  entry["cures"] = to_json(report.cures);
  entry["not_all_tried"] = report.too_long;
  entry["warnings"] = report.warnings;
  json course = json::array();
  for (const MemorySums& sums : report.course) course.push_back(to_json(sums, known));
  entry["course"] = std::move(course);
}

json to_json(const NearBlock& near) {
  json entry = {{"address", near.block.given_address()},
                {"bytes", near.block.bytes},
                {"requested_bytes", near.block.requested_bytes},
                {"stream", near.block.stream},
                {"site", near.block.site},
                {"offset", near.offset},
                {"behind_bytes", near.behind_bytes()}};
  if (near.block.freed_s) entry["freed_s"] = *near.block.freed_s;
  return entry;
}

}  // namespace

json inspect_json(const MomentReport& report) {
  const Fragmentation& found = report.fragmentation;
  json holes = json::array();
  for (const HoleClass& size : found.holes) {
    holes.push_back(
        {{"from_bytes", size.from_bytes}, {"holes", size.holes}, {"bytes", size.bytes}});
  }
  json biggest = json::array();
  for (const LiveBlock& block : found.biggest) {
    biggest.push_back({{"address", block.address},
                       {"bytes", block.bytes},
                       {"requested_bytes", block.requested_bytes},
                       {"device", block.device},
                       {"stream", block.stream},
                       {"pool", block.pool},
                       {"site", block.site}});
  }
  json findings = json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"cause", finding.cause}, {"text", finding.text}});
  }
  json entry = {{"dump", report.state.name},
                {"source", report.state.source},
                {"has_events", report.has_events},
                {"at", report.at},
                {"findings", std::move(findings)},
                {"total", to_json(found.total)},
                {"pools", to_json(found.pools)},
                {"streams", to_json(found.streams)},
                {"segments", to_json(found.segments)},
                {"holes", std::move(holes)},
                {"largest_request_bytes", found.largest_request_bytes},
                {"biggest_blocks", std::move(biggest)},
                {"groups", to_json(report.groups)},
                {"lost", to_json(report.lost)}};
  if (report.has_events) add_events(entry, report);
  return entry;
}

json inspect_json(const MemoryState& state, const AddressReport& report) {
  json entry = {{"dump", state.name}, {"source", state.source}, {"address", report.address}};
  if (report.device >= 0) entry["device"] = report.device;
  if (report.block) {
    entry["segment"] = report.segment;
    entry["block"] = to_json(*report.block);
    entry["block"]["state"] = report.block->block.kind == StateBlock::Kind::live   ? "live"
                              : report.block->block.kind == StateBlock::Kind::free ? "free"
                                                                                   : "pending";
  }
  if (report.before) entry["before"] = to_json(*report.before);
  if (report.after) entry["after"] = to_json(*report.after);
  entry["freed"] = json::array();
  for (const NearBlock& freed : report.freed) entry["freed"].push_back(to_json(freed));
  return entry;
}

}  // namespace gapless::tools
