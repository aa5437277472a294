// Graph: what a captured stream recorded, as CUDA graphs have it: nodes and what they depend on.
//
//   stream 1   kernel a --- record e        nodes  a   depends on -
//   stream 2              wait e -- copy b         b   depends on a
//
// Kernels do nothing here, so a node keeps what it must do when the graph is launched, if anything:
// a copy, a fill, a host function.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace gapless::simgpu {

/// cudaGraphNodeType, as far as nodes are made here.
enum class NodeKind : int { kernel = 0, copy = 1, fill = 2, host = 3, empty = 5, event = 6 };

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

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order they were made
  std::vector<std::pair<UserObject*, unsigned>> objects;

  GraphNode* add(NodeKind kind, std::vector<GraphNode*> depends_on) {
    nodes.push_back(std::make_unique<GraphNode>());
    nodes.back()->kind = kind;
    nodes.back()->depends_on = std::move(depends_on);
    return nodes.back().get();
  }
};

/// An instantiated graph: what it does, in order. Outlives the graph it was made of.
struct GraphExec {
  std::vector<std::function<void()>> steps;
  std::vector<std::pair<UserObject*, unsigned>> objects;
};

}  // namespace gapless::simgpu
