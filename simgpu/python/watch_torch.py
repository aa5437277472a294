"""What `gapless dryrun` adds to a Python process that uses a GPU.

libsimgpu.so runs this file when torch first asks how many GPUs there are (simgpu/process/python_watch.h).
What the library cannot know itself is added here, when a request fails and at the end:

    SIMGPU_REPORT_DIR/PID.N.torch.json   optimizer steps, the lines that ran out of memory, the exception
                                         that ended the program, what torch says of its allocator
    run.PID.pickle                       torch's memory history, where SIMGPU_RECORD (run.pickle) asks

It never fails the program it watches.
"""
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import importlib.machinery
import io
import json
import os
import re
import signal
import sys
import sysconfig
import threading
import traceback
import weakref

import torch

RECORD = os.environ.get("SIMGPU_RECORD")

library = ctypes.CDLL(None)  # libsimgpu.so is preloaded
library.simgpu_report_stem.restype = ctypes.c_char_p
_callbacks = ctypes.PyDLL(None)  # what keeps functions of Python's is called with the lock
_callbacks.simgpu_watch.argtypes, _callbacks.simgpu_watch.restype = [ctypes.py_object] * 4, None
_callbacks.simgpu_watch_sites.argtypes, _callbacks.simgpu_watch_sites.restype = [ctypes.py_object], None
_NO_FUNCTION = ctypes.py_object()


def _nothing_yet() -> dict:
    # "thread_out_of_memory": of a thread that nobody caught it in
    return {"steps": 0, "first_out_of_memory": None, "last_out_of_memory": None, "thread_out_of_memory": None,
            "first_estimates": {}, "assertion": None, "stopped_after_steps": None, "optimizers_without_step": 0, "garbage": [],
            "garbage_at_end": [], "drew_from": [], "replaced_settings": None, "made_optimizer": False,
            "assert_passed_over": None, "choices": {}, "states_of_first_step": {}, "offloaded_bytes": 0}


state = _nothing_yet()
writing = threading.Lock()

# What other files beside this one add: called once torch has made its allocator; when a request has failed; at the
# end; when Python is left; and in a forked child.
at_begin, at_out_of_memory, at_end, at_exit, in_child = [], [], [], [], []
# Of watch_memory.py, for watch_program.py: called with all modules and optimizers where they were looked for; with the
# frames of a place that asks for memory for the first time, and what it is at; with what an operator of a loss takes;
# before and after a tensor is copied.
at_look, at_place, at_loss, at_copy = [], [], [], []

# --- whose line it is ---------------------------------------------------------------------------------------

_STARTED_IN = os.getcwd()
_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_PACKAGES = re.compile(".*" + re.escape(os.sep) + "(site|dist)-packages" + re.escape(os.sep))
_COMMANDS = {"/usr/bin", "/usr/local/bin", os.path.dirname(sys.executable),
             *(sysconfig.get_path("scripts", scheme) for scheme in sysconfig.get_scheme_names())}


def _is_compiled(path: str) -> bool:
    """What torch.compile wrote."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return f"{os.sep}torchinductor_" in path or bool(folder) and path.startswith(os.path.abspath(folder) + os.sep)


def _owner(frame) -> str:
    """Whose code a frame runs: "user", "library", "torch", "generated" or "python" (its library, and this file, and the
    lines that pip writes for a package's command)."""
    name = frame.f_code.co_filename
    if frame.f_code.co_name in ("__torch_function__", "__torch_dispatch__"):
        return "python"  # of a kind of tensor: all that is done with it goes through there
    if name.startswith("<"):  # <string>, <stdin>, <eval_with_key>.1: the user's is what was given as the program
        return "user" if frame.f_globals.get("__name__") == "__main__" else "generated"
    path = os.path.abspath(name)
    if os.path.dirname(path) == _HERE:
        return "python"
    if path.startswith(_TORCH):
        return "torch"
    if _is_compiled(path):
        return "generated"
    if _PACKAGES.match(path):
        return "library"
    if path.startswith(_STANDARD) or os.path.dirname(path) in _COMMANDS and not path.endswith(".py"):
        return "python"
    # Modules that a package wrote for itself, wherever it put them: they have a name in the package. (What was sent from
    # one program to another, as ray does, runs in a __main__ that is a package's.)
    name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    package = sys.modules.get(name) if name != "__main__" else None
    return "library" if _PACKAGES.match(str(getattr(package, "__file__", None) or "")) else "user"


def _cell(path: str) -> str | None:
    """ "In[3]", of a notebook's cell: IPython compiles each as a file of its own that is not there."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    if shells is None or not shells.InteractiveShell.initialized():
        return None
    named = getattr(shells.InteractiveShell.instance().compile, "format_code_name", lambda path: None)(path)
    return named[1] if named else None


def _from_start(path: str) -> str:
    """As seen from the folder that the program was started in, where that is shorter."""
    seen = os.path.relpath(path, _STARTED_IN)
    return seen if len(seen) < len(path) and not seen.startswith(os.path.join("..", "..", "..")) else path


def _text(frame, number: int) -> str:
    """ "train.py:12", "transformers/trainer.py:2500", "In[3]:2", "compiled code": as short as it is clear."""
    path = frame.f_code.co_filename
    if _is_compiled(path):
        return "compiled code"
    cell = _cell(path)
    if cell:
        path = cell
    elif not path.startswith("<"):
        path = os.path.abspath(path)
        inside = _PACKAGES.sub("", path)
        path = inside if inside != path else _from_start(path)
    return f"{os.fsencode(path).decode('utf-8', 'replace')}:{number}"


def _package(frame) -> str | None:
    """ "ultralytics", of a file of an installed package."""
    path = os.path.abspath(frame.f_code.co_filename)
    inside = _PACKAGES.sub("", path)
    return inside.partition(os.sep)[0] if inside != path and _owner(frame) == "library" else None


def _own(frames) -> int | None:
    """Where in a stack, from the innermost on, the user's innermost frame is. Where an installed command is what was run
    (yolo, llamafactory-cli, python -m), the program is its package: the outermost."""
    frames = list(frames)
    for at, frame in enumerate(frames):
        if _owner(frame) == "user":
            return at
    packages = [_package(frame) for frame in frames]
    program = next((package for package in reversed(packages) if package), None)
    return packages.index(program) if program else None


def _lines(stack) -> dict:
    """The user's innermost line, and that of the library it had called, of [(frame, line number), ...] from the
    innermost on; None for what is not there. PyTorch and Python are named in no case."""
    stack = list(stack)
    own = _own([frame for frame, _ in stack])
    inner = next((_text(frame, number) for frame, number in stack[:own]
                  if _owner(frame) in ("library", "generated")), None)
    return {"line": None if own is None else _text(*stack[own]), "library_line": inner}


def _current_lines() -> dict:
    """The threads of autograd and of DataParallel have no line of the user's: there it is the one that the main
    thread waits in, loss.backward()."""
    here = list(traceback.walk_stack(sys._getframe(1)))
    main = sys._current_frames().get(threading.main_thread().ident)
    if main is not None and threading.current_thread() is not threading.main_thread() and not any(
            _owner(frame) == "user" for frame, _ in here):
        here += traceback.walk_stack(main)
    return _lines(here)


# --- what is watched ----------------------------------------------------------------------------------------

def _is_a_signals(error) -> bool:
    """Whether a handler of a signal raised it, which may come anywhere."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    code = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers} - {None}
    return not isinstance(error, Exception) or any(frame.f_code in code for frame, _ in traceback.walk_tb(error.__traceback__))


def _quietly(function):
    """The program goes on, whatever is wrong here."""
    def wrapped(*arguments):
        try:
            return function(*arguments)
        except Exception as error:
            if _is_a_signals(error):
                raise
            print(f"gapless dryrun: {function.__name__}: {error!r}", file=sys.stderr)
            return None
    return wrapped


def _alive(*kinds) -> list[list]:
    """Of each kind the objects there are. An object is not asked for its class: some warn when they are. There are
    hundreds of thousands of objects, of a thousand types."""
    things = gc.get_objects()
    types = set(map(type, things))
    found = []
    for kind in kinds:
        of_kind = {each for each in types if issubclass(each, kind)}
        found.append([thing for thing in things if type(thing) in of_kind] if of_kind else [])
    return found


def _without_collections(function):
    """Python's garbage collector does not come by in it: what was allocated when a request failed stays so."""
    def wrapped(*arguments):
        collects = gc.isenabled()
        gc.disable()
        try:
            return function(*arguments)
        finally:
            if collects:
                gc.enable()
    return wrapped


def _limit(device) -> int | None:
    """What the program allows itself of the GPU; None where that is all of it."""
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    fraction = ask(device) if ask is not None and torch.cuda.get_allocator_backend() != "cudaMallocAsync" else 1.0
    return int(fraction * torch.cuda.get_device_properties(device).total_memory) if fraction < 1 else None


@_quietly
@_without_collections
def _out_of_memory(device, asked, _total, free):
    request = {"device": device, "asked_bytes": asked, "allocated_bytes": torch.cuda.memory_allocated(device),
               "reserved_bytes": torch.cuda.memory_reserved(device), "free_bytes": free, "limit_bytes": _limit(device),
               "step": state["steps"], **_current_lines()}
    state["first_out_of_memory"] = state["first_out_of_memory"] or request
    state["last_out_of_memory"] = request
    for more in at_out_of_memory:
        more()
    _write()


def _printable(text) -> str:
    """A file may be named anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


@_quietly
def _read_back(count):
    line = _printable(_current_lines()["line"])
    print(f"simgpu: {line} has read back data that no kernel computed, {count:,} times from the "
          "same place; if a loop waits for a value, it waits for ever", file=sys.stderr, flush=True)


@_quietly
def _estimate(what):
    """The first of its kind (ProcessRecord's Estimate) followed from what nobody knows."""
    kind = ("number", "integer", "bound", "flag", "size")[what]
    state["first_estimates"] = {**state["first_estimates"], kind: {"step": state["steps"], **_current_lines()}}


@_quietly
def _assertion(address):
    """What does not hold is a C string there. The error that the program gets comes with a later call, as on a GPU."""
    state["assertion"] = {"text": ctypes.string_at(address).decode(), "step": state["steps"], **_current_lines()}
    print(f"simgpu: {_printable(state['assertion']['line'])}: {state['assertion']['text']}: a kernel's assertion does not hold",
          file=sys.stderr, flush=True)


def _makes_text(function):
    """print(loss) reads numbers, and picks those that are not zero to see how many digits they want: nothing is steered."""
    @functools.wraps(function)
    def wrapped(*arguments, **options):
        library.simgpu_makes_text(1)
        try:
            return function(*arguments, **options)
        finally:
            library.simgpu_makes_text(-1)
    return wrapped


class _Seen:
    """Objects for as long as they live, each by itself: what is compared with others may have no hash."""

    def __init__(self) -> None:
        self._by_id = weakref.WeakValueDictionary()

    def add(self, one) -> None:
        self._by_id[id(one)] = one

    def clear(self) -> None:
        self._by_id.clear()

    def __contains__(self, one) -> bool:
        return self._by_id.get(id(one)) is one

    def __len__(self) -> int:
        return len(self._by_id)


@_quietly
def _thread_ended(error):
    if _is_out_of_memory(error):
        state["thread_out_of_memory"] = _lines_of(error)


def _in_thread(arguments, otherwise=threading.excepthook):
    _thread_ended(arguments.exc_value)
    otherwise(arguments)


@_quietly
def _ended():
    error = _exception()
    if error is not None:
        _write(exception=error)


def _in_main(*exception, otherwise=sys.excepthook):
    """Tells at once: a launcher that ends the other ranks when one has failed may meet them on their way out, where what
    was registered last runs first."""
    _ended()
    otherwise(*exception)


@_quietly
def _keep_to_the_allocator():
    """The one that was asked for, of torch's own two; programs that set PYTORCH_CUDA_ALLOC_CONF set that as well. Their
    other settings stay (tools/torch_settings.h)."""
    wanted = os.environ.get("SIMGPU_EXPANDABLE_SEGMENTS")
    if wanted is None or torch.cuda.get_allocator_backend() != "native":
        return
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    if settings["expandable_segments"] == (wanted == "True"):
        return
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", ""))
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", conf)]
    kept = [word for word in words if word and not word.startswith(("expandable_segments", "backend"))]
    torch.cuda.memory._set_allocator_settings(",".join([*kept, f"expandable_segments:{wanted}"]))
    state["replaced_settings"] = conf


@_quietly
def _begin():
    """Once torch has made its allocator."""
    _keep_to_the_allocator()
    try:
        torch._C._cuda_attach_out_of_memory_observer(_out_of_memory)
    except RuntimeError:  # cudaMallocAsync and allocators of the user's own have no observers
        pass
    if RECORD:
        # Not the stacks of frees: torch's gathering them loses an exception that unwinds at the time, as that which
        # ends the recomputation of a checkpoint.
        torch.cuda.memory._record_memory_history(context="alloc", max_entries=10_000_000)
    elif torch.cuda.get_allocator_backend() == "gapless" and not torch._C._cuda_isHistoryEnabled():
        # So that its messages say where in the program memory comes from.
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=20_000)
    for more in at_begin:
        more()


# --- the report ---------------------------------------------------------------------------------------------

def _chain_of(error) -> list:
    """It, what it was raised from, and so on; `raise error from error` is its own."""
    chain = []
    while error is not None and not any(error is one for one in chain):
        chain.append(error)
        error = error.__cause__
    return chain


def _is_out_of_memory(error) -> bool:
    """Or raised from one."""
    return any(isinstance(one, torch.OutOfMemoryError) or "CUDA error: out of memory" in str(one)
               for one in _chain_of(error))


def _lines_of(error) -> dict:
    return _lines(reversed(list(traceback.walk_tb(error.__traceback__))))


def _first_message_of(error) -> str:
    """The first line of what it says. Of one that torch caught in a worker and raises again, what the worker's said,
    which follows its traceback."""
    text = str(error).strip()
    message = text.partition("\n")[0]
    _, original, rest = text.rpartition("Traceback (most recent call last):\n")
    said = [line for line in rest.splitlines() if line and not line.startswith(" ")]
    if original and said:
        message = said[0].removeprefix(f"{type(error).__name__}: ") + f" ({message})"
    return message


def _message_of(error) -> str:
    """And what it was raised from, which is often the cause."""
    cause = _chain_of(error)[-1]
    message = _first_message_of(error)
    return message if cause is error else f"{message}, caused by {type(cause).__name__}: {_first_message_of(cause)}"


def _exception():
    """What ends the program, as Python has printed it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return None
    return {"type": type(error).__name__, "text": _message_of(error)[:200], "out_of_memory": _is_out_of_memory(error),
            **_lines_of(error)}


def _devices() -> list[dict]:
    devices = []
    for index in range(torch.cuda.device_count()):
        if torch.cuda.max_memory_reserved(index) == 0:
            continue
        stats = torch.cuda.memory_stats(index)
        devices.append({
            "device": index,
            "name": torch.cuda.get_device_name(index),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
            "requested_bytes": stats.get("requested_bytes.all.allocated", 0),  # all that was ever asked for
            "peak_requested_bytes": stats.get("requested_bytes.all.peak", 0),
            "retries": stats.get("num_alloc_retries", 0),
            "waits": stats.get("num_sync_all_streams", 0),
            "limit_bytes": _limit(index),
        })
    return devices


def _write(**more):
    stem = os.fsdecode(library.simgpu_report_stem())
    if not stem or not torch.cuda.is_initialized():
        return
    rank = os.environ.get("RANK", "")
    report = {"torch": torch.__version__, "rank": int(rank) if rank.isdigit() else None,
              "allocator": torch.cuda.get_allocator_backend(), "compiled": _compiled(),
              "built_for": (torch._C._cuda_getArchFlags() or "").split(), **state, **more}
    try:
        report["devices"] = _devices()
    except RuntimeError:  # an allocator of the user's own, which counts nothing
        report["devices"] = []
    with writing, open(f"{stem}.torch.new", "w", encoding="utf-8") as file:
        json.dump(report, file)
        file.close()
        os.replace(file.name, f"{stem}.torch.json")


def _compiled() -> str | None:
    """Whether torch.compile's kernels were "made", or "found" in its folder. What is made is tried out, which asks for
    memory."""
    utils = sys.modules.get("torch._dynamo.utils")
    counts = utils.counters.get("inductor") if utils is not None else None
    if not counts:
        return None
    return "found" if counts["fxgraph_cache_hit"] and not counts["fxgraph_cache_miss"] else "made"


@_quietly
def _dump_history():
    base, suffix = os.path.splitext(RECORD)
    path = f"{base}.{os.getpid()}{suffix}"
    torch.cuda.memory._dump_snapshot(path)
    return os.fsencode(path).decode("utf-8", "replace")


@_quietly
def _end():
    if library.simgpu_report_stem() and torch.cuda.is_initialized():
        for more in at_end:
            more()
        _write(exception=_exception(), record=_dump_history() if RECORD else None)


def _in_child():
    global writing
    writing = threading.Lock()
    state.update(_nothing_yet())
    for more in in_child:
        more()


@_quietly
def _leave_quickly(phase, _facts):
    """Once all that is registered to run at exit has run, Python looks several times through all objects, for cycles
    that nobody holds any more: of what torch imports that is a quarter of a short program's time. What comes of it is
    that files are closed: what those have not written yet is written in place of it."""
    if phase != "start" or not sys.is_finalizing():
        return
    for one in gc.get_objects():
        if type(one) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
                one.flush()
    gc.freeze()


class _AsItIsImported(importlib.abc.MetaPathFinder):
    """Programs that have no such module do not import it, and some ask for it without importing it."""

    def __init__(self, name, function):
        self._name, self._function = name, function

    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == self._name else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _quietly(self._function)(module)

        spec.loader.exec_module = exec_module
        return spec


def _when_imported(name, function) -> None:
    """Calls function(module) once a module of that name is there."""
    module = sys.modules.get(name)
    if module is not None and getattr(module.__spec__, "_initializing", False):
        at_begin.append(lambda: _quietly(function)(module))
    elif module is not None:
        _quietly(function)(module)
    else:
        sys.meta_path.insert(0, _AsItIsImported(name, function))


@_quietly
def _add(name):
    """Runs another file of this folder, which has these names as its own."""
    path = os.path.join(_HERE, name)
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    exec(code, {**globals(), "__name__": name.removesuffix(".py"), "__file__": path})


def _is_not_compiled(trace_rules):
    """torch.compile is to leave the functions of these files alone, which PyTorch calls: it would look for modules of
    their names."""
    trace_rules.FORCE_SKIP_FILES.update(os.path.join(_HERE, name) for name in os.listdir(_HERE))


@_quietly
def _watch():
    _when_imported("torch._dynamo.trace_rules", _is_not_compiled)
    if os.environ.get("SIMGPU_RANKS") and torch.distributed.is_available():
        _add("watch_ranks.py")
    _add("own_libraries.py")
    _add("watch_choices.py")
    _add("tune_kernels.py")
    _add("tell_ptx.py")
    _add("watch_offload.py")
    _add("watch_garbage.py")
    _add("watch_chance.py")
    if os.environ.get("SIMGPU_REPORT_DIR"):
        _add("watch_data.py")
    if os.environ.get("SIMGPU_MEMORY_TRACE"):
        _add("watch_memory.py")
        _add("watch_program.py")
        _add("change_program.py")
    _add("watch_steps.py")
    threading.excepthook = _in_thread
    sys.excepthook = _in_main
    torch._tensor_str._str = _makes_text(torch._tensor_str._str)
    torch.Tensor.__format__ = _makes_text(torch.Tensor.__format__)
    _callbacks.simgpu_watch(_read_back, _estimate, _assertion, _quietly(_end))

    def last():
        _quietly(_end)()
        _callbacks.simgpu_watch(*[_NO_FUNCTION] * 4)
        for more in at_exit:
            more()

    atexit.register(last)
    gc.callbacks.append(_leave_quickly)
    os.register_at_fork(after_in_child=_in_child)
    if torch.cuda.is_initialized():
        _begin()
    else:  # as _lazy_call does, whose lock is held while torch asks for the GPUs
        torch.cuda._queued_calls.append((_begin, traceback.format_stack()))


_watch()
