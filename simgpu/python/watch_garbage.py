"""How much memory waits for Python's garbage collector; watch_torch.py's names are here.

    frame <-> traceback <-> gradients      a reference cycle: what it holds is free when the collector comes by
      step 0   + 1.3 GiB of gradients      nobody needs them any more
      step 1   collection                  - 1.3 GiB: in time, or too late, by how many objects were made before

When it comes depends on how many objects were made, and so on what is watched, imported or printed: another run
of the same program may have to hold what this one did not. state["garbage"] has the most that one collection freed on
a GPU, and state["garbage_at_end"] what was waiting when a program died out of memory. Where the program itself asks for
one, by gc.collect(), it comes there in every run, and what that frees is free in time.
"""
import functools
import gc

import torch

LEAST = 1 << 20  # bytes, that are told

_before = [None]
_asked_for = [False]  # whether the collection is the program's own
_since_failure = {}  # bytes by GPU that collections have freed since a request failed


def _allocated():
    """Of each GPU; None where torch cannot tell."""
    if not torch.cuda.is_initialized():
        return None
    try:
        return [torch._C._cuda_memoryStats(index)["allocated_bytes"]["all"]["current"]
                for index in range(torch.cuda.device_count())]
    except RuntimeError:  # an allocator of the user's own, which counts nothing
        return None


def _freed(before, after) -> list[dict]:
    if before is None or after is None:
        return []
    return [{"device": index, "bytes": one - other, "step": state["steps"]}
            for index, (one, other) in enumerate(zip(before, after)) if one - other >= LEAST]


@_quietly
def _collection(phase, _facts):
    if phase == "start":
        _before[0] = _allocated()
        return
    for freed in _freed(_before[0], _allocated()):
        _since_failure[freed["device"]] = _since_failure.get(freed["device"], 0) + freed["bytes"]
        if _asked_for[0]:
            continue
        known = next((one for one in state["garbage"] if one["device"] == freed["device"]), None)
        if known is None or known["bytes"] < freed["bytes"]:
            state["garbage"] = [one for one in state["garbage"] if one is not known] + [freed]


def _told_of(collect):
    @functools.wraps(collect)
    def wrapped(*arguments, **options):
        _asked_for[0] = True
        try:
            return collect(*arguments, **options)
        finally:
            _asked_for[0] = False
    return wrapped


@_quietly
def _collect_at_end():
    """What the exception's own frames hold is no garbage: they are alive. Python may have come by itself since the
    request failed, as it printed the traceback or just now."""
    exception = _exception()
    if exception is not None and exception["out_of_memory"]:
        gc.collect()
        state["garbage_at_end"] = [{"device": device, "bytes": freed, "step": state["steps"]}
                                   for device, freed in sorted(_since_failure.items())]
    with contextlib.suppress(ValueError):  # it may have been told of its end before (stop_hook.h)
        gc.callbacks.remove(_collection)


at_out_of_memory.append(_since_failure.clear)
gc.callbacks.append(_collection)
gc.collect = _told_of(gc.collect)
at_end.insert(0, _collect_at_end)
