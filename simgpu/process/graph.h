// Graph: what a captured stream recorded, as CUDA graphs have it: nodes and what they depend on.
//
//   stream 1   kernel a --- record e        nodes  a   depends on -
//   stream 2              wait e -- copy b         b   depends on a
//
// Kernels do nothing here, so a node keeps what it must do when the graph is launched, if anything:
// a copy, a fill, a host function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gapless::simgpu {

/// cudaGraphNodeType, as far as nodes are made here.
enum class NodeKind : int {
  kernel = 0,
  copy = 1,
  fill = 2,
  host = 3,
  empty = 5,
  event = 6,
  allocation = 10,
  release = 11
};

struct GraphNode {
  NodeKind kind = NodeKind::empty;
  std::vector<GraphNode*> depends_on;
  std::function<void()> run;       // empty: nothing to do
  const void* function = nullptr;  // a kernel's host function
};

/// cudaUserObject: something that must live as long as what retains it.
struct UserObject {
  void* pointer = nullptr;
  void (*destroy)(void*) = nullptr;
  unsigned references = 0;
};

/// Memory that a graph's own allocation nodes take (cudaMallocAsync during capture): charged from
/// then on, until the graph and all that was made of it are destroyed. What a release node gives
/// back, a later allocation node of the graph takes again.
struct GraphMemory {
  std::multimap<std::size_t, void*> released;    // by size
  std::unordered_map<void*, std::size_t> bytes;  // of every one
  std::function<void(void*)> give_back;

  ~GraphMemory() {
    for (const auto& [pointer, size] : bytes) give_back(pointer);
  }
};

struct Graph {
  std::shared_ptr<GraphMemory> memory;            // none: no allocation nodes
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order they were made
  std::vector<std::pair<UserObject*, unsigned>> objects;
  /// Where its kernels write: address, bytes.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> writes;

  GraphNode* add(NodeKind kind, std::vector<GraphNode*> depends_on) {
    nodes.push_back(std::make_unique<GraphNode>());
    nodes.back()->kind = kind;
    nodes.back()->depends_on = std::move(depends_on);
    return nodes.back().get();
  }
};

/// An instantiated graph: what it does, in order. Outlives the graph it was made of.
struct GraphExec {
  std::shared_ptr<GraphMemory> memory;
  std::vector<std::function<void()>> steps;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> writes;
  std::vector<std::pair<UserObject*, unsigned>> objects;
};

}  // namespace gapless::simgpu
