#include "simgpu/process/python_callback.h"

#include <thread>

#include "simgpu/process/python.h"

namespace gapless::simgpu {
namespace {

struct Error {
  void* type = nullptr;
  void* value = nullptr;
  void* traceback = nullptr;
};

struct PythonFunctions {
  int (*take_lock)() = nullptr;
  void (*give_lock)(int state) = nullptr;
  void* (*call)(void* function, const char* kinds, ...) = nullptr;
  long (*number_of)(void* object) = nullptr;
  void (*fetch)(void** type, void** value, void** traceback) = nullptr;
  void (*restore)(void* type, void* value, void* traceback) = nullptr;
  int (*call_later)(int (*function)(void*), void* argument) = nullptr;  // on the main thread
  void (*keep)(void* object) = nullptr;
  void (*drop)(void* object) = nullptr;
  bool found = false;

  PythonFunctions() {
    const auto find = [](auto& function, const char* name) { return Python::find(function, name); };
    found = find(take_lock, "PyGILState_Ensure") && find(give_lock, "PyGILState_Release") &&
            find(call, "PyObject_CallFunction") && find(number_of, "PyLong_AsLong") &&
            find(fetch, "PyErr_Fetch") && find(restore, "PyErr_Restore") &&
            find(call_later, "Py_AddPendingCall") && find(keep, "Py_IncRef") &&
            find(drop, "Py_DecRef");
  }
};

const PythonFunctions& python() {
  static const PythonFunctions functions;
  return functions;
}

// By Python's lock: what is to come out on which thread, the main one.
Error waiting;
std::thread::id waits_for;

int raise_what_waits(void*) {
  waits_for = {};
  if (!python().found) return 0;
  // Without the lines of ours, where it came.
  if (waiting.traceback != nullptr) python().drop(waiting.traceback);
  python().restore(waiting.type, waiting.value, nullptr);
  waiting = {};
  return -1;
}

Error take_error() {
  Error error;
  python().fetch(&error.type, &error.value, &error.traceback);
  return error;
}

void raise_later(const Error& error) {
  waiting = error;
  waits_for = std::this_thread::get_id();
  if (python().call_later(&raise_what_waits, nullptr) != 0) waits_for = {};  // lost: a full queue
}

}  // namespace

void PythonCallback::set(void* function) {
  if (!python().found) return;
  if (function != nullptr) python().keep(function);
  void* const before = function_.exchange(function);
  if (before != nullptr) python().drop(before);
}

template <class... Arguments>
long PythonCallback::call(const char* kinds, Arguments... arguments) {
  if (!is_set() || !python().found || Python::is_finalizing()) return 0;
  const int state = python().take_lock();
  long number = 0;
  void* const function = function_.load();
  // Any line of Python's on that thread would be the one where it comes out.
  if (function != nullptr && waits_for != std::this_thread::get_id()) {
    const Error before = take_error();
    void* const result = python().call(function, kinds, arguments...);
    if (result == nullptr) {
      raise_later(take_error());
    } else {
      number = python().number_of(result);
      python().drop(result);
    }
    python().restore(before.type, before.value, before.traceback);  // in place of number_of's
  }
  python().give_lock(state);
  return number < 0 ? 0 : number;
}

long PythonCallback::operator()() { return call(nullptr); }
long PythonCallback::operator()(unsigned long long argument) { return call("K", argument); }

}  // namespace gapless::simgpu
