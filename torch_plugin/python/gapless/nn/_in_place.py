"""Whether the gradient of logits may be written over them: only where nobody else will ever look at them.

    logits = lm_head(hidden)                    one tensor, on a storage of its own
    loss = F.cross_entropy(logits.view(-1, v), labels); del logits
    loss.backward()                             only what autograd kept for this loss is left

Counted are the references to the storage, to the tensor that was kept and to the one it is a view of, in Python
and in C++. How many there are where there is nobody else is counted once, with small tensors on the CPU in the same
places: torch's own tell nothing about it.
"""
from __future__ import annotations

import functools
import sys
from typing import Any

import torch


def _references(tensor: Any) -> tuple[int, ...]:
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    found = [sys.getrefcount(tensor), tensor._use_count(), storage]
    if (base := tensor._base) is not None:
        found += [sys.getrefcount(base), base._use_count()]
    return tuple(found)


_counts: list[tuple[int, ...]] | None = None  # while they are found out


@functools.lru_cache(maxsize=None)
def _of_nobody_else() -> frozenset[tuple[int, ...]]:
    global _counts
    _counts = []
    labels = torch.zeros(2, dtype=torch.int64)
    leaf = torch.ones(2, 3, requires_grad=True)

    def loss(logits: Any) -> Any:
        return torch.ops.gapless.cross_entropy(logits, labels, None, -100, 0.0, 0.0, 0.0)[0].sum()

    def kept_alone() -> Any:
        return loss(leaf + 1)

    def kept_as_a_view() -> Any:
        logits = (leaf + 1).view(1, 2, 3)
        logits = (logits + 1)
        return loss(logits.view(-1, 3))

    try:
        with torch.enable_grad():
            kept_alone().backward()
            kept_as_a_view().backward()
        return frozenset(_counts)
    finally:
        _counts = None


def may_write(logits: Any) -> bool:
    """Called by an operator's backward, with what it kept."""
    # While a graph is traced tensors are of other classes, and the compiler finds out by itself.
    if type(logits) is not torch.Tensor or torch.compiler.is_compiling():
        return False
    if torch._C._autograd._get_current_graph_task_keep_graph():
        return False  # there may be another backward pass
    if _counts is not None:
        _counts.append(_references(logits))
        return False
    known = _of_nobody_else()
    return _references(logits) in known and logits.grad_fn is not None
