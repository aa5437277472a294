#include "allocator/trace/call_stacks.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace gapless {
namespace {

// "file.py:12 forward" in its two parts.
struct FrameText {
  std::string_view file;  // without the line
  std::string_view name;
};

FrameText parts_of(std::string_view frame) {
  // A file's name may hold blanks and colons: the line is the last ":digits " or ":digits" at the
  // end of those that follow a file.
  for (std::size_t at = frame.find(':'); at != std::string_view::npos;
       at = frame.find(':', at + 1)) {
    std::size_t end = at + 1;
    while (end < frame.size() && std::isdigit(static_cast<unsigned char>(frame[end])) != 0) ++end;
    if (end == at + 1) continue;
    if (end == frame.size()) return {frame.substr(0, at), {}};
    if (frame[end] == ' ') return {frame.substr(0, at), frame.substr(end + 1)};
  }
  return {frame, {}};
}

bool any_in(std::string_view text, const auto& list) {
  return std::any_of(std::begin(list), std::end(list), [&](std::string_view one) {
    return text.find(one) != std::string_view::npos;
  });
}
bool any_begins(std::string_view text, const auto& list) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](std::string_view one) { return text.starts_with(one); });
}

// The innermost package that a file lies in, with what is inside it: "flax/linen.py:7 call". Empty
// where it is in none, or in PyTorch.
std::string_view in_packages(std::string_view frame) {
  static constexpr std::array<std::string_view, 2> kPackages = {"site-packages", "dist-packages"};
  for (const std::string_view packages : kPackages) {
    const std::size_t at = frame.rfind(packages);
    if (at == frame.npos || at + packages.size() + 1 >= frame.size()) continue;
    const std::string_view inside = frame.substr(at + packages.size() + 1);
    if (!inside.starts_with("torch/") && !inside.starts_with("torch\\")) return inside;
  }
  return {};
}
std::string_view package_of(std::string_view frame) {
  const std::string_view inside = in_packages(frame);
  return inside.substr(0, inside.find_first_of("/\\:"));
}

bool is_python(std::string_view file) {
  return file.ends_with(".py") || (file.starts_with('<') && file.find('>') != file.npos);
}

// Where installed packages, the standard library, compiled graphs and a PyTorch that was built in
// its own folder lie.
bool is_library(std::string_view file) {
  static constexpr std::array<std::string_view, 20> kPlaces = {
      "site-packages/",       "site-packages\\", "dist-packages/",
      "/lib/python3",         "\\Lib\\",         "/lib64/python3",
      "torchinductor_",       "<frozen",         "<eval_with_key>",
      "<__array_function__",  "/torch/nn/",      "/torch/optim/",
      "/torch/autograd/",     "/torch/_",        "/torch/utils/",
      "/torch/functional.py", "/torch/amp/",     "/torch/cuda/",
      "/torch/distributed/",  "/torch/fx/"};
  return any_in(file, kPlaces);
}

// Who watches a program in a dry run (simgpu/python) stands between its lines and PyTorch.
bool is_watcher(std::string_view file) {
  constexpr std::string_view kFolder = "/simgpu/python/";
  const std::size_t at = file.rfind(kFolder);
  return at != file.npos && file.find('/', at + kFolder.size()) == file.npos;
}

// Functions that stand in nearly every stack and say nothing of what the program does.
bool is_machinery(std::string_view file, std::string_view name) {
  static constexpr std::array<std::string_view, 40> kNames = {
      "gapless::",
      "torch::unwind",
      "torch::CapturedTraceback",
      "torch::cuda::(anonymous namespace)::gather",
      "c10::cuda::CUDACachingAllocator",
      "c10::cuda::(anonymous namespace)",
      "c10::impl::",
      "c10::Dispatcher",
      "c10::KernelFunction",
      "c10::StorageImpl",
      "at::detail::empty",
      "at::TensorBase at::detail::",
      "_Py",
      "Py",
      "_object",
      "pymain",
      "pyrun",
      "run_mod",
      "run_eval_code_obj",
      "cfunction_",
      "method_vectorcall",
      "vectorcall",
      "slot_",
      "object_vacall",
      "partial_vectorcall",
      "binary_op",
      "call_function",
      "do_call_core",
      "fast_function",
      "function_code_fastcall",
      "__libc_start",
      "__libc_init",
      "_start",
      "__clone",
      "clone",
      "start_thread",
      "execute_native_thread",
      "pthread_",
      "std::error_code",
      "??"};
  // Python's own main is in C; one whose file is not known says nothing either.
  if (name == "main") return file.starts_with('?') || file.empty() || file.ends_with(".c");
  return name.empty() || any_begins(name, kNames) || file.ends_with(".c");
}

// "at::_ops::mul_Tensor::call(...)" is "aten::mul.Tensor", and so is its redispatch; empty of
// anything else.
std::string operator_of(std::string_view name) {
  constexpr std::string_view kOps = "at::_ops::";
  if (!name.starts_with(kOps)) return {};
  name.remove_prefix(kOps.size());
  const std::size_t end = std::min(name.find("::call"), name.find("::redispatch"));
  if (end == std::string_view::npos) return {};
  std::string text = "aten::" + std::string(name.substr(0, end));
  for (std::size_t i = text.size() - 1; i > 6; --i) {
    if (text[i - 1] == '_' && std::isupper(static_cast<unsigned char>(text[i])) != 0) {
      text[i - 1] = '.';
      break;
    }
  }
  return text;
}

// "torch::autograd::generated::MmBackward0::apply(...)" is "MmBackward0"; so is "AccumulateGrad".
std::string backward_of(std::string_view name) {
  static constexpr std::array<std::string_view, 2> kEnds = {"::apply(", "_apply_functional("};
  constexpr std::string_view kAutograd = "torch::autograd::";
  if (!name.starts_with(kAutograd)) return {};
  for (const std::string_view end : kEnds) {
    const std::size_t at = name.find(end);
    if (at == std::string_view::npos) continue;
    std::string_view node = name.substr(0, at);
    if (const std::size_t colon = node.rfind("::"); colon != node.npos) {
      node.remove_prefix(colon + 2);
    }
    if (node != "Node" && node != "PyNode") return std::string(node);
  }
  return {};
}

// "linear.forward": what many classes have is named with its file; "cross_entropy" is enough.
std::string in_its_module(std::string_view file, std::string_view name) {
  static constexpr std::array<std::string_view, 3> kCommon = {"forward", "__init__", "step"};
  if (std::find(kCommon.begin(), kCommon.end(), name) == kCommon.end()) return std::string(name);
  if (const std::size_t folder = file.find_last_of("/\\"); folder != file.npos) {
    file.remove_prefix(folder + 1);
  }
  return std::string(file.substr(0, file.rfind(".py"))) + "." + std::string(name);
}

// A C++ name without its result, arguments and what it is a template of:
// "void at::native::gpu_reduce_kernel<float, 4>(at::TensorIterator&)" is
// "at::native::gpu_reduce_kernel".
std::string shortened(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string text;
  int depth = 0;
  while (!name.empty()) {
    const bool is_anonymous = name.starts_with(kAnonymous);
    if (is_anonymous) {
      if (depth == 0) text += kAnonymous;
      name.remove_prefix(kAnonymous.size());
      continue;
    }
    const char c = name.front();
    name.remove_prefix(1);
    if (c == '(' && depth == 0) break;
    if (c == ' ' && depth == 0) {  // what stood before it was the result
      text.clear();
      continue;
    }
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) text += c;
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  return text;
}

// PyTorch's C++ and what it is built on.
bool is_of_torch(std::string_view shortened_name) {
  static constexpr std::array<std::string_view, 8> kSpaces = {
      "at::", "c10::", "torch::", "caffe2::", "std::", "__gnu_cxx::", "cub::", "thrust::"};
  return any_begins(shortened_name, kSpaces);
}

// A line of the program's own C++: "train.cpp:42 Net::forward".
std::string native_line(std::string_view frame) {
  const auto [file, name] = parts_of(frame);
  std::string text = shortened(name);
  if (text.empty() || is_of_torch(text)) return {};
  if (file.empty() || file.starts_with('?')) return text;
  return std::string(frame.substr(0, frame.size() - name.size())) + text;
}

}  // namespace

std::vector<std::uint32_t> CallStacks::frames_of(std::uint32_t node) const {
  std::vector<std::uint32_t> all;
  for (; node != 0; node = nodes[node].parent) all.push_back(nodes[node].frame);
  return all;
}

std::size_t own_frame(const std::vector<std::string_view>& frames) {
  std::string_view program;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const FrameKind kind = frame_kind(frames[i]);
    if (kind == FrameKind::own) return i;
    if (kind != FrameKind::library) continue;
    if (const std::string_view package = package_of(frames[i]); !package.empty()) program = package;
  }
  if (program.empty()) return frames.size();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (frame_kind(frames[i]) == FrameKind::library && package_of(frames[i]) == program) return i;
  }
  return frames.size();
}

bool is_python_frame(std::string_view frame) { return is_python(parts_of(frame).file); }

FrameKind frame_kind(std::string_view frame) {
  const auto [file, name] = parts_of(frame);
  if (is_watcher(file)) return FrameKind::machinery;
  if (is_python(file)) return is_library(file) ? FrameKind::library : FrameKind::own;
  return is_machinery(file, name) ? FrameKind::machinery : FrameKind::native;
}

std::string call_site(const std::vector<std::string_view>& frames) {
  if (const std::size_t own = own_frame(frames); own != frames.size()) {
    const bool of_package = frame_kind(frames[own]) == FrameKind::library;
    return std::string(of_package ? in_packages(frames[own]) : frames[own]);
  }
  std::string_view library;
  std::string_view any;
  std::vector<std::string_view> natives;
  for (const std::string_view frame : frames) {
    switch (frame_kind(frame)) {
      case FrameKind::own:
        break;
      case FrameKind::library:
        if (library.empty()) library = frame;
        break;
      case FrameKind::native:
        natives.push_back(frame);
        break;
      case FrameKind::machinery:
        if (any.empty()) any = frame;
        break;
    }
  }
  std::string backward;
  std::string own;
  std::string op;
  bool is_autograd = false;
  for (const std::string_view frame : natives) {
    const std::string_view name = parts_of(frame).name;
    if (backward.empty()) backward = backward_of(name);
    if (own.empty()) own = native_line(frame);
    if (std::string found = operator_of(name); !found.empty()) op = std::move(found);
    is_autograd = is_autograd || name.find("torch::autograd::Engine::") != name.npos;
  }
  if (!backward.empty()) return backward + " (backward pass)";
  if (!library.empty()) return std::string(library);
  // What the engine does between the nodes: gradients are added, and summed to their shape.
  if (is_autograd && !op.empty()) return op + " (backward pass)";
  if (!own.empty()) return own;
  if (!op.empty()) return op;
  return natives.empty() ? std::string(any) : shortened(parts_of(natives.front()).name);
}

std::string library_line(const std::vector<std::string_view>& frames) {
  const std::size_t own = own_frame(frames);
  if (own == frames.size()) return {};
  for (std::size_t i = 0; i < own; ++i) {
    if (frame_kind(frames[i]) != FrameKind::library) continue;
    std::string_view inside = in_packages(frames[i]);
    if (inside.empty()) continue;
    inside.remove_suffix(parts_of(frames[i]).name.size());
    if (inside.ends_with(' ')) inside.remove_suffix(1);
    return std::string(inside);
  }
  return {};
}

std::string called_there(const std::vector<std::string_view>& frames) {
  // Functions that only call what was called.
  static constexpr std::array<std::string_view, 9> kWrappers = {
      "_use_grad",        "_wrapped_call_impl",
      "_call_impl",       "__torch_function__",
      "wrapper",          "inner",
      "decorate_context", "_fn",
      "__call__"};
  std::string library;
  std::string op;
  const std::size_t own = own_frame(frames);
  for (std::size_t i = 0; i < own; ++i) {
    const std::string_view frame = frames[i];
    const FrameKind kind = frame_kind(frame);
    const auto [file, name] = parts_of(frame);
    if (kind == FrameKind::library) {
      // A graph that torch.compile made; its own functions say nothing.
      if (file.find("torchinductor_") != file.npos) return "compiled code";
      if (std::find(kWrappers.begin(), kWrappers.end(), name) == kWrappers.end()) {
        library = in_its_module(file, name);
      }
    } else if (std::string found = operator_of(name); !found.empty()) {
      op = std::move(found);
    }
  }
  return op.empty() ? library : op;
}

}  // namespace gapless
