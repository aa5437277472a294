"""What `gapless dryrun` adds to every Python process it starts.

Python imports this module by itself at its start (site). It waits for torch to be imported, follows
what PyTorch's allocator says, and leaves a report for the command at the end:

    SIMGPU_REPORT_DIR/PID.torch.json   peaks by device, optimizer steps, the first out of memory
    run.PID.pickle                     torch's memory history, where SIMGPU_RECORD (run.pickle) asks

It never fails the program it watches.
"""
import atexit
import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import traceback

REPORTS = os.environ.get("SIMGPU_REPORT_DIR")
RECORD = os.environ.get("SIMGPU_RECORD")

state = {"steps": 0, "first_out_of_memory": None}
_kept = []  # callbacks that C holds


def _user_line() -> str:
    """The innermost line that is not torch's, "train.py:12". The threads of autograd have none of
    their own: there it is the line the main thread waits in, loss.backward()."""
    main = sys._current_frames().get(threading.main_thread().ident)
    for stack in (traceback.extract_stack(), traceback.extract_stack(main) if main else []):
        for frame in reversed(stack):
            if f"{os.sep}torch{os.sep}" not in frame.filename and frame.filename != __file__ \
                    and not frame.filename.startswith("<frozen"):
                return f"{os.path.relpath(frame.filename)}:{frame.lineno}"
    return "?"


def _out_of_memory(device, asked, _total, _free):
    import torch
    if state["first_out_of_memory"] is None:
        state["first_out_of_memory"] = {
            "device": device,
            "asked_bytes": asked,
            "allocated_bytes": torch.cuda.memory_allocated(device),
            "reserved_bytes": torch.cuda.memory_reserved(device),
            "step": state["steps"],
            "line": _user_line(),
        }


def _read_back(count):
    print(f"simgpu: {_user_line()} has read back data that no kernel computed, {count:,} times in "
          "this process; if a loop waits for a value, it waits for ever", file=sys.stderr, flush=True)


def _on_torch(torch):
    if torch.version.cuda is None:
        print(f"gapless dryrun: torch {torch.__version__} was built without CUDA: install the CUDA build",
              file=sys.stderr)
        return

    def watch():
        torch._C._cuda_attach_out_of_memory_observer(_out_of_memory)
        if RECORD:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000)

    def stepped(*_):
        state["steps"] += 1

    torch.cuda._lazy_call(lambda: _quietly(watch))
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(stepped)
    try:
        callback = ctypes.CFUNCTYPE(None, ctypes.c_ulonglong)(_read_back)
        ctypes.CDLL("libsimgpu.so").simgpu_watch_reads(callback)
        _kept.append(callback)
    except (OSError, AttributeError):
        pass  # not on a simulated GPU


def _report():
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return
    devices = []
    for index in range(torch.cuda.device_count()):
        if torch.cuda.max_memory_reserved(index) == 0:
            continue
        stats = torch.cuda.memory_stats(index)
        devices.append({
            "device": index,
            "name": torch.cuda.get_device_name(index),
            "total_bytes": torch.cuda.get_device_properties(index).total_memory,
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
            "retries": stats.get("num_alloc_retries", 0),
            "ooms": stats.get("num_ooms", 0),
            "waits": stats.get("num_sync_all_streams", 0),
        })
    rank = os.environ.get("RANK")
    report = {"pid": os.getpid(), "command": sys.orig_argv, "torch": torch.__version__,
              "rank": int(rank) if rank and rank.isdigit() else None,
              "allocator": torch.cuda.get_allocator_backend(), "devices": devices, **state}
    if RECORD and devices:
        stem, suffix = os.path.splitext(RECORD)
        path = f"{stem}.{os.getpid()}{suffix}"
        torch.cuda.memory._dump_snapshot(path)
        report["record"] = path
    with open(os.path.join(REPORTS, f"{os.getpid()}.torch.json"), "w", encoding="utf-8") as file:
        json.dump(report, file)


def _quietly(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:  # the program goes on, whatever is wrong here
        print(f"gapless dryrun: {function.__name__}: {error!r}", file=sys.stderr)


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Lets the others find torch, and is called when it has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def then_watch(module):
            execute(module)
            _quietly(_on_torch, module)

        spec.loader.exec_module = then_watch
        return spec


def _next_sitecustomize():
    """The environment's own sitecustomize, which this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if REPORTS:
    sys.meta_path.insert(0, _TorchFinder())
    atexit.register(_quietly, _report)
_quietly(_next_sitecustomize)
