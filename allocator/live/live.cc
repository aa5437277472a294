#include "allocator/live/live.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/files.h"
#include "allocator/base/json_text.h"
#include "allocator/base/terminal_text.h"
#include "allocator/live/stack_table.h"
#include "allocator/report/dump.h"

namespace gapless {
namespace {

using nlohmann::json;

// Of each list the largest so many are told: the answer has room for more, a terminal has not.
constexpr std::size_t kMostRows = 50;

// Those that are there, for the end of the process and for signals. Never destroyed.
struct Everyone {
  std::mutex mutex;
  std::set<Live*> all;
  std::atomic<LivePage*> signalled{nullptr};
};
Everyone& everyone() {
  static auto* const list = new Everyone;
  return *list;
}

void on_signal(int) {
  if (LivePage* const page = everyone().signalled.load(); page != nullptr) page->signal();
}

struct Sum {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
};

template <class Key, class Name>
json rows_of(const std::map<Key, Sum>& sums, const char* key, Name&& name) {
  std::vector<std::pair<Key, Sum>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  json list = json::array();
  for (std::size_t i = 0; i < rows.size() && i < kMostRows; ++i) {
    list.push_back({{key, name(rows[i].first)},
                    {"allocated_bytes", rows[i].second.bytes},
                    {"blocks", rows[i].second.blocks}});
  }
  return list;
}

void add_details(const HeapReport& heap, json& device) {
  std::map<StreamHandle, Sum> streams;
  std::map<PoolId, Sum> pools;
  const auto add = [&](const auto& block) {
    for (Sum* const sum : {&streams[block.stream], &pools[block.pool]}) {
      sum->bytes += block.bytes;
      ++sum->blocks;
    }
  };
  for (const BlockReport& block : heap.home) {
    if (block.kind == BlockReport::Kind::live) add(block);
  }
  for (const WindowBlockReport& block : heap.window_blocks) {
    if (!block.held) add(block);
  }
  device["streams"] = rows_of(streams, "stream", [](StreamHandle stream) { return stream; });
  device["pools"] = rows_of(pools, "pool", [](const PoolId& pool) {
    return "(" + std::to_string(pool.first) + ", " + std::to_string(pool.second) + ")";
  });
}

json status_of(const DeviceAllocator& device, DeviceIndex index, bool detailed) {
  const DeviceStatistics statistics = device.statistics();
  const HeapCounters counters = device.counters();
  const std::uint64_t limit = device.limit_bytes();
  const auto gauge = [](const Stat& stat) {
    return json{{"now", stat.current}, {"peak", stat.peak}, {"ever", stat.allocated}};
  };
  json status = {{"device", index},
                 {"total_bytes", device.total_bytes()},
                 {"limit_bytes", limit == UINT64_MAX ? json(nullptr) : json(limit)},
                 {"requested_bytes", gauge(statistics.requested_bytes.all)},
                 {"allocated_bytes", gauge(statistics.allocated_bytes.all)},
                 {"active_bytes", gauge(statistics.active_bytes.all)},
                 {"reserved_bytes", gauge(statistics.reserved_bytes.all)},
                 {"allocations", gauge(statistics.allocation.all)},
                 {"ooms", statistics.num_ooms},
                 {"retries", counters.retries},
                 {"syncs", statistics.num_sync_all_streams},
                 {"waits", counters.waits},
                 {"host_bytes", device.spill().bytes}};
  if (detailed) add_details(device.report(), status);
  return status;
}

std::string text_at(const json& request, const char* key) {
  const auto at = request.find(key);
  if (at == request.end() || !at->is_string()) {
    throw InputError(std::string("the request has no \"") + key + "\"");
  }
  return at->get<std::string>();
}

bool flag_at(const json& request, const char* key) {
  const auto at = request.find(key);
  return at != request.end() && at->is_boolean() && at->get<bool>();
}

// The folder is made where it is not there, as for dumps.
std::string file_in(const std::string& folder, const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError(folder, "", "cannot be made: " + error.message());
  return (std::filesystem::path(folder) / name).string();
}

std::string process_name(const char* what, const std::string& rest) {
  return std::string(what) + "-" + std::to_string(::getpid()) + rest;
}

void say(const std::string& text) {
  std::fprintf(stderr, "gapless: %s\n", terminal_text(text).c_str());
}

}  // namespace

Live::Live(Allocator& devices, const Options& options)
    : devices_(devices), options_(options), recorder_(devices), after_fork_([this] { forget(); }) {
  recorder_.set_stack_source(native_stack);
  if (!options.record.empty()) {
    // A process may make several allocators.
    static std::atomic<int> made{0};
    const int number = made.fetch_add(1);
    const std::string rest = number == 0 ? ".gtrace" : "-" + std::to_string(number) + ".gtrace";
    recorder_.begin(file_in(options.record, process_name("record", rest)), options.record_stacks);
  }
  if (options.live) {
    page_ = LivePage::open([this](std::string_view request) { return answer(request); },
                           [this] { dump_for_signal(); });
  }
  if (page_ != nullptr && options.dump_signal != DumpSignal::none) {
    everyone().signalled = page_.get();
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)::sigaction(options.dump_signal == DumpSignal::usr1 ? SIGUSR1 : SIGUSR2, &action,
                      nullptr);
  }
  Everyone& all = everyone();
  const std::scoped_lock lock(all.mutex);
  static const int at_exit = std::atexit([] {
    Everyone& there = everyone();
    const std::scoped_lock inner(there.mutex);
    for (Live* const live : there.all) live->end_at_exit();
  });
  (void)at_exit;
  all.all.insert(this);
}

Live::~Live() {
  {
    Everyone& all = everyone();
    const std::scoped_lock lock(all.mutex);
    all.all.erase(this);
    LivePage* own = page_.get();
    all.signalled.compare_exchange_strong(own, nullptr);
  }
  page_.reset();
}

void Live::forget() {
  // Threads are the parent's, and so are the file and the page.
  recorder_.forget();
  if (page_ != nullptr) page_->forget();
  everyone().signalled = nullptr;
  everyone().all.erase(this);
}

void Live::end_at_exit() { (void)recorder_.end(); }

void Live::set_snapshot(std::function<std::string()> snapshot) {
  const std::scoped_lock lock(mutex_);
  snapshot_ = std::move(snapshot);
}

std::string Live::answer(std::string_view text) {
  const json request = json::parse(text, nullptr, false);
  if (!request.is_object()) throw InputError("the request is no JSON object");
  const std::string what = text_at(request, "do");
  if (what == "status") return status(flag_at(request, "details"));
  if (what == "record") return begin(text_at(request, "path"), flag_at(request, "stacks"));
  if (what == "dump") return dump(text_at(request, "path"));
  if (what == "stop") {
    const Recorder::State state = recorder_.end();
    if (state.path.empty()) throw InputError("is not being recorded");
    return json_text(json{{"path", state.path},
                          {"events", state.events},
                          {"lost", state.lost},
                          {"file_bytes", state.file_bytes},
                          {"failed", state.error}});
  }
  throw InputError("this version of gapless cannot do \"" + what + "\"");
}

std::string Live::status(bool detailed) {
  json devices = json::array();
  for (DeviceIndex i = 0; i < devices_.devices(); ++i) {
    devices.push_back(status_of(*devices_.device(i), i, detailed));
  }
  json answer = {{"devices", devices}, {"recording", nullptr}};
  if (const Recorder::State state = recorder_.state(); !state.path.empty()) {
    json sites = json::array();
    for (const Recorder::Site& site : state.sites) {
      sites.push_back({{"site", site.text}, {"allocated_bytes", site.live_bytes}});
    }
    answer["recording"] = {{"path", state.path},
                           {"on", state.on},
                           {"events", state.events},
                           {"lost", state.lost},
                           {"file_bytes", state.file_bytes},
                           {"failed", state.error},
                           {"sites", std::move(sites)}};
  }
  return json_text(answer);
}

std::string Live::begin(const std::string& path, bool stacks) {
  recorder_.begin(path, stacks);
  return json_text(json{{"path", path}});
}

std::string Live::dump(const std::string& path) {
  constexpr std::string_view kPickle = ".pickle";
  if (path.size() > kPickle.size() && path.ends_with(kPickle)) {
    std::function<std::string()> snapshot;
    {
      const std::scoped_lock lock(mutex_);
      snapshot = snapshot_;
    }
    if (!snapshot) {
      throw InputError(path, "", "this process cannot make a snapshot of PyTorch's: name a .json");
    }
    write_file(path, snapshot());
  } else {
    std::vector<HeapReport> heaps;
    heaps.reserve(static_cast<std::size_t>(devices_.devices()));
    for (DeviceIndex i = 0; i < devices_.devices(); ++i) {
      heaps.push_back(devices_.device(i)->report());
    }
    write_file(path, write_dump(heaps));
  }
  return json_text(json{{"path", path}});
}

void Live::dump_for_signal() {
  try {
    const std::string folder = options_.dump_on_oom.empty() ? "." : options_.dump_on_oom;
    const std::string path =
        file_in(folder, process_name("signal", "-" + std::to_string(++dumps_) + ".dump.json"));
    (void)dump(path);
    say("wrote " + path);
  } catch (const std::exception& failed) {
    say(std::string("no dump: ") + failed.what());
  }
}

}  // namespace gapless
