"""A linear layer and its loss in pieces: logits exist for some rows at a time.

    input   [rows, in]       a piece after the other:
    weight  [classes, in]      logits = piece @ weight.T           [n, classes]
                               losses, and the gradient over them
                               gradient of input  = logits @ weight
                               gradient of weight += logits.T @ piece

As many rows a piece as there is memory at hand for, without asking for more than there is: all of them, where they
fit. The gradients are of a loss whose own gradient is 1, which is known to be so up to a factor before the backward
pass comes.
"""
from __future__ import annotations

from typing import Any

import torch

from . import _by_torch, _kernels
from ._kernels import Options
from ._memory_at_hand import memory_at_hand

_WEIGHT_ROWS = 8192  # of the weight's gradient at a time, where it is summed up in float32


def _rows_that_fit(rows: int, row_bytes: int, device: Any) -> int:
    if device.type != "cuda":
        return rows if rows * row_bytes <= 1 << 28 else max(1, (1 << 28) // row_bytes)
    fit = max(1, memory_at_hand(device) // max(1, row_bytes))
    pieces = -(-rows // fit)
    return -(-rows // pieces)


def _buffer(rows: int, classes: int, like: Any) -> Any:
    """For logits of that many rows, or of fewer where there is no memory for them. Raises OutOfMemoryError where
    there is none for one."""
    while True:
        try:
            return torch.empty(rows, classes, dtype=like.dtype, device=like.device)
        except torch.OutOfMemoryError:
            if rows <= 1:
                raise
            rows = (rows + 1) // 2


def _add_weight_gradient(total: Any, logits: Any, piece: Any) -> None:
    if total.dtype == logits.dtype:
        total.addmm_(logits.t(), piece)
        return
    for first in range(0, total.shape[0], _WEIGHT_ROWS):
        part = slice(first, first + _WEIGHT_ROWS)
        total[part] += logits[:, part].t() @ piece


def divisor_of(labels: Any, options: Options, dtype: Any) -> Any:
    """The sum of the rows' weights, which a mean is over: [] of that type."""
    valid = labels != options.ignore_index
    if options.weight is None:
        return valid.sum(dtype=dtype)
    return options.weight.to(dtype)[labels.masked_fill(~valid, 0)].masked_fill(~valid, 0).sum()


def run(input: Any, linear_weight: Any, linear_bias: Any, labels: Any, options: Options, is_mean: bool,
        gradients: list[bool], in_float32: bool, pieces: int) -> Any:
    """Losses and weights of rows; gradients of input, weight and bias of their mean or sum, each empty where it is not
    wanted. `pieces`: 0 for as many as the memory needs."""
    rows, classes = input.shape[0], linear_weight.shape[0]
    backend = _kernels if _kernels.run(input) else _by_torch
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    losses = torch.empty(rows, dtype=dtype, device=input.device)
    weights = torch.empty_like(losses)
    nothing = torch.empty(0, dtype=input.dtype, device=input.device)
    sums = torch.float32 if in_float32 and input.dtype != torch.float64 else input.dtype
    input_gradient = torch.empty_like(input, memory_format=torch.contiguous_format) if gradients[0] else nothing
    weight_gradient = torch.zeros(linear_weight.shape, dtype=sums, device=input.device) if gradients[1] else nothing
    bias_gradient = torch.zeros(classes, dtype=dtype, device=input.device) if gradients[2] else nothing
    divisor = divisor_of(labels, options, dtype) if is_mean else None

    first = 0
    buffer = None
    size = -(-rows // pieces) if pieces > 0 else _rows_that_fit(rows, classes * input.element_size(), input.device)
    while first < rows:
        if buffer is None:
            buffer = _buffer(min(size, rows - first), classes, input)
        last = min(rows, first + buffer.shape[0])
        piece = input[first:last]
        logits = buffer[:last - first]
        try:
            if linear_bias is None:
                torch.mm(piece, linear_weight.t(), out=logits)
            else:
                torch.addmm(linear_bias, piece, linear_weight.t(), out=logits)
            if any(gradients):
                losses[first:last], weights[first:last] = backend.both(logits, labels[first:last], options, divisor)
            else:
                losses[first:last], weights[first:last], _ = backend.forward(logits, labels[first:last], options)
            if gradients[0]:
                torch.mm(logits, linear_weight, out=input_gradient[first:last])
            if gradients[2]:
                bias_part = logits.sum(0, dtype=dtype)
            # Last, and at once or not at all: what comes before it may be done again.
            if gradients[1]:
                _add_weight_gradient(weight_gradient, logits, piece)
        except torch.OutOfMemoryError:
            # For a workspace, it may be. With fewer rows again, from this piece's first on.
            if buffer.shape[0] <= 1 or (gradients[1] and weight_gradient.dtype != input.dtype):
                raise
            size = (buffer.shape[0] + 1) // 2
            buffer = logits = None
            continue
        if gradients[2]:
            bias_gradient += bias_part
        first = last
    return (losses, weights, input_gradient, weight_gradient.to(linear_weight.dtype) if gradients[1] else nothing,
            bias_gradient.to(input.dtype) if gradients[2] else nothing)
