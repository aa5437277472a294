#include "torch_plugin/adapter/python_stack.h"

#include <array>
#include <cstddef>
#include <string>

#include <dlfcn.h>

#include "allocator/live/stack_table.h"

namespace gapless::torch_plugin {
namespace {

constexpr std::size_t kMostFrames = 128;  // deeper stacks have their outermost ones cut off

// Python's functions (Python.h), found at run time: C++ programs have none. Objects are void*.
struct Interpreter {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // by two names; none before 3.7
  void* (*this_thread)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*release_lock)(int) = nullptr;
  void* (*current_frame)() = nullptr;   // borrowed
  void* (*code_of)(void*) = nullptr;    // owned
  void* (*caller_of)(void*) = nullptr;  // owned
  int (*line_of)(void*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;  // owned
  const char* (*text_of)(void*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*keep)(void*) = nullptr;
  void (*drop)(void*) = nullptr;
  bool usable = false;

  template <class F>
  static bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
  Interpreter() {
    if (!find(is_finalizing, "Py_IsFinalizing")) (void)find(is_finalizing, "_Py_IsFinalizing");
    usable = find(is_initialized, "Py_IsInitialized") &&
             find(this_thread, "PyGILState_GetThisThreadState") &&
             find(take_lock, "PyGILState_Ensure") && find(release_lock, "PyGILState_Release") &&
             find(current_frame, "PyEval_GetFrame") && find(code_of, "PyFrame_GetCode") &&
             find(caller_of, "PyFrame_GetBack") && find(line_of, "PyFrame_GetLineNumber") &&
             find(attribute, "PyObject_GetAttrString") && find(text_of, "PyUnicode_AsUTF8") &&
             find(clear_error, "PyErr_Clear") && find(keep, "Py_IncRef") && find(drop, "Py_DecRef");
  }
  // Whether the thread runs Python, which does not end.
  [[nodiscard]] bool runs() const {
    return usable && is_initialized() != 0 && (is_finalizing == nullptr || is_finalizing() == 0) &&
           this_thread() != nullptr;
  }
};

const Interpreter& interpreter() {
  static const Interpreter functions;
  return functions;
}

std::string attribute_text(void* object, const char* name) {
  const Interpreter& py = interpreter();
  void* const value = py.attribute(object, name);
  const char* const text = value == nullptr ? nullptr : py.text_of(value);
  std::string copy = text == nullptr ? "?" : text;
  if (text == nullptr) py.clear_error();
  if (value != nullptr) py.drop(value);
  return copy;
}

// The lock is held.
std::uint32_t stack_of_thread() {
  const Interpreter& py = interpreter();
  std::array<StackTable::FrameKey, kMostFrames> keys{};
  std::array<void*, kMostFrames> codes{};
  std::size_t count = 0;
  void* frame = py.current_frame();
  if (frame != nullptr) py.keep(frame);
  while (frame != nullptr && count < kMostFrames) {
    codes[count] = py.code_of(frame);
    keys[count] = {reinterpret_cast<std::uintptr_t>(codes[count]),
                   static_cast<std::uint64_t>(py.line_of(frame))};
    ++count;
    void* const caller = py.caller_of(frame);
    py.drop(frame);
    frame = caller;
  }
  if (frame != nullptr) py.drop(frame);
  const std::uint32_t stack =
      recorded_stacks().number_of(std::span(keys).first(count), [&](std::size_t i) {
        // A code object that has a name here keeps its address.
        py.keep(codes[i]);
        return attribute_text(codes[i], "co_filename") + ":" + std::to_string(keys[i].second) +
               " " + attribute_text(codes[i], "co_name");
      });
  for (std::size_t i = 0; i < count; ++i) py.drop(codes[i]);
  return stack;
}

}  // namespace

std::uint32_t python_stack() {
  const Interpreter& py = interpreter();
  if (!py.runs()) return native_stack();
  const int state = py.take_lock();
  const std::uint32_t stack = stack_of_thread();
  py.release_lock(state);
  return stack != 0 ? stack : native_stack();
}

}  // namespace gapless::torch_plugin
