// The interpreter that is in the process, if one is: Python's functions (Python.h), found at run
// time, for there is no Python to build with and most processes have none.
#pragma once

#include <dlfcn.h>

namespace gapless::simgpu {

struct Python {
  int (*is_initialized)() = nullptr;
  int (*has_lock)() = nullptr;  // PyGILState_Check
  void* (*new_dict)() = nullptr;
  int (*set_item)(void* dict, const char* key, void* value) = nullptr;
  void* (*builtins)() = nullptr;
  void* (*decode_path)(const char*) = nullptr;
  void* (*run)(const char* code, int start, void* globals, void* locals, void* flags) = nullptr;
  void* (*error)() = nullptr;
  void (*clear_error)() = nullptr;
  void (*drop)(void*) = nullptr;

  /// False where there is no Python, or it has not begun.
  [[nodiscard]] bool find() {
    return find(is_initialized, "Py_IsInitialized") && find(has_lock, "PyGILState_Check") &&
           find(new_dict, "PyDict_New") && find(set_item, "PyDict_SetItemString") &&
           find(builtins, "PyEval_GetBuiltins") && find(decode_path, "PyUnicode_DecodeFSDefault") &&
           find(run, "PyRun_StringFlags") && find(error, "PyErr_Occurred") &&
           find(clear_error, "PyErr_Clear") && find(drop, "Py_DecRef") && is_initialized() != 0;
  }

  /// Whether an interpreter is in the process, begun or not.
  static bool is_there() { return dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr; }

  /// Once an interpreter is there. The function is looked for once: this is asked at each request
  /// for memory of a run that is watched.
  static bool is_finalizing() {
    static const auto ask = [] {
      int (*found)() = nullptr;
      if (!find(found, "Py_IsFinalizing")) find(found, "_Py_IsFinalizing");
      return found;
    }();
    return ask != nullptr && ask() != 0;
  }

  /// One of its functions; whether it is there.
  template <class F>
  static bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }
};

}  // namespace gapless::simgpu
