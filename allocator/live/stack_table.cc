#include "allocator/live/stack_table.h"

#include <array>

#include <dlfcn.h>
#include <execinfo.h>

#include "allocator/base/demangled.h"

namespace gapless {
namespace {

// "library.so:0 function", as frames of PyTorch's are written: the line is not known.
std::string native_text(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "unknown native code";
  const std::string path = info.dli_fname;
  const std::string library = path.substr(path.rfind('/') + 1);
  if (info.dli_sname != nullptr) return library + ":0 " + demangled(info.dli_sname);
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "+0x%zx", static_cast<std::size_t>(offset));
  return library + digits.data();
}

}  // namespace

std::uint32_t StackTable::child(std::uint32_t parent, std::uint32_t frame) {
  const std::uint64_t key = std::uint64_t{parent} << 32 | frame;
  if (const auto known = children_.find(key); known != children_.end()) return known->second;
  if (nodes_.size() >= kMostNodes) return 0;
  const auto node = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({parent, frame});
  children_.emplace(key, node);
  return node;
}

void StackTable::tell(Told& told, std::vector<std::string>& frames,
                      std::vector<CallStacks::Node>& nodes) {
  const std::scoped_lock lock(mutex_);
  frames.assign(texts_.begin() + static_cast<std::ptrdiff_t>(told.frames), texts_.end());
  nodes.assign(nodes_.begin() + static_cast<std::ptrdiff_t>(told.nodes), nodes_.end());
  told = {texts_.size(), nodes_.size()};
}

std::vector<std::string> StackTable::frames_of(std::uint32_t node) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> frames;
  for (; node != 0 && node < nodes_.size(); node = nodes_[node].parent) {
    frames.push_back(texts_[nodes_[node].frame]);
  }
  return frames;
}

StackTable& recorded_stacks() {
  static auto* const table = new StackTable;
  return *table;
}

std::uint32_t native_stack() {
  constexpr int kMostFrames = 64;
  std::array<void*, kMostFrames> addresses{};
  const int count = backtrace(addresses.data(), kMostFrames);
  std::array<StackTable::FrameKey, kMostFrames> keys{};
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    keys[at] = {reinterpret_cast<std::uintptr_t>(addresses[at]), 0};
  }
  return recorded_stacks().number_of(std::span(keys).first(static_cast<std::size_t>(count)),
                                     [&](std::size_t i) { return native_text(addresses[i]); });
}

}  // namespace gapless
