// CallStacks: all stacks of a recording as one tree, so that what they have in common is held once.
//
//   train.py:80 <module>                            node 1
//     train.py:41 train_step                        node 2
//       torch/nn/functional.py:1700 gelu            node 3    a stack is named by its innermost
//       node: torch/nn/modules/linear.py:134 forward      node 4    3 is "gelu, from 41, from 80"
//
// People look for their own line: of a stack of sixty frames most are the interpreter's, PyTorch's
// and the allocator's. `own_frame` finds it, `library_frame` what that line called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gapless {

struct CallStacks {
  struct Node {
    std::uint32_t parent = 0;  // a node before this one; 0: this is the outermost frame
    std::uint32_t frame = 0;   // index into `frames`

    bool operator==(const Node&) const = default;
  };
  std::vector<std::string> frames = {""};  // "train.py:41 train_step"
  std::vector<Node> nodes = {{}};          // node 0 is no stack

  bool operator==(const CallStacks&) const = default;

  /// The frames of a stack, the innermost first.
  [[nodiscard]] std::vector<std::uint32_t> frames_of(std::uint32_t node) const;
};

/// What a frame is, told by its text.
enum class FrameKind : std::uint8_t {
  own,        // Python of the program itself
  library,    // Python of an installed package or the standard library
  native,     // C or C++ that does something: an operator, a library's function
  machinery,  // the interpreter's own functions, thread starts, the allocator, stack unwinding, who
              // watches a dry run
};
FrameKind frame_kind(std::string_view frame);

/// Whether it is Python's, of whatever kind.
bool is_python_frame(std::string_view frame);

/// Where in a stack the line of the program stands: the innermost frame of its own; where an
/// installed command is the program (yolo, llamafactory-cli), the innermost of its package, which
/// is the outermost that is not PyTorch. As many as there are frames where there is none.
std::size_t own_frame(const std::vector<std::string_view>& frames);

/// The line of the program that asked: own_frame(), of a package without the folder it lies in;
/// else the innermost of a Python library; else, of what autograd's own thread asked for,
/// "MmBackward0 (backward pass)", or "aten::sum_dim.IntList (backward pass)" where it is between
/// two nodes; else the innermost line of C++ that is not PyTorch's, the outermost operator, the
/// innermost native frame. Empty where there is none. Frames are the innermost first.
std::string call_site(const std::vector<std::string_view>& frames);

/// The line of a library that it led to: the innermost one of an installed package that is not
/// PyTorch, "transformers/trainer.py:2500". Empty where there is none, or no line of the program.
std::string library_line(const std::vector<std::string_view>& frames);

/// What that line called, in short: the Python library's function next to it, or the operator
/// ("aten::bmm"), or "compiled code". Empty where there is none.
std::string called_there(const std::vector<std::string_view>& frames);

}  // namespace gapless
