// A function of Python's that C++ calls, far below the program's own line.
//
// What goes wrong there does not concern the program; but a signal's handler runs at whatever line
// the main thread runs next, and what it raises is the program's. Nobody could catch it here, so it
// waits, and comes out where the program goes on:
//
//   x @ y            -> memory is asked for -> a callback: ^C was pressed, KeyboardInterrupt
//   KeyboardInterrupt at the program's next line
#pragma once

#include <atomic>

namespace gapless::simgpu {

class PythonCallback {
 public:
  /// A PyObject*, or null. With Python's lock.
  void set(void* function);
  [[nodiscard]] bool is_set() const { return function_.load() != nullptr; }

  /// What it returned; 0 where that is no number, and where it cannot be called now. Takes Python's
  /// lock.
  long operator()();
  long operator()(unsigned long long argument);

 private:
  template <class... Arguments>
  long call(const char* kinds, Arguments... arguments);

  std::atomic<void*> function_{nullptr};
};

}  // namespace gapless::simgpu
