// torch_host: PyTorch's genuine CUDA caching allocator as a peer, over the simulated GPU.
//
//   torch_host TRACE PASSES TIMED COURSE  one trace; prints the result (replay/in_torch.h)
//   torch_host threads                    the cost of a pair with 1 to 16 threads, gapless beside
//   it torch_host pairs                      the cost of a pair beside 1 to 10,000 live blocks,
//   native
//                                         and gapless through the same virtual calls
//
// Started with simgpu's libraries in front. Which allocator (native or expandable_segments) and how
// large the GPU is, the environment says. Not part of gapless: linked with libc10_cuda.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>

#include "allocator/trace/load.h"
#include "bench/peers/peer.h"
#include "bench/peers/workload.h"
#include "bench/replay/in_torch.h"
#include "bench/replay/throughput.h"
#include "simgpu/sim_driver.h"

extern "C" void simgpu_calls(std::uint64_t* counts);  // of libsimgpu.so

namespace gapless::bench {
namespace {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

class TorchPeer final : public Peer {
 public:
  explicit TorchPeer(torch_cuda::CUDAAllocator* allocator) : allocator_(*allocator) {}

  DeviceAddress alloc(std::uint64_t bytes, StreamHandle stream, std::uint8_t pool) override {
    enter(pool);
    try {
      void* const at = allocator_.raw_alloc_with_stream(bytes == 0 ? 1 : bytes,
                                                        reinterpret_cast<cudaStream_t>(stream));
      return reinterpret_cast<DeviceAddress>(at);
    } catch (const c10::OutOfMemoryError&) {
      return 0;
    }
  }
  void free(DeviceAddress address) override {
    allocator_.raw_delete(reinterpret_cast<void*>(address));
  }
  void record_stream(DeviceAddress address, StreamHandle stream) override {
    void* const at = reinterpret_cast<void*>(address);
    c10::DataPtr data(at, at, allocator_.raw_deleter(), c10::Device(c10::kCUDA, 0));
    allocator_.recordStream(
        data, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0));
    (void)data.release_context();
  }
  [[nodiscard]] std::uint64_t reserved_bytes() const override { return reserved().current; }
  [[nodiscard]] std::uint64_t peak_reserved_bytes() const override { return reserved().peak; }

 private:
  struct Reserved {
    std::uint64_t current;
    std::uint64_t peak;
  };
  [[nodiscard]] Reserved reserved() const {
    const auto stat = allocator_.getDeviceStats(0).reserved_bytes[0];  // of all pools
    return {static_cast<std::uint64_t>(stat.current), static_cast<std::uint64_t>(stat.peak)};
  }
  // Allocations of a private pool are made inside it.
  void enter(std::uint8_t pool) {
    if (pool == pool_) return;
    if (pool_ != 0) allocator_.endAllocateToPool(0, {0, pool_});
    if (pool != 0) allocator_.beginAllocateToPool(0, {0, pool}, [](cudaStream_t) { return true; });
    pool_ = pool;
  }

  torch_cuda::CUDAAllocator& allocator_;
  std::uint8_t pool_ = 0;
};

DriverCallCounts counts() {
  DriverCallCounts now;
  simgpu_calls(now.calls.data());
  return now;
}

void run(const char* path, int passes, bool timed, bool course) {
  c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());
  torch_cuda::get()->init(1);
  const std::vector<Trace> traces = load_traces(path);
  TorchPeer peer(torch_cuda::get());
  ReplayOptions options;
  options.passes = passes;
  options.time_operations = timed;
  options.keep_course = course;
  // To the allocator a stream is a key: any number but null's will do.
  std::vector<StreamHandle> streams;
  for (std::size_t i = 0; i < traces.at(0).streams.size(); ++i) {
    streams.push_back(traces[0].streams[i] == 0 ? 0 : 4096 * (i + 1));
  }
  std::puts(to_text(replay_through(traces[0], peer, streams, counts, options)).c_str());
}

// Both in this process, one after the other, with the same requests.
void run_threads() {
  c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());
  torch_cuda::get()->init(1);
  TorchPeer native(torch_cuda::get());
  simgpu::SimDriver gpu;
  const auto gapless = make_peer("gapless", gpu, 0);
  std::puts("threads  streams  native ns  gapless ns  ratio");
  for (const bool one_stream : {true, false}) {
    for (const std::size_t threads : {1, 2, 4, 8, 16}) {
      std::vector<StreamHandle> of_native;
      std::vector<StreamHandle> of_gapless;
      for (std::size_t i = 0; i < threads; ++i) {
        of_native.push_back(one_stream ? 0 : 4096 * (i + 1));
        of_gapless.push_back(0);
        if (!one_stream) gpu.stream_create(0, of_gapless.back());
      }
      const double of_torch = pair_ns(native, of_native);
      const double ours = pair_ns(*gapless, of_gapless);
      std::printf("%7zu  %7zu  %9.0f  %10.0f  %5.1f\n", threads, one_stream ? 1 : threads, of_torch,
                  ours, of_torch / ours);
    }
  }
}

// gapless in the place of the native allocator, from libgapless_torch beside this program's library
// folder; the native one stays as usable as it was.
torch_cuda::CUDAAllocator* install_gapless(const char* program) {
  const std::string name(program);
  const std::string version = name.substr(name.rfind('-') + 1);
  const std::string path =
      name.substr(0, name.rfind('/')) + "/../lib/libgapless_torch-" + version + ".so";
  (void)dlopen("libtorch_cpu.so", RTLD_NOW);  // which tells the adapter torch's version
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  char message[1024];
  using Install = int (*)(char*, std::size_t);
  if (reinterpret_cast<Install>(dlsym(library, "gapless_torch_install"))(message, 1024) != 0) {
    throw std::runtime_error(message);
  }
  return torch_cuda::get();
}

// One allocator's live blocks, and the cost of a pair beside them.
class PairBench {
 public:
  PairBench(torch_cuda::CUDAAllocator* allocator, Sizes sizes, std::size_t live)
      : peer_(allocator), work_(prepare(peer_, sizes, live, 1)) {
    for (std::size_t i = 0; i < std::max<std::size_t>(2 * live, kDraws); ++i) {
      churn(peer_, work_, i);
    }
  }
  void run_round() {
    constexpr std::size_t kPairs = 50000;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < kPairs; ++i) pair(peer_, work_, i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best_ns_ = std::min(best_ns_, took.count() / static_cast<double>(kPairs));
  }
  void finish() {
    for (const DeviceAddress address : work_.live) peer_.free(address);
  }
  [[nodiscard]] double best_ns() const { return best_ns_; }

 private:
  TorchPeer peer_;
  Workload work_;
  double best_ns_ = 1e9;
};

void run_pairs(const char* program) {
  c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());
  torch_cuda::get()->init(1);
  torch_cuda::CUDAAllocator* const native = torch_cuda::get();
  torch_cuda::CUDAAllocator* const gapless = install_gapless(program);
  std::puts("sizes    live  native ns  gapless ns  ratio");
  for (const Sizes sizes : {Sizes::small, Sizes::mixed}) {
    for (const std::size_t live : {1, 16, 1000, 10000}) {
      PairBench of_torch(native, sizes, live);
      PairBench ours(gapless, sizes, live);
      for (int round = 0; round < 40; ++round) {  // in turns: whatever else runs slows both
        of_torch.run_round();
        ours.run_round();
      }
      of_torch.finish();
      ours.finish();
      std::printf("%-5s  %6zu  %9.0f  %10.0f  %5.1f\n", sizes == Sizes::small ? "small" : "mixed",
                  live, of_torch.best_ns(), ours.best_ns(), of_torch.best_ns() / ours.best_ns());
    }
  }
}

}  // namespace
}  // namespace gapless::bench

int main(int count, char** words) {
  const std::string_view mode = count == 2 ? words[1] : "";
  if (count != 5 && mode != "threads" && mode != "pairs") {
    std::fputs("usage: torch_host TRACE PASSES TIMED COURSE; gapless replay starts it\n", stderr);
    return 2;
  }
  c10::initLogging();  // by TORCH_CPP_LOG_LEVEL
  try {
    if (mode == "threads") {
      gapless::bench::run_threads();
    } else if (mode == "pairs") {
      gapless::bench::run_pairs(words[0]);
    } else {
      gapless::bench::run(words[1], std::atoi(words[2]), words[3][0] == '1', words[4][0] == '1');
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_host: %s\n", error.what());
    return 1;
  }
  std::fflush(stdout);
  std::_Exit(0);  // torch's own end is of no interest
}
