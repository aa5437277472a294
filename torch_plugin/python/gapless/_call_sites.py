"""Where in the program the memory that is live was allocated, as far as PyTorch recorded it.

This file stands alone: where gapless came by LD_PRELOAD, the adapter loads it by its path, into a program that need
not know the package. It imports only what torch has imported already.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import sys
from typing import Any

_SHOWN = 5


class _Places(ctypes.Structure):
    """gapless_torch_places (adapter/install.h)."""
    _fields_ = [("live", ctypes.c_char * 4096), ("largest_at", ctypes.c_char * 1024), ("largest_bytes", ctypes.c_uint64)]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_Places))
_HERE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)


def size(count: int) -> str:
    """1536 -> "1.50 KiB"."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{int(value)} bytes" if unit == "bytes" else f"{value:.2f} {unit}"
        value /= 1024
    raise AssertionError


def _site(frames: list[dict[str, Any]], library: str) -> tuple[str, int, str] | None:
    """The innermost frame that is not torch's own, else the innermost of Python."""
    python = [f for f in frames if f["filename"].endswith(".py") or f["filename"].startswith("<")]
    own = [f for f in python if not f["filename"].startswith(library)]
    for frame in own or python:
        return frame["filename"], frame["line"], frame["name"]
    return None


def _recorded() -> tuple[dict[str, Any], str] | None:
    """PyTorch's snapshot, and the folder of its own files; None where nothing is recorded."""
    import torch
    if not torch._C._cuda_isHistoryEnabled():
        return None
    return torch.cuda.memory._snapshot(), os.path.dirname(torch.__file__) + os.sep


def live(device: int) -> list[dict[str, Any]]:
    """[{"file", "line", "function", "bytes", "blocks"}], the most bytes first: blocks that were allocated
    while torch.cuda.memory._record_memory_history() was on, with stack traces. Empty where it is off."""
    recorded = _recorded()
    return _live(*recorded, device) if recorded else []


def _live(snapshot: dict[str, Any], library: str, device: int) -> list[dict[str, Any]]:
    sites: dict[tuple[str, int, str], list[int]] = {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            if site := _site(block.get("frames", []), library):
                total = sites.setdefault(site, [0, 0])
                total[0] += block["size"]
                total[1] += 1
    found = [{"file": file, "line": line, "function": function, "bytes": taken, "blocks": blocks}
             for (file, line, function), (taken, blocks) in sites.items()]
    return sorted(found, key=lambda site: (-site["bytes"], site["file"], site["line"]))


def _largest(snapshot: dict[str, Any], library: str, device: int) -> tuple[int, str]:
    """Of the last request that failed: the largest that was served at the same line, as far as the trace goes
    back, and that line. (0, "") where it is not known."""
    trace = snapshot["device_traces"][device] if device < len(snapshot["device_traces"]) else []
    failed = next((entry for entry in reversed(trace) if entry["action"] == "oom"), None)
    site = _site(failed.get("frames", []), library) if failed else None
    if site is None:
        return 0, ""
    place: dict[int, Any] = {}  # frames are mostly the same lists
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc" and entry.get("frames") and
             place.setdefault(id(entry["frames"]), _site(entry["frames"], library)) == site]
    return max(sizes, default=0), f"{site[0]}:{site[1]} ({site[2]})"


def describe(site: dict[str, Any]) -> str:
    """"6.00 GiB in 1 blocks at train.py:12 (step)"."""
    return f"{size(site['bytes'])} in {site['blocks']} blocks at {site['file']}:{site['line']} ({site['function']})"


def _whole(text: str, room: int) -> bytes:
    """At most so many bytes, a terminating zero included; whole letters."""
    return text.encode()[:room - 1].decode(errors="ignore").encode()


def _write(device: int, places: Any) -> None:
    try:
        recorded = _recorded()
        if recorded is None:
            return
        sites = _live(*recorded, device)
        lines = [describe(site) for site in sites[:_SHOWN]]
        if rest := sites[_SHOWN:]:
            lines.append(f"{size(sum(s['bytes'] for s in rest))} at {len(rest)} others")
        places.contents.live = _whole("; ".join(lines), _Places.live.size)
        largest, place = _largest(*recorded, device)
        places.contents.largest_at = _whole(place, _Places.largest_at.size)
        places.contents.largest_bytes = largest
    except Exception:  # the message that is being written matters more
        return


def here() -> str:
    """"train.py:42 (step)" of the innermost frame of the calling thread that is neither torch's nor this package's;
    "" where there is none, as in the threads of backward()."""
    torch = sys.modules.get("torch")
    not_ours = (os.path.dirname(__file__) + os.sep, os.path.dirname(torch.__file__ or "") + os.sep if torch else "<")
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(not_ours):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame is not None else ""


def _write_here(text: int, room: int) -> None:
    try:
        line = _whole(here(), room)
        ctypes.memmove(text, line + b"\0", len(line) + 1)
    except Exception:  # the request matters more
        return


_callback, _here_callback = _CALLBACK(_write), _HERE(_write_here)


def _end(function: Any, _callback: Any) -> None:
    function(None)


def tell(library: ctypes.CDLL) -> None:
    """Messages of the adapter name call sites from now on, until the interpreter ends."""
    for function, callback in ((library.gapless_torch_name_call_sites, _callback),
                               (library.gapless_torch_tell_call_site, _here_callback)):
        function.argtypes = [ctypes.c_void_p]
        function(ctypes.cast(callback, ctypes.c_void_p))
        # Keeps the callback, too: nobody else may know this module.
        atexit.register(_end, function, callback)
