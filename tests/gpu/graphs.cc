#include "tests/gpu/graphs.h"

#include <type_traits>
#include <utility>

#include <dlfcn.h>

namespace gapless::testing {
namespace {

class SimulatedGraphs final : public Graphs {
 public:
  explicit SimulatedGraphs(simgpu::SimDriver& gpu) : gpu_(gpu) {}

  DriverStatus begin(StreamHandle stream, CaptureMode /*mode*/) override {
    gpu_.begin_capture(0, stream);
    return DriverStatus::ok;
  }
  DriverStatus end(StreamHandle stream, std::size_t& graph) override {
    simgpu::CapturedGraph captured = gpu_.end_capture(stream);
    if (!captured.valid) return DriverStatus::capture_invalidated;
    graph = graphs_.size();
    graphs_.push_back(std::move(captured));
    return DriverStatus::ok;
  }
  DriverStatus launch(std::size_t graph, StreamHandle stream) override {
    gpu_.replay(graphs_[graph], stream);
    return DriverStatus::ok;
  }
  DriverStatus destroy(std::size_t /*graph*/) override { return DriverStatus::ok; }
  DriverStatus order(StreamHandle earlier, StreamHandle later) override {
    gpu_.order(0, earlier, later);
    return DriverStatus::ok;
  }

 private:
  simgpu::SimDriver& gpu_;
  std::vector<simgpu::CapturedGraph> graphs_;
};

class CudaGraphs final : public Graphs {
 public:
  explicit CudaGraphs(Driver& driver) : driver_(driver) {}
  ~CudaGraphs() override {
    if (library_ != nullptr) dlclose(library_);
  }

  bool load(std::string& error) {
    library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      error = "libcuda.so.1 is not there";
      return false;
    }
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library_, name));
      if (function == nullptr) error = std::string("libcuda.so.1 has no ") + name;
    };
    find(retain_, "cuDevicePrimaryCtxRetain");
    find(set_current_, "cuCtxSetCurrent");
    find(begin_, "cuStreamBeginCapture_v2");
    find(end_, "cuStreamEndCapture");
    find(instantiate_, "cuGraphInstantiateWithFlags");
    find(launch_, "cuGraphLaunch");
    find(destroy_, "cuGraphDestroy");
    find(destroy_exec_, "cuGraphExecDestroy");
    if (!error.empty()) return false;
    // Kept until the process ends: what runs then is not to lose its context.
    void* context = nullptr;
    if (retain_(&context, 0) != 0 || set_current_(context) != 0) {
      error = "the device's context cannot be had";
      return false;
    }
    return true;
  }

  DriverStatus begin(StreamHandle stream, CaptureMode mode) override {
    return status(begin_(pointer(stream), static_cast<int>(mode)));
  }
  DriverStatus end(StreamHandle stream, std::size_t& graph) override {
    void* captured = nullptr;
    if (const int error = end_(pointer(stream), &captured); error != 0) return status(error);
    void* exec = nullptr;
    const int error = instantiate_(&exec, captured, 0);
    destroy_(captured);
    if (error != 0) return status(error);
    graph = graphs_.size();
    graphs_.push_back(exec);
    return DriverStatus::ok;
  }
  DriverStatus launch(std::size_t graph, StreamHandle stream) override {
    return status(launch_(graphs_[graph], pointer(stream)));
  }
  DriverStatus destroy(std::size_t graph) override {
    return status(destroy_exec_(std::exchange(graphs_[graph], nullptr)));
  }
  DriverStatus order(StreamHandle earlier, StreamHandle later) override {
    EventHandle event = 0;
    DriverStatus status = driver_.event_create(0, event);
    if (status != DriverStatus::ok) return status;
    status = driver_.event_record(0, event, earlier);
    if (status == DriverStatus::ok) status = driver_.stream_wait_event(0, later, event);
    (void)driver_.event_destroy(0, event);
    return status;
  }

 private:
  static DriverStatus status(int result) { return static_cast<DriverStatus>(result); }
  static void* pointer(StreamHandle handle) {
    return reinterpret_cast<void*>(handle);  // NOLINT(performance-no-int-to-ptr)
  }

  Driver& driver_;
  void* library_ = nullptr;
  std::vector<void*> graphs_;
  int (*retain_)(void** context, int device) = nullptr;
  int (*set_current_)(void* context) = nullptr;
  int (*begin_)(void* stream, int mode) = nullptr;
  int (*end_)(void* stream, void** graph) = nullptr;
  int (*instantiate_)(void** exec, void* graph, unsigned long long flags) = nullptr;
  int (*launch_)(void* exec, void* stream) = nullptr;
  int (*destroy_)(void* graph) = nullptr;
  int (*destroy_exec_)(void* exec) = nullptr;
};

}  // namespace

std::unique_ptr<Graphs> Graphs::of(Driver& driver, std::string& error) {
  if (auto* const simulated = dynamic_cast<simgpu::SimDriver*>(&driver)) {
    return std::make_unique<SimulatedGraphs>(*simulated);
  }
  auto real = std::make_unique<CudaGraphs>(driver);
  if (!real->load(error)) return nullptr;
  return real;
}

}  // namespace gapless::testing
