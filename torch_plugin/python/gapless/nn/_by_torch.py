"""The same as _kernels, with torch's own operators: on the CPU, and where there are no kernels.

Rows are taken some at a time, so that what is in float32 stays below 64 MiB.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ._kernels import Options

_BYTES = 64 << 20


def _pieces(logits: Any) -> Iterator[slice]:
    rows = max(1, _BYTES // max(1, 4 * logits.shape[1]))
    for first in range(0, logits.shape[0], rows):
        yield slice(first, first + rows)


def _capped(logits: Any, options: Options) -> Any:
    """In float32; float64 stays."""
    x = logits if logits.dtype == torch.float64 else logits.float()
    return x if options.soft_cap == 0 else options.soft_cap * torch.tanh(x / options.soft_cap)


def _weights(options: Options, labels: Any, ignored: Any, like: Any) -> Any:
    if options.weight is None:
        return (~ignored).to(like.dtype)
    return options.weight.to(like.dtype)[labels.masked_fill(ignored, 0)].masked_fill(ignored, 0)


def _losses(logits: Any, labels: Any, options: Options) -> tuple[Any, Any, Any, Any]:
    x = _capped(logits, options)
    ignored = labels == options.ignore_index
    label_logits = x.gather(1, labels.masked_fill(ignored, 0).unsqueeze(1)).squeeze(1)
    largest = x.amax(1) if x.shape[1] else x.new_full((len(x),), -torch.inf)
    # Without the largest itself, which would take the last digits (kernels/cross_entropy.h).
    exponentials = torch.exp(x - largest.unsqueeze(1))
    if x.shape[1]:
        exponentials.scatter_(1, x.argmax(1, keepdim=True), 0)
    others = torch.where(torch.isfinite(largest) | (largest < 0), exponentials.sum(1), torch.nan)
    log_sum = torch.log1p(others)
    weights = _weights(options, labels, ignored, x)
    smoothing = options.label_smoothing
    losses = (1 - smoothing) * weights * (largest - label_logits + log_sum)
    if smoothing != 0:
        each = x.new_ones(x.shape[1]) if options.weight is None else options.weight.to(x.dtype)
        losses += smoothing / x.shape[1] * (each.sum() * (largest + log_sum) - (x * each).sum(1))
    if options.z_loss != 0:
        losses += options.z_loss * (largest + log_sum) ** 2
    return losses.masked_fill(ignored, 0), weights, largest, others


def _gradients(loss_gradients: Any, logits: Any, labels: Any, largest: Any, others: Any, options: Options) -> Any:
    x = _capped(logits, options)
    ignored = labels == options.ignore_index
    index = labels.masked_fill(ignored, 0).unsqueeze(1)
    log_sum = torch.log1p(others)
    weights = _weights(options, labels, ignored, x)
    smoothing = options.label_smoothing
    for_label = (1 - smoothing) * weights
    for_all = for_label.clone()
    each = None
    if smoothing != 0:
        each = smoothing / x.shape[1] * (x.new_ones(x.shape[1]) if options.weight is None else options.weight.to(x.dtype))
        for_all += each.sum()
    if options.z_loss != 0:
        for_all += 2 * options.z_loss * (largest + log_sum)
    log_p = x - largest.unsqueeze(1) - log_sum.unsqueeze(1)
    of_label = torch.expm1(log_p.gather(1, index)).squeeze(1) * for_all + (for_all - for_label)
    made = torch.exp(log_p).mul_(for_all.unsqueeze(1)).scatter_(1, index, of_label.unsqueeze(1))
    if each is not None:
        made -= each
    if options.soft_cap != 0:
        made *= 1 - (x / options.soft_cap) ** 2
    made *= loss_gradients.to(made.dtype).unsqueeze(1)
    return made.masked_fill_(ignored.unsqueeze(1), 0)


def forward(logits: Any, labels: Any, options: Options) -> tuple[Any, Any, Any]:
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    made = torch.empty(4, logits.shape[0], dtype=dtype, device=logits.device)
    for piece in _pieces(logits):
        for whole, part in zip(made, _losses(logits[piece], labels[piece], options)):
            whole[piece] = part
    return made[0].clone(), made[1].clone(), made[2:].clone()


def backward(loss_gradients: Any, logits: Any, labels: Any, statistics: Any, options: Options, gradients: Any) -> None:
    for piece in _pieces(logits):
        gradients[piece] = _gradients(loss_gradients[piece], logits[piece], labels[piece], statistics[0, piece],
                                      statistics[1, piece], options)


def both(logits: Any, labels: Any, options: Options, divisor: Any) -> tuple[Any, Any]:
    losses, weights, statistics = forward(logits, labels, options)
    outer = torch.ones((), dtype=losses.dtype, device=logits.device)
    if divisor is not None:
        outer = outer / divisor
    backward(outer.expand(logits.shape[0]), logits, labels, statistics, options, logits)
    return losses, weights
