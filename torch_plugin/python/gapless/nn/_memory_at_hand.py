"""How much one tensor can have now, without asking anybody for what is not there.

    gapless                  all that lies free in what it reserved, in one piece (it has windows), and what the GPU has
    torch's own allocators   what lies free in whole segments, which they can give back, and what the GPU has

less what the process may not have: set_per_process_memory_fraction, gapless's limit.
"""
from __future__ import annotations

import functools
from typing import Any

import torch


# Beside a large tensor: cuBLAS's workspace, rounding, what the step goes on to ask for.
_KEPT_FREE = 64 << 20


@functools.lru_cache(maxsize=None)
def _limit_of_gapless(index: int) -> int:
    """In bytes; 0 where there is none."""
    import gapless
    return int(gapless._installed().describe()["devices"][index].get("limit_bytes") or 0)


def memory_at_hand(device: Any) -> int:
    """Bytes, at least 0."""
    import gapless
    index = device.index if device.index is not None else torch.cuda.current_device()
    free_on_gpu, total = torch.cuda.mem_get_info(index)
    stats = torch.cuda.memory_stats(index)
    reserved = stats.get("reserved_bytes.all.current", 0)
    cached = reserved - stats.get("active_bytes.all.current", 0)
    allowed = int(torch.cuda.get_per_process_memory_fraction(index) * total)
    if gapless.is_installed():
        allowed = min(allowed, _limit_of_gapless(index) or total)
    else:
        cached -= stats.get("inactive_split_bytes.all.current", 0)
    allowed -= reserved
    return int(max(0, cached + max(0, min(free_on_gpu, allowed)) - _KEPT_FREE))
