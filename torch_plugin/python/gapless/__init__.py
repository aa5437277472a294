"""gapless: a CUDA caching allocator for PyTorch that leaves no gap between the memory it reserves and
the memory it hands out.

    import gapless
    gapless.install()        # before or after CUDA is used; every torch.cuda.memory function answers

or, without a line of code:

    python -m gapless train.py                  GAPLESS=1 python train.py (where gapless is installed)
    gapless run -- torchrun train.py            LD_PRELOAD=.../libgapless_preload.so python train.py

Options are those of GAPLESS_CONF="key:value,...": gapless.config() lists them.
"""
from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Union

from ._library import GaplessError, Library, OptionError, adapter_for_loaded_torch, import_torch
from ._library import config as _config
from ._library import library as _library_path
from ._report import Report

if TYPE_CHECKING:
    from . import nn
    from ._check_streams import check_streams
    from ._estimates import estimate_memory_usage, get_optimal_batch_size, suggest_batch_size
    from ._gpu_memory import check_gpu_memory
    from ._oom_advice import oom_advice
    from ._patch_loss import patch_loss

__all__ = ["GaplessError", "OptionError", "Report", "check_gpu_memory", "check_memory", "check_streams", "config", "dump",
           "estimate_memory_usage", "get_optimal_batch_size", "install", "is_installed", "memory_stats", "nn", "oom_advice",
           "patch_loss", "pluggable_allocator", "record", "report", "sleep", "snapshot", "suggest_batch_size", "trace", "trim",
           "wake"]
__version__ = "0.1.0"

# Imported when they are asked for: this module is imported inside every `import torch`.
_LATER = {"estimate_memory_usage": "_estimates", "get_optimal_batch_size": "_estimates", "suggest_batch_size": "_estimates",
          "check_gpu_memory": "_gpu_memory", "check_streams": "_check_streams", "oom_advice": "_oom_advice", "patch_loss": "_patch_loss"}

Options = Union[str, Mapping[str, Any], None]
_library: Library | None = None
_recorded: str | None = None  # the file of the last record()


def __getattr__(name: str) -> Any:
    import importlib
    if name == "nn":
        return importlib.import_module(f"{__name__}.nn")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def _conf(options: Options, more: Mapping[str, Any]) -> str | None:
    """As GAPLESS_CONF has it; None where there is none. Raises OptionError for what cannot be written so."""
    if options is None and not more:
        return None
    parts = []
    if isinstance(options, str):
        parts.append(options)
    elif isinstance(options, Mapping):
        if twice := options.keys() & more.keys():
            raise OptionError(f"option {sorted(twice)[0]} is given twice")
        more = {**options, **more}
    elif options is not None:
        raise OptionError(f"options are a text or a dictionary, not {type(options).__name__}")
    for key, value in more.items():
        if not isinstance(value, (bool, int, float, str)):
            raise OptionError(f"option {key}: {value!r}: expected a text or a number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "," in text:
            raise OptionError(f'option {key}: "{text}": a value has no comma')
        parts.append(f"{key}:{text}")
    return ",".join(parts)


def install(options: Options = None, **more: bool | int | float | str) -> bool:
    """Puts gapless in the place of PyTorch's CUDA allocator, for the rest of the process.

    Tensors that exist stay valid, and their memory goes back to the allocator it came from. Processes
    started from this one use gapless too, where the package is installed (they inherit GAPLESS=1).

    options: as GAPLESS_CONF, limit="14GiB", {"limit": "14GiB"} or "limit:14GiB"; instead of that variable.
    Returns True, or False (and warns) where gapless was installed already.
    Raises GaplessError, and changes nothing, where torch is not there, has no CUDA, or is of a version
    that no adapter can be had for; OptionError, which is one, where an option cannot be understood.
    """
    global _library
    if _library is not None:
        warnings.warn("gapless is installed already", stacklevel=2)
        return False
    conf = _conf(options, more)
    library = adapter_for_loaded_torch()
    before = os.environ.get("GAPLESS_CONF")
    if conf is not None:
        os.environ["GAPLESS_CONF"] = conf
    try:
        fresh, note = library.install()
    except GaplessError as error:
        if before is None:
            os.environ.pop("GAPLESS_CONF", None)
        else:
            os.environ["GAPLESS_CONF"] = before
        if conf is not None and isinstance(error, OptionError):
            raise OptionError(str(error).removeprefix("GAPLESS_CONF: ")) from None
        raise
    _library = library
    library.name_call_sites()
    os.environ.setdefault("GAPLESS", "1")
    if note:
        warnings.warn(note, stacklevel=2)
    return fresh


def pluggable_allocator() -> Any:
    """gapless as a torch.cuda.memory.CUDAPluggableAllocator, for any version of torch: no adapter is needed.

        torch.cuda.memory.change_current_allocator(gapless.pluggable_allocator())
        pool = torch.cuda.MemPool(gapless.pluggable_allocator().allocator())

    PyTorch offers such allocators no statistics, no snapshots, no history, no graphs' pools and no sharing:
    install() has all of that. As a MemPool's allocator it provides the segments that PyTorch's own caches.
    """
    import ctypes

    torch = import_torch()
    path = _library_path("libgapless.so")
    made = torch.cuda.memory.CUDAPluggableAllocator(str(path), "gapless_torch_alloc", "gapless_torch_free")
    library = ctypes.CDLL(str(path))

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    functions = made.allocator()
    functions.set_record_stream_fn(address("gapless_torch_record_stream"))
    functions.set_reset_fn(address("gapless_torch_empty_cache"))
    functions.set_memory_fraction_fn(address("gapless_torch_set_memory_fraction"))
    functions.set_base_alloc_fn(address("gapless_torch_base_allocation"))
    return made


def is_installed() -> bool:
    """Whether gapless serves this process's CUDA memory (from the first use of CUDA on, where it came by
    LD_PRELOAD)."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.version.cuda is not None and torch.cuda.get_allocator_backend() == "gapless"


def _installed() -> Library:
    """The adapter in use, however it came into the process; raises GaplessError."""
    global _library
    if _library is None:
        if not is_installed():
            raise GaplessError("gapless is not installed in this process: gapless.install()")
        _library = adapter_for_loaded_torch()
        _library.name_call_sites()
    return _library


def _device(device: Any) -> int:
    return int(import_torch().cuda._utils._get_device_index(device, optional=True))


def memory_stats(device: Any = None) -> dict[str, int]:
    """What torch.cuda.memory_stats() has, and gapless's own counters ("gapless.windows_made", ...)."""
    torch = import_torch()
    stats = dict(torch.cuda.memory_stats(device))
    described = _installed().describe()["devices"][_device(device)]
    stats.update({f"gapless.{name}": value for name, value in described["counters"].items()})
    for name in ("windows", "windows_retired", "window_mapped_bytes", "window_address_bytes",
                 "window_address_bytes_reserved", "free_page_bytes", "page_bytes"):
        stats[f"gapless.{name}"] = described[name]
    return stats


def report(device: Any = None) -> Report:
    """How the device's memory is used now: str() for people, .as_dict() for programs, rich in notebooks.
    After a request has failed it also tells why, and what would have made it fit; while PyTorch records its
    history (torch.cuda.memory._record_memory_history), where in the program live memory comes from. With that
    history or a record(), notebooks show memory over time as well (Report.picture)."""
    from . import _call_sites
    index = _device(device)
    library = _installed()
    return Report(library.describe()["devices"][index], library.explain(index), _call_sites.live(index), _recording)


def _recording(folder: str) -> str | None:
    """The file of what the program asked for: record()'s, else PyTorch's history, written into the folder."""
    if _recorded is not None and os.path.exists(_recorded):
        return _recorded
    if not import_torch()._C._cuda_isHistoryEnabled():
        return None
    path = os.path.join(folder, "history.pickle")
    traces = snapshot(path)["device_traces"]
    return path if any(event["action"] == "alloc" for trace in traces for event in trace) else None


def snapshot(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """torch.cuda.memory._snapshot(); where a path is given it is written there too, for
    pytorch.org/memory_viz, `gapless inspect` and, with history, `gapless replay`."""
    import pickle

    taken: dict[str, Any] = import_torch().cuda.memory._snapshot()
    if path is not None:
        with open(path, "wb") as file:
            pickle.dump(taken, file, protocol=4)  # the newest that memory_viz reads
    return taken


@contextlib.contextmanager
def trace(path: str | os.PathLike[str] | None = None, *, max_entries: int = sys.maxsize, frames: bool = True,
          ) -> Iterator[list[list[dict[str, Any]]]]:
    """Records every allocation and free inside the `with`.

        with gapless.trace("step.pickle") as events:
            train_step()
        events[0]   # of device 0, filled at the end; the file is for `gapless replay` and memory_viz

    frames: with stack traces, which cost time.
    """
    torch = import_torch()
    events: list[list[dict[str, Any]]] = []
    context = "all" if frames else None
    torch.cuda.memory._record_memory_history("all", context=context, max_entries=max_entries, clear_history=True)
    try:
        yield events
    finally:
        events.extend(snapshot(path)["device_traces"])
        torch.cuda.memory._record_memory_history(None)


@contextlib.contextmanager
def record(path: str | os.PathLike[str], *, stacks: bool = True) -> Iterator[None]:
    """Writes every allocation and free inside the `with` to a new file, of all devices and threads, while it happens:
    for whole trainings, where trace() would fill the memory.

        with gapless.record("run.gtrace"):
            train()

    The file is for `gapless replay`, `inspect` and `view`, can be read meanwhile, and is whole up to its last second
    where the program is killed. stacks: with the lines of Python that ask, which takes microseconds a request. Raises
    GaplessError where the file cannot be made (it may not be there yet), or a recording is on already."""
    global _recorded
    library = _installed()
    library.record(os.fspath(path), stacks)
    _recorded = os.path.abspath(os.fspath(path))
    try:
        yield
    finally:
        library.record_end()


def trim(device: Any = None, keep_bytes: int = 0) -> int:
    """Gives free memory back to the device until at most keep_bytes are reserved. Waits for the device.
    Returns the bytes that were given back."""
    torch = import_torch()
    index = _device(device)
    before: int = torch.cuda.memory_reserved(index)
    _installed().trim(index, keep_bytes)
    after: int = torch.cuda.memory_reserved(index)
    return before - after


def dump(path: str | os.PathLike[str]) -> None:
    """Writes what gapless knows of all devices to a file, for `gapless inspect`: also after a kernel has failed."""
    import json

    described = _installed().describe()
    with open(path, "w", encoding="ascii") as file:
        json.dump(described, file)


def check_memory(device: Any = None) -> list[dict[str, Any]]:
    """Looks at the memory around every live tensor of the device now, and gives what was found since the program
    began: [{"kind": "behind" | "before" | "after_free", "text", "address", "requested_bytes", "stream", "call_site",
    "first_offset", "wrong_bytes", "age_s"}], in order, the last 1,000. Each is told on standard error as well. Waits
    for the device. Raises GaplessError where no checks were asked for (GAPLESS_CONF=check:redzones, docs/checks.md)."""
    index = _device(device)
    library = _installed()
    library.check(index)
    described = library.describe()["devices"][index]
    if "mistakes" not in described:
        raise GaplessError("no checks were asked for: GAPLESS_CONF=check:poison+redzones")
    return list(described["mistakes"])


def _pool_id(pool: Any) -> tuple[int, int]:
    first, second = getattr(pool, "id", pool)
    return int(first), int(second)


def sleep(pool: Any, *, device: Any = None, save: bool = True) -> None:
    """Gives the memory of a pool (a torch.cuda.MemPool, or its id) back to the device; its tensors keep
    their addresses, and must not be used until wake(). save: their contents are kept in host memory,
    else lost. Waits for the device."""
    _installed().sleep(_device(device), _pool_id(pool), save)


def wake(pool: Any, *, device: Any = None) -> None:
    """Brings the pool's memory back, with what was saved. Raises torch.OutOfMemoryError where the device
    has not that much now: the pool stays asleep, and wake() can be tried again."""
    _installed().wake(_device(device), _pool_id(pool))


def config() -> dict[str, dict[str, str]]:
    """Every option: its value now, its default and what it does. Needs no torch. Raises OptionError where
    GAPLESS_CONF cannot be understood."""
    return _config()


def _autoload() -> None:
    """Called inside `import torch` (entry point torch.backends): installs where GAPLESS=1. Raises OptionError
    where an option cannot be understood, so that `import torch` fails: the program is not to run without it."""
    switch = os.environ.get("GAPLESS", "")
    if switch not in ("", "0", "1"):
        raise OptionError(f'GAPLESS: "{switch}": expected 1 or 0')
    if switch != "1":
        return
    try:
        if not is_installed():
            install()
    except OptionError:
        raise
    except GaplessError as error:  # `import torch` must not fail
        print(f"gapless: {error}; PyTorch's own allocator is used", file=sys.stderr)
