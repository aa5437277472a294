// NvtxTool: the tool that a test attaches to NVTX (tests/nvtx/recorder.h), and what it was told.
//
//   if (!NvtxTool::is_there()) GTEST_SKIP() << NvtxTool::kMissing;
//   NvtxTool tool;                     // before anything is allocated with check:nvtx
//   EXPECT_THAT(tool.regions(), ...);
//
// NVTX looks for a tool once in a process, so all tests of a program share one.
#pragma once

#include <cstdlib>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "tests/nvtx/recorder.h"

namespace gapless::testing {

struct ToldRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  auto operator<=>(const ToldRange&) const = default;
};

inline void PrintTo(const ToldRange& range, std::ostream* out) {
  *out << "[" << std::hex << range.address << ", " << range.address + range.bytes << ")"
       << std::dec;
}

class NvtxTool {
 public:
  static constexpr const char* kMissing = "built without NVTX: no nvtx3/nvToolsExtMem.h";
#ifdef GAPLESS_NVTX_RECORDER
  static constexpr const char* kPath = GAPLESS_NVTX_RECORDER;
#else
  static constexpr const char* kPath = "";
#endif
  static bool is_there() { return *kPath != '\0'; }

  NvtxTool() : library_(dlopen(kPath, RTLD_NOW)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    setenv("NVTX_INJECTION64_PATH", kPath, 1);
    call<void()>("nvtx_recorder_reset")();
  }
  NvtxTool(const NvtxTool&) = delete;
  NvtxTool& operator=(const NvtxTool&) = delete;
  ~NvtxTool() {
    refuse(0);
    dlclose(library_);
  }

  /// By address.
  [[nodiscard]] std::vector<ToldRange> heaps() const { return list("nvtx_recorder_heaps"); }
  [[nodiscard]] std::vector<ToldRange> regions() const { return list("nvtx_recorder_regions"); }
  /// The name of the region that begins there; empty where none does.
  [[nodiscard]] std::string name_at(std::uint64_t address) const {
    for (const NvtxRange& range : read("nvtx_recorder_regions")) {
      if (range.address == address) return range.name;
    }
    return "";
  }
  [[nodiscard]] std::string mistakes() const {
    return call<const char*()>("nvtx_recorder_mistakes")();
  }
  [[nodiscard]] std::uint64_t calls() const {
    return call<std::uint64_t()>("nvtx_recorder_calls")();
  }
  void refuse(std::uint64_t one_of) const {
    call<void(std::uint64_t)>("nvtx_recorder_refuse")(one_of);
  }

 private:
  template <class Signature>
  Signature* call(const char* name) const {
    auto* const found = reinterpret_cast<Signature*>(dlsym(library_, name));
    if (found == nullptr) throw std::runtime_error(dlerror());
    return found;
  }
  [[nodiscard]] std::vector<NvtxRange> read(const char* name) const {
    auto* const ask = call<std::size_t(NvtxRange*, std::size_t)>(name);
    std::vector<NvtxRange> ranges(ask(nullptr, 0));
    ask(ranges.data(), ranges.size());
    return ranges;
  }
  [[nodiscard]] std::vector<ToldRange> list(const char* name) const {
    std::vector<ToldRange> found;
    for (const NvtxRange& range : read(name)) found.push_back({range.address, range.bytes});
    return found;
  }

  void* library_;
};

}  // namespace gapless::testing
