#include "bench/streams/program.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <random>
#include <stdexcept>

#include "allocator/base/bytes.h"

namespace gapless::bench {
namespace {

using Kind = StreamOp::Kind;

constexpr std::uint64_t kUs = 1000;
constexpr double kLinkBytesPerNs = 25;    // PCIe 4.0 x16
constexpr double kFabricBytesPerNs = 90;  // gathering over NVLink

std::uint64_t ns_for(std::uint64_t bytes, double bytes_per_ns) {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) / bytes_per_ns);
}

class Writer {
 public:
  explicit Writer(StreamProgram& program) : program_(program) {}

  std::uint32_t alloc(std::uint64_t bytes, std::uint32_t stream) {
    const std::uint32_t block = program_.blocks++;
    program_.ops.push_back(
        {.kind = Kind::alloc, .stream = stream, .block = block, .amount = bytes});
    return block;
  }
  void free(std::uint32_t block) { program_.ops.push_back({.kind = Kind::free, .block = block}); }
  void record_stream(std::uint32_t block, std::uint32_t stream) {
    program_.ops.push_back({.kind = Kind::record_stream, .stream = stream, .block = block});
  }
  void work(std::uint32_t stream, std::uint64_t ns, std::initializer_list<std::uint32_t> blocks) {
    StreamOp op{.kind = Kind::work, .stream = stream, .amount = ns};
    op.first = static_cast<std::uint32_t>(program_.touched.size());
    op.count = static_cast<std::uint32_t>(blocks.size());
    program_.touched.insert(program_.touched.end(), blocks);
    program_.ops.push_back(op);
  }
  std::uint32_t record(std::uint32_t stream) {
    const std::uint32_t event = program_.events++;
    program_.ops.push_back({.kind = Kind::record, .stream = stream, .block = event});
    return event;
  }
  void wait(std::uint32_t stream, std::uint32_t event) {
    program_.ops.push_back({.kind = Kind::wait, .stream = stream, .block = event});
  }
  void sync(std::uint32_t event) { program_.ops.push_back({.kind = Kind::sync, .block = event}); }
  void iteration() { program_.ops.push_back({.kind = Kind::iteration}); }
  /// `later` runs after what `earlier` has been given so far.
  void order(std::uint32_t earlier, std::uint32_t later) { wait(later, record(earlier)); }

  /// A layer's own short-lived blocks: each made, used and freed on one stream.
  void temporaries(std::uint32_t stream, std::uint64_t bytes, std::uint64_t ns, int count) {
    for (int i = 0; i < count; ++i) {
      const std::uint32_t block = alloc(bytes / static_cast<std::uint64_t>(1 + i), stream);
      work(stream, ns / static_cast<std::uint64_t>(count), {block});
      free(block);
    }
  }

 private:
  StreamProgram& program_;
};

std::vector<std::uint64_t> layer_bytes(std::mt19937_64& random, std::uint32_t layers,
                                       std::uint64_t low, std::uint64_t high) {
  std::vector<std::uint64_t> bytes;
  std::uniform_int_distribution<std::uint64_t> size(low / 512, high / 512);
  bytes.reserve(layers);
  for (std::uint32_t i = 0; i < layers; ++i) bytes.push_back(size(random) * 512);
  return bytes;
}

// Activations go to the host in the forward pass, and come back before the backward pass wants
// them: `depth` layers ahead. Stream 0 computes; the side streams share the copies, the last one
// of two or more takes those to the host.
void offload(Writer& write, std::mt19937_64& random, int iterations, std::uint32_t layers,
             std::uint32_t sides, std::uint32_t depth, bool synchronized) {
  const auto bytes = layer_bytes(random, layers, 32 * MiB, 96 * MiB);
  const std::uint32_t backs = sides > 1 ? sides - 1 : 1;
  const std::uint32_t out = sides > 1 ? sides : 1;
  std::vector<std::uint32_t> weights;
  weights.reserve(layers);
  for (std::uint32_t i = 0; i < layers; ++i) weights.push_back(write.alloc(16 * MiB, 0));
  for (int step = 0; step < iterations; ++step) {
    write.iteration();
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::uint64_t compute_ns = ns_for(bytes[i], kLinkBytesPerNs) * 9 / 8;
      const std::uint32_t saved = write.alloc(bytes[i], 0);
      write.temporaries(0, bytes[i] / 2, compute_ns / 2, 3);
      write.work(0, compute_ns / 2, {weights[i], saved});
      write.order(0, out);
      write.work(out, ns_for(bytes[i], kLinkBytesPerNs), {saved});
      write.record_stream(saved, out);
      write.free(saved);
    }
    std::deque<std::pair<std::uint32_t, std::uint32_t>> fetched;  // block, event
    const auto fetch = [&](std::uint32_t i) {
      const std::uint32_t side = 1 + i % backs;
      const std::uint32_t block = write.alloc(bytes[i], side);
      write.work(side, ns_for(bytes[i], kLinkBytesPerNs), {block});
      fetched.emplace_back(block, write.record(side));
    };
    std::uint32_t next = layers;
    while (next > 0 && layers - next < depth) fetch(--next);
    for (std::uint32_t i = layers; i-- > 0;) {
      const std::uint64_t compute_ns = ns_for(bytes[i], kLinkBytesPerNs) * 9 / 4;
      if (next > 0) fetch(--next);
      const auto [block, event] = fetched.front();
      fetched.pop_front();
      write.wait(0, event);
      write.record_stream(block, 0);
      const std::uint32_t gradient = write.alloc(16 * MiB, 0);
      write.temporaries(0, bytes[i], compute_ns / 2, 4);
      write.work(0, compute_ns / 2, {weights[i], block, gradient});
      write.free(block);
      write.free(gradient);
    }
    if (synchronized) write.sync(write.record(0));
  }
  for (const std::uint32_t block : weights) write.free(block);
}

enum class Sharded : std::uint8_t { recorded, limited, ordered };

// Layers' parameters are gathered on stream 1 before they are used and dropped after, gradients are
// reduced on stream 2. `recorded`: record_stream says who uses a gathered block; `limited`: the
// host waits before it gathers the third layer ahead; `ordered`: the gather waits for the use
// instead. All layers have one size, as a transformer's have: gathering one takes a little less
// time than using the one before it.
void sharded(Writer& write, int iterations, std::uint32_t layers, Sharded style) {
  constexpr std::uint32_t kGather = 1;
  constexpr std::uint32_t kReduce = 2;
  const std::vector<std::uint64_t> bytes(layers, 97 * MiB + 512);
  std::vector<std::uint32_t> shards;
  shards.reserve(layers);
  for (std::uint32_t i = 0; i < layers; ++i) shards.push_back(write.alloc(bytes[i] / 8 * 3, 0));
  std::deque<std::uint32_t> used;
  struct Gathered {
    std::uint32_t block;
    std::uint32_t event;  // it is there
  };
  const auto gather = [&](std::uint32_t i) -> Gathered {
    if (style == Sharded::limited && used.size() >= 2) {
      write.sync(used.front());
      used.pop_front();
    }
    const std::uint32_t block = write.alloc(bytes[i], kGather);
    write.work(kGather, ns_for(bytes[i], kFabricBytesPerNs), {shards[i], block});
    return {block, write.record(kGather)};
  };
  const auto drop = [&](std::uint32_t block) {
    used.push_back(write.record(0));
    if (style == Sharded::ordered) {
      write.wait(kGather, used.back());
    } else {
      write.record_stream(block, 0);
    }
    write.free(block);
  };
  for (int step = 0; step < iterations; ++step) {
    write.iteration();
    std::vector<std::uint32_t> activations;
    Gathered ahead = gather(0);
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::uint64_t compute_ns = ns_for(bytes[i], kFabricBytesPerNs) * 5 / 4;
      const auto [block, there] = ahead;
      if (i + 1 < layers) ahead = gather(i + 1);
      write.wait(0, there);
      activations.push_back(write.alloc(24 * MiB, 0));
      write.temporaries(0, 48 * MiB, compute_ns / 2, 3);
      write.work(0, compute_ns / 2, {block, activations.back()});
      drop(block);
    }
    ahead = gather(layers - 1);
    for (std::uint32_t i = layers; i-- > 0;) {
      const std::uint64_t compute_ns = ns_for(bytes[i], kFabricBytesPerNs) * 5 / 2;
      const auto [block, there] = ahead;
      if (i > 0) ahead = gather(i - 1);
      write.wait(0, there);
      const std::uint32_t gradient = write.alloc(bytes[i], 0);
      write.temporaries(0, 48 * MiB, compute_ns / 2, 3);
      write.work(0, compute_ns / 2, {block, activations[i], gradient});
      drop(block);
      write.free(activations[i]);
      write.order(0, kReduce);
      const std::uint32_t reduced = write.alloc(bytes[i] / 8, kReduce);
      write.work(kReduce, ns_for(bytes[i], kFabricBytesPerNs), {gradient, reduced});
      if (style == Sharded::ordered) {
        write.order(kReduce, 0);
      } else {
        write.record_stream(gradient, kReduce);
      }
      write.free(gradient);
      write.free(reduced);
    }
  }
  for (const std::uint32_t block : shards) write.free(block);
}

// Requests of random length on streams that never wait for each other; the host gives each stream a
// step in turn.
void serve(Writer& write, std::mt19937_64& random, int iterations, std::uint32_t streams) {
  constexpr int kSteps = 60;
  struct Request {
    std::vector<std::uint32_t> cache;
    int left = 0;
  };
  std::vector<std::vector<Request>> requests(streams);
  std::uniform_int_distribution<int> length(4, 40);
  std::uniform_int_distribution<std::uint64_t> chunk(4 * MiB / 512, 48 * MiB / 512);
  for (int step = 0; step < iterations; ++step) {
    write.iteration();
    for (int i = 0; i < kSteps; ++i) {
      for (std::uint32_t stream = 0; stream < streams; ++stream) {
        auto& running = requests[stream];
        while (running.size() < 4) running.push_back({{}, length(random)});
        const std::uint32_t scratch = write.alloc(96 * MiB, stream);
        for (Request& request : running) {
          if (request.cache.empty() || request.left % 4 == 0) {
            request.cache.push_back(write.alloc(chunk(random) * 512, stream));
          }
          write.work(stream, 100 * kUs, {request.cache.back(), scratch});
          --request.left;
        }
        write.free(scratch);
        for (Request& request : running) {
          if (request.left > 0) continue;
          for (const std::uint32_t block : request.cache) write.free(block);
        }
        std::erase_if(running, [](const Request& request) { return request.left <= 0; });
      }
    }
  }
  for (const auto& running : requests) {
    for (const Request& request : running) {
      for (const std::uint32_t block : request.cache) write.free(block);
    }
  }
}

// "offload-2-3" -> {2, 3} behind the prefix; empty where the name is not of that form.
std::vector<std::uint32_t> numbers_after(const std::string& name, const std::string& prefix) {
  std::vector<std::uint32_t> numbers;
  if (!name.starts_with(prefix)) return numbers;
  const char* at = name.data() + prefix.size();
  const char* end = name.data() + name.size();
  while (at < end) {
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{}) return {};
    numbers.push_back(number);
    at = next < end && *next == '-' ? next + 1 : next;
    if (at == next && next < end) return {};
  }
  return numbers;
}

}  // namespace

std::uint64_t StreamProgram::peak_live_bytes() const {
  std::vector<std::uint64_t> bytes(blocks, 0);
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const StreamOp& op : ops) {
    if (op.kind == Kind::alloc) {
      bytes[op.block] = align_up(op.amount, 512);
      live += bytes[op.block];
      peak = std::max(peak, live);
    } else if (op.kind == Kind::free) {
      live -= bytes[op.block];
    }
  }
  return peak;
}

std::vector<std::string> stream_program_names() {
  std::vector<std::string> names;
  for (const char* kind : {"offload", "offload-sync"}) {
    for (const char* sides : {"1", "2", "3", "10"}) {
      for (const char* depth : {"1", "2", "3", "4"}) {
        names.push_back(std::string(kind) + "-" + sides + "-" + depth);
      }
    }
  }
  names.insert(names.end(),
               {"fsdp-recorded", "fsdp-limited", "fsdp-ordered", "serve-2", "serve-4"});
  return names;
}

StreamProgram stream_program(const std::string& name, const StreamProgramOptions& options) {
  const auto names = stream_program_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw std::invalid_argument("unknown program \"" + name + "\"");
  }
  StreamProgram program;
  program.name = name;
  Writer write(program);
  std::mt19937_64 random(options.seed);
  if (const auto serving = numbers_after(name, "serve-"); serving.size() == 1) {
    program.streams = serving[0];
    serve(write, random, options.iterations, serving[0]);
  } else if (name.starts_with("fsdp-")) {
    program.streams = 3;
    sharded(write, options.iterations, options.layers,
            name == "fsdp-recorded"  ? Sharded::recorded
            : name == "fsdp-limited" ? Sharded::limited
                                     : Sharded::ordered);
  } else {
    const bool synchronized = name.starts_with("offload-sync-");
    const auto shape = numbers_after(name, synchronized ? "offload-sync-" : "offload-");
    program.streams = shape.at(0) + 1;
    offload(write, random, options.iterations, options.layers, shape.at(0), shape.at(1),
            synchronized);
  }
  return program;
}

}  // namespace gapless::bench
