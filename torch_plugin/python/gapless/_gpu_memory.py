"""How full the GPUs of this machine are, and with whose memory.

    NVML (libnvidia-ml.so.1)    every GPU that this process may see, without touching it
    torch.cuda                  where there is no NVML and torch has found GPUs

Neither torch nor CUDA is initialised for it: that alone would take some 500 MiB of each GPU.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from ._call_sites import size

GIB = 1 << 30
SAFE, DANGER = 85, 90  # per cent of a GPU: below the first it is safe, above the second in danger


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


_NOT_AVAILABLE = ctypes.c_ulonglong(-1).value
_INSUFFICIENT_SIZE = 7


def status_of(percent: float) -> str:
    """"safe" below 85 % of a GPU, "danger" above 90 %, "edge" between."""
    return "safe" if percent < SAFE else "danger" if percent > DANGER else "edge"


def _visible(uuids: list[str]) -> list[int]:
    """Which of the machine's GPUs CUDA would see, in its order."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(len(uuids)))
    seen: list[int] = []
    for word in (word.strip() for word in chosen.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            index = int(word)
        else:
            index = next((i for i, uuid in enumerate(uuids) if word and uuid.startswith(word)), -1)
        if index < 0 or index in seen:  # as CUDA has it: what follows is not seen either
            break
        seen.append(index)
    return seen


def _used_by_this_process(nvml: Any, handle: ctypes.c_void_p) -> int | None:
    """None where the driver does not tell, as in many containers."""
    count = ctypes.c_uint(0)
    call = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if call is None or call(handle, ctypes.byref(count), None) not in (0, _INSUFFICIENT_SIZE):
        return None
    room = count.value + 16
    processes, count = (_Process * room)(), ctypes.c_uint(room)
    if call(handle, ctypes.byref(count), processes) != 0:
        return None
    for process in processes[:count.value]:
        if process.pid == os.getpid() and process.used != _NOT_AVAILABLE:
            return int(process.used)
    return None


def _from_nvml() -> list[dict[str, Any]] | None:
    """None where there is no NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    handles: list[ctypes.c_void_p] = []
    uuids: list[str] = []
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
            return None
        nvml.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(len(text)))
        handles.append(handle)
        uuids.append(text.value.decode(errors="replace"))
    found = []
    for index in _visible(uuids):
        memory, name = _Memory(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetMemoryInfo(handles[index], ctypes.byref(memory)) != 0:
            return None
        nvml.nvmlDeviceGetName(handles[index], name, ctypes.c_uint(len(name)))
        found.append({"name": name.value.decode(errors="replace"), "total_bytes": int(memory.total),
                      "free_bytes": int(memory.free), "used_bytes": int(memory.used),
                      "by_this_process_bytes": _used_by_this_process(nvml, handles[index])})
    return found


def _torch_in_use() -> Any:
    """torch where this process uses its GPUs; None where it does not."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() else None


def _from_torch() -> list[dict[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        found.append({"name": torch.cuda.get_device_name(index), "total_bytes": total, "free_bytes": free,
                      "used_bytes": total - free, "by_this_process_bytes": None})
    return found


def check_gpu_memory(verbose: bool = True) -> dict[int, dict[str, Any]]:
    """How full every GPU is that this process may see: {0: {...}, 1: {...}}. Empty where there is none.

    Of each: "name"; "total", "used", "free" in GiB, of the whole GPU, whoever uses it; "by_this_process" and
    "by_others"; "allocated" and "reserved" by PyTorch in this process; "usage_percent", of the whole GPU; "status":
    "safe" below 85 %, "danger" above 90 %, "edge" between. Sizes are also there in bytes ("used_bytes", ...).
    Where the driver does not tell processes apart, what PyTorch has reserved is this process's, and its context is
    among the others'.

    verbose: print them as well. Needs neither torch nor a GPU, and initialises none.
    """
    listed = _from_nvml()
    torch = _torch_in_use()
    found: dict[int, dict[str, Any]] = {}
    for index, gpu in enumerate(_from_torch() if listed is None else listed):
        allocated = reserved = 0
        if torch is not None and index < torch.cuda.device_count():
            allocated, reserved = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
        own = gpu["by_this_process_bytes"]
        own = min(gpu["used_bytes"], reserved if own is None else own)
        gpu.update(by_this_process_bytes=own, by_others_bytes=gpu["used_bytes"] - own, allocated_bytes=allocated,
                   reserved_bytes=reserved)
        percent = 100 * gpu["used_bytes"] / max(1, gpu["total_bytes"])
        found[index] = {**gpu, "usage_percent": percent, "status": status_of(percent),
                        **{name.removesuffix("_bytes"): value / GIB for name, value in gpu.items() if name.endswith("_bytes")}}
    if verbose:
        print(_text(found))
    return found


def _text(found: dict[int, dict[str, Any]]) -> str:
    if not found:
        return "no GPU: there is none here, or none that this process may use"
    lines = []
    for index, gpu in found.items():
        lines.append(f"GPU {index} ({gpu['name']}): {size(gpu['used_bytes'])} of {size(gpu['total_bytes'])} used "
                     f"({gpu['usage_percent']:.1f} %, {gpu['status']}), {size(gpu['free_bytes'])} free")
        lines.append(f"  {size(gpu['by_this_process_bytes'])} by this process ({size(gpu['allocated_bytes'])} allocated, "
                     f"{size(gpu['reserved_bytes'])} reserved by PyTorch), {size(gpu['by_others_bytes'])} by others")
    return "\n".join(lines)
