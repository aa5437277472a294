// gapless inspect: where the memory is, and what is lost between.
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "allocator/base/bytes.h"
#include "allocator/base/json_text.h"
#include "allocator/report/address.h"
#include "allocator/report/fragmentation.h"
#include "tools/commands.h"
#include "tools/inputs.h"
#include "tools/table.h"

namespace gapless::tools {
namespace {

using nlohmann::json;

struct InspectArguments {
  std::vector<std::string> dumps;
  std::string address;  // as typed
  std::size_t blocks = 10;
  std::size_t segments = 8;
  bool as_json = false;
};

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

json to_json(const MemoryState& state, const Fragmentation& found) {
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
  return {{"dump", state.name},
          {"source", state.source},
          {"total", to_json(found.total)},
          {"pools", to_json(found.pools)},
          {"streams", to_json(found.streams)},
          {"segments", to_json(found.segments)},
          {"holes", holes},
          {"largest_request_bytes", found.largest_request_bytes},
          {"biggest_blocks", biggest}};
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

json to_json(const MemoryState& state, const AddressReport& report) {
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

// "0x7f12..." or the same in decimal.
std::optional<std::uint64_t> read_address(const std::string& text) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const char* const begin = text.data() + (hexadecimal ? 2 : 0);
  const char* const end = text.data() + text.size();
  std::uint64_t address = 0;
  const auto [stop, error] = std::from_chars(begin, end, address, hexadecimal ? 16 : 10);
  if (error != std::errc{} || stop != end) return {};
  return address;
}

void add_row(Table& table, const MemorySum& sum) {
  table.add({{sum.name},
             {with_commas(sum.segments)},
             {format_bytes(sum.reserved_bytes)},
             {format_bytes(sum.active_bytes)},
             {format_bytes(sum.allocated_bytes)},
             {format_bytes(sum.requested_bytes)},
             {format_bytes(sum.free_bytes)},
             {format_bytes(sum.internal_bytes())},
             {fmt::format("{:.0f} %", sum.external() * 100)},
             {with_commas(sum.holes)},
             {format_bytes(sum.largest_hole_bytes)}});
}

Table sums_table(const std::string& head) {
  return Table({{head, Table::Align::left},
                {"segments"},
                {"reserved"},
                {"active"},
                {"allocated"},
                {"requested"},
                {"free"},
                {"internal"},
                {"external"},
                {"holes"},
                {"largest hole"}});
}

void print_report(const MemoryState& state, const Fragmentation& found,
                  const InspectArguments& arguments) {
  const bool colour = colour_wanted();
  fmt::print("{}\n", paragraph(fmt::format("{} ({})", state.name, state.source)));
  Table pools = sums_table("pool");
  for (const MemorySum& sum : found.pools) add_row(pools, sum);
  pools.gap();
  add_row(pools, found.total);
  fmt::print("{}\n", pools.text(colour));
  if (found.streams.size() > 1) {
    Table streams = sums_table("stream");
    for (const MemorySum& sum : found.streams) add_row(streams, sum);
    fmt::print("{}\n", streams.text(colour));
  }
  const std::size_t shown = std::min(arguments.segments, found.segments.size());
  if (shown != 0) {
    Table segments = sums_table(
        fmt::format("segments with most free memory ({} of {})", shown, found.segments.size()));
    for (std::size_t i = 0; i < shown; ++i) add_row(segments, found.segments[i]);
    fmt::print("{}\n", segments.text(colour));
  }
  if (!found.holes.empty()) {
    Table holes({{"holes from"}, {"count"}, {"bytes"}, {"share", Table::Align::left}});
    for (const HoleClass& size : found.holes) {
      const double share =
          static_cast<double>(size.bytes) / static_cast<double>(found.total.free_bytes);
      holes.add({{format_bytes(size.from_bytes)},
                 {with_commas(size.holes)},
                 {format_bytes(size.bytes)},
                 {std::string(static_cast<std::size_t>(std::lround(share * 40)), '#')}});
    }
    fmt::print("{}\n", holes.text(colour));
  }
  if (!found.biggest.empty()) {
    Table blocks({{"biggest live blocks", Table::Align::left},
                  {"bytes"},
                  {"requested"},
                  {"pool", Table::Align::left},
                  {"allocated at", Table::Align::left, true}});
    for (const LiveBlock& block : found.biggest) {
      blocks.add({{fmt::format("{:#x}", block.address)},
                  {format_bytes(block.bytes)},
                  {format_bytes(block.requested_bytes)},
                  {block.pool},
                  {block.site.empty() ? "-" : block.site}});
    }
    fmt::print("{}\n", blocks.text(colour));
  }
  fmt::print("{}",
             paragraph(fmt::format(
                 "Of {} reserved, {} is free; the largest request that would succeed without new "
                 "memory is {}.",
                 format_bytes(found.total.reserved_bytes), format_bytes(found.total.free_bytes),
                 format_bytes(found.largest_request_bytes))));
}

int run(const InspectArguments& arguments) {
  json list = json::array();
  bool first = true;
  const std::optional<std::uint64_t> address = read_address(arguments.address);
  const bool all_good = for_each_file(arguments.dumps, [&](const std::string& path) {
    const MemoryState state = load_state(path, address);
    if (address) {
      const AddressReport report = report_address(state, *address);
      if (arguments.as_json) {
        list.push_back(to_json(state, report));
        return;
      }
      fmt::print("{}{}\n{}", first ? "" : "\n", state.name, to_text(report));
      first = false;
      return;
    }
    const Fragmentation found = analyze(state, arguments.blocks);
    if (arguments.as_json) {
      list.push_back(to_json(state, found));
      return;
    }
    if (!first) fmt::print("\n");
    first = false;
    print_report(state, found, arguments);
  });
  if (arguments.as_json) fmt::print("{}\n", json_text(list, 1));
  return status_of(all_good, true);
}

}  // namespace

void add_inspect(CLI::App& app, int& status) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Show what is requested, allocated, active and reserved in a PyTorch snapshot or a gapless\n"
      "dump, or at the end of another recording (docs/traces.md), and what is lost between: by\n"
      "pool, stream, segment and size of hole.\n"
      "\n"
      "Examples:\n"
      "  gapless inspect snapshot.pickle\n"
      "  gapless inspect snapshot.pickle --blocks 30 --json\n"
      "  gapless inspect dump.json --address 0x7f1200000400     what is, or was, there\n"
      "\n"
      "Exit status: 0 done; 2 a wrong command line or file (the others are shown).");
  command->add_option("dump", arguments->dumps, "PyTorch snapshots, gapless dumps or recordings")
      ->required();
  command->add_option("--blocks", arguments->blocks, "How many of the biggest live blocks to show")
      ->capture_default_str()
      ->check(whole_number());
  command->add_option("--segments", arguments->segments, "How many segments to show")
      ->capture_default_str()
      ->check(whole_number());
  command
      ->add_option("--address", arguments->address,
                   "Say what is at that address, and what was there before, as far as the file\n"
                   "tells: a snapshot's history, what checks remember (docs/checks.md)")
      ->check([](const std::string& text) {
        return read_address(text) ? ""
                                  : "\"" + text + "\": expected an address such as 0x7f1200000400";
      });
  command->add_flag("--json", arguments->as_json, "One JSON object per file, with every segment");
  command->callback([arguments, &status] { status = run(*arguments); });
}

}  // namespace gapless::tools
