#include "allocator/report/out_of_memory.h"

#include <algorithm>
#include <bit>
#include <map>

#include "allocator/base/bytes.h"
#include "allocator/base/json_text.h"

namespace gapless {
namespace {

using Group = OutOfMemoryReport::Group;

std::string pool_name(const PoolId& id) {
  return "pool {" + std::to_string(id.first) + ", " + std::to_string(id.second) + "}";
}

std::string stream_name(StreamHandle stream) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), kDigits[stream % 16]);
    stream /= 16;
  } while (stream != 0);
  return "stream 0x" + digits;
}

// "1 MiB to 2 MiB": powers of two.
std::string size_name(std::uint64_t bytes) {
  const std::uint64_t low = std::bit_floor(std::max<std::uint64_t>(bytes, 512));
  return format_bytes(low) + " to " + format_bytes(2 * low);
}

class Groups {
 public:
  void add(const std::string& name, std::uint64_t bytes) {
    Group& group = groups_[name];
    group.name = name;
    group.bytes += bytes;
    ++group.blocks;
  }
  [[nodiscard]] std::vector<Group> by_bytes() const {
    std::vector<Group> list;
    for (const auto& [name, group] : groups_) list.push_back(group);
    std::stable_sort(list.begin(), list.end(),
                     [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
    return list;
  }

 private:
  std::map<std::string, Group> groups_;
};

// What the limit still allows to be reserved.
std::uint64_t room_in_limit(const OutOfMemoryReport& report) {
  return report.limit_bytes - std::min(report.limit_bytes, report.reserved_bytes);
}

void advise(OutOfMemoryReport& report, std::uint64_t device_free_bytes) {
  const auto say = [&](std::string words) { report.advice.push_back(std::move(words)); };
  if (report.missing_bytes != 0 &&
      room_in_limit(report) + report.missing_bytes <= device_free_bytes) {
    say("raise the limit of " + format_bytes(report.limit_bytes) + " by " +
        format_bytes(report.missing_bytes));
  }
  for (const Group& pool : report.free_in_pools) {
    if (pool.bytes < report.missing_bytes || report.missing_bytes == 0) continue;
    say("release " + pool.name + ", which holds " + format_bytes(pool.bytes) +
        " free, or let it be used when memory runs out (use_on_oom)");
  }
  for (const Group& pool : report.owed_to_pools) {
    if (pool.bytes < report.missing_bytes || report.missing_bytes == 0) continue;
    say("release " + pool.name + ", for which " + format_bytes(pool.bytes) + " are kept");
  }
  if (report.elsewhere_bytes >= report.missing_bytes && report.missing_bytes != 0) {
    say("free " + format_bytes(report.missing_bytes) + " of the " +
        format_bytes(report.elsewhere_bytes) + " that others hold on the device");
  }
  if (report.missing_bytes != 0 && report.could_spill) {
    say("set spill:" + format_bytes(report.spilled_bytes + report.missing_bytes) +
        " or more to go on, slowly, in host memory");
  }
  if (report.missing_bytes != 0) {
    const std::string more =
        report.largest.bytes == 0
            ? ""
            : " (" + format_bytes(report.largest_missing_bytes) + " for the largest such request)";
    say("keep " + format_bytes(report.missing_bytes) + more +
        " less alive: a smaller batch, shorter sequences, checkpointing");
  }
}

}  // namespace

OutOfMemoryReport explain(const HeapReport& heap, const FailedRequest& request,
                          std::uint64_t device_free_bytes, LargestSuch largest) {
  OutOfMemoryReport report;
  report.request = request;
  report.device_name = heap.device_name;
  report.total_bytes = heap.total_bytes;
  report.limit_bytes = std::min(heap.limit_bytes, heap.total_bytes);
  report.reserved_bytes = static_cast<std::uint64_t>(heap.statistics.reserved_bytes.all.current);
  const std::uint64_t used = heap.total_bytes - std::min(heap.total_bytes, device_free_bytes);
  report.elsewhere_bytes = used - std::min(used, report.reserved_bytes);
  Groups sizes;
  Groups streams;
  Groups pools;
  Groups free_in_pools;
  const auto live = [&](std::uint64_t bytes, StreamHandle stream, const PoolId& pool) {
    report.live_bytes += bytes;
    ++report.live_blocks;
    sizes.add(size_name(bytes), bytes);
    streams.add(stream_name(stream), bytes);
    if (pool != PoolId{}) pools.add(pool_name(pool), bytes);
  };
  for (const WindowBlockReport& block : heap.window_blocks) {
    if (block.held) {
      report.held_bytes += block.bytes;
      continue;
    }
    live(block.bytes, block.stream, block.pool);
  }
  for (const BlockReport& block : heap.home) {
    if (block.kind == BlockReport::Kind::live) live(block.bytes, block.stream, block.pool);
    if (block.kind == BlockReport::Kind::held) report.held_bytes += block.bytes;
    if (block.kind != BlockReport::Kind::hole) continue;
    if (block.pool != PoolId{} && block.pool != request.pool) {
      free_in_pools.add(pool_name(block.pool), block.bytes);
      continue;
    }
    report.free_page_bytes += block.free_page_bytes;
    report.free_part_bytes += block.bytes - block.free_page_bytes;
    if (block.free_page_bytes != block.bytes) ++report.free_parts;
  }
  report.by_size = sizes.by_bytes();
  report.by_stream = streams.by_bytes();
  report.by_pool = pools.by_bytes();
  report.free_in_pools = free_in_pools.by_bytes();
  Groups owed_to_pools;
  std::uint64_t owed_bytes = 0;
  for (const PoolDebt& debt : heap.owed_to_pools) {
    if (debt.pool == request.pool) continue;
    owed_to_pools.add(pool_name(debt.pool), debt.bytes);
    owed_bytes += debt.bytes;
  }
  report.owed_to_pools = owed_to_pools.by_bytes();
  const std::uint64_t usable = report.free_page_bytes;
  const auto pages_of = [&](std::uint64_t bytes) {
    return bytes > UINT64_MAX - heap.page_bytes
               ? align_down(UINT64_MAX, heap.page_bytes)  // a negative number was asked for
               : align_up(bytes, heap.page_bytes);
  };
  const std::uint64_t wanted = pages_of(request.bytes);
  std::uint64_t room = std::min(device_free_bytes, room_in_limit(report));
  room -= std::min(room, owed_bytes);
  const std::uint64_t had = usable + align_down(room, heap.page_bytes);
  report.missing_bytes = wanted > had ? wanted - had : 0;
  if (report.missing_bytes != 0 && largest.bytes > request.bytes) {
    report.largest_missing_bytes = pages_of(largest.bytes) - had;
    report.largest = std::move(largest);
  }
  report.spilled_bytes = heap.spill.bytes;
  report.could_spill = heap.spill.possible;
  advise(report, device_free_bytes);
  return report;
}

std::string headline(const OutOfMemoryReport& report) {
  if (report.advice.empty()) return {};
  const std::string& best = report.advice.front();
  if (report.missing_bytes != 0) {
    return "It is " + format_bytes(report.missing_bytes) + " short: " + best + ".";
  }
  return "It would have fit: " + best + ".";
}

std::string to_text(const OutOfMemoryReport& report) {
  const auto sum = [](const std::vector<Group>& groups) {
    std::uint64_t bytes = 0;
    for (const Group& group : groups) bytes += group.bytes;
    return bytes;
  };
  std::string text = "asked for " + format_bytes(report.request.bytes) + " on " +
                     stream_name(report.request.stream) + " of device " +
                     std::to_string(report.request.device);
  if (report.request.pool != PoolId{}) text += " in " + pool_name(report.request.pool);
  text += "\nlive: " + format_bytes(report.live_bytes) + " in " +
          std::to_string(report.live_blocks) +
          " blocks; reserved: " + format_bytes(report.reserved_bytes);
  if (report.limit_bytes != report.total_bytes) {
    text += "; limit: " + format_bytes(report.limit_bytes);
  }
  text += "; others on the device: " + format_bytes(report.elsewhere_bytes);
  const auto list = [&](const char* title, const std::vector<Group>& groups) {
    constexpr std::size_t kMost = 5;
    if (groups.empty()) return;
    text += std::string("\n  ") + title;
    for (std::size_t i = 0; i < std::min(kMost, groups.size()); ++i) {
      text += std::string(i == 0 ? " " : ", ") + groups[i].name + ": " +
              format_bytes(groups[i].bytes) + " (" + std::to_string(groups[i].blocks) + ")";
    }
  };
  list("by size:", report.by_size);
  if (report.by_stream.size() > 1) list("by stream:", report.by_stream);
  list("in private pools:", report.by_pool);
  text += "\nfree: " + format_bytes(report.free_page_bytes) + " in whole pages, " +
          format_bytes(report.free_part_bytes) + " in " + std::to_string(report.free_parts) +
          " parts of pages, " + format_bytes(sum(report.free_in_pools)) + " in private pools";
  if (!report.owed_to_pools.empty()) {
    text += "; " + format_bytes(sum(report.owed_to_pools)) +
            " are kept on the device for private pools that lent what was free in them";
  }
  if (report.missing_bytes != 0) {
    text += "\nshort of: " + format_bytes(report.missing_bytes) + " for this request";
  }
  if (report.largest.bytes != 0) {
    text += ", " + format_bytes(report.largest_missing_bytes) + " for the largest so far at " +
            report.largest.place + ", of " + format_bytes(report.largest.bytes);
  }
  if (report.spilled_bytes != 0) {
    text += "\n" + format_bytes(report.spilled_bytes) + " lie in host memory";
  }
  if (report.held_bytes != 0) {
    text += "\n" + format_bytes(report.held_bytes) + " are freed, but pinned or shared";
  }
  for (const std::string& words : report.advice) text += "\n- " + words;
  return text;
}

std::string to_json(const OutOfMemoryReport& report) {
  const auto list = [](const std::vector<Group>& groups) {
    nlohmann::json array = nlohmann::json::array();
    for (const Group& group : groups) {
      array.push_back({{"name", group.name}, {"bytes", group.bytes}, {"blocks", group.blocks}});
    }
    return array;
  };
  const nlohmann::json document = {
      {"asked_bytes", report.request.bytes},
      {"device", report.request.device},
      {"device_name", report.device_name},
      {"stream", report.request.stream},
      {"pool", {report.request.pool.first, report.request.pool.second}},
      {"total_bytes", report.total_bytes},
      {"limit_bytes", report.limit_bytes},
      {"reserved_bytes", report.reserved_bytes},
      {"elsewhere_bytes", report.elsewhere_bytes},
      {"live_bytes", report.live_bytes},
      {"live_blocks", report.live_blocks},
      {"live_by_size", list(report.by_size)},
      {"live_by_stream", list(report.by_stream)},
      {"live_by_pool", list(report.by_pool)},
      {"free_page_bytes", report.free_page_bytes},
      {"free_part_bytes", report.free_part_bytes},
      {"free_parts", report.free_parts},
      {"free_in_pools", list(report.free_in_pools)},
      {"owed_to_pools", list(report.owed_to_pools)},
      {"missing_bytes", report.missing_bytes},
      {"largest_such", report.largest.bytes == 0
                           ? nlohmann::json()
                           : nlohmann::json{{"bytes", report.largest.bytes},
                                            {"place", report.largest.place},
                                            {"missing_bytes", report.largest_missing_bytes}}},
      {"spilled_bytes", report.spilled_bytes},
      {"held_bytes", report.held_bytes},
      {"advice", report.advice}};
  return json_text(document, 2);
}

}  // namespace gapless
