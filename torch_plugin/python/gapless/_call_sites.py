"""Where in the program the memory that is live was allocated, as far as PyTorch recorded it.

This file stands alone: where gapless came by LD_PRELOAD, the adapter loads it by its path, into a program that need
not know the package. It imports only what torch has imported already.
"""
from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

_SHOWN = 5
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


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


def live(device: int) -> list[dict[str, Any]]:
    """[{"file", "line", "function", "bytes", "blocks"}], the most bytes first: blocks that were allocated
    while torch.cuda.memory._record_memory_history() was on, with stack traces. Empty where it is off."""
    import torch
    if not torch._C._cuda_isHistoryEnabled():
        return []
    library = os.path.dirname(torch.__file__) + os.sep
    sites: dict[tuple[str, int, str], list[int]] = {}
    for segment in torch.cuda.memory._snapshot()["segments"]:
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


def describe(site: dict[str, Any]) -> str:
    """"6.00 GiB in 1 blocks at train.py:12 (step)"."""
    return f"{size(site['bytes'])} in {site['blocks']} blocks at {site['file']}:{site['line']} ({site['function']})"


def _write(device: int, text: Any, room: int) -> None:
    try:
        sites = live(device)
        lines = [describe(site) for site in sites[:_SHOWN]]
        if rest := sites[_SHOWN:]:
            lines.append(f"{size(sum(s['bytes'] for s in rest))} at {len(rest)} others")
        written = "; ".join(lines).encode()[:room - 1].decode(errors="ignore").encode()  # whole letters
    except Exception:  # the message that is being written matters more
        written = b""
    ctypes.memmove(text, written + b"\0", len(written) + 1)


_callback = _CALLBACK(_write)


def tell(library: ctypes.CDLL) -> None:
    """Messages of the adapter name call sites from now on, until the interpreter ends."""
    library.gapless_torch_name_call_sites(_callback)
    atexit.register(library.gapless_torch_name_call_sites, None)
