"""torch.nn.functional's cross_entropy and linear_cross_entropy, in little memory.

Beside their arguments both take z_loss and soft_cap. With x the logits after the cap, w the classes' weights, K the
number of classes and y a row's label, a row's loss is

    lse  = log(sum over c of exp(x[c]))            x = soft_cap tanh(logits / soft_cap), where soft_cap is not 0
    loss = (1 - label_smoothing) w[y] (lse - x[y])  +  label_smoothing / K sum over c of w[c] (lse - x[c])
           +  z_loss lse^2

and "mean" divides by the sum of the rows' w[y]. Of half precision the loss is float32, as it is under autocast.
"""
from __future__ import annotations

from typing import Any

import torch

from . import _operators  # noqa: F401: torch.ops.gapless
from ._kernels import Options
from ._linear import divisor_of


def _check(reduction: str, label_smoothing: float) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")


def _check_labels(labels: Any) -> Any:
    if labels.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"target: class indices, not {labels.dtype}")
    return labels.to(torch.int64)


def _reduced(losses: Any, weights: Any, reduction: str) -> Any:
    if reduction == "mean":
        return losses.sum() / weights.sum()
    return losses.sum() if reduction == "sum" else losses


def cross_entropy(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0, *, z_loss: float = 0.0, soft_cap: float = 0.0) -> Any:
    """As torch.nn.functional.cross_entropy, without a copy of the logits in float32 and, where nobody else needs
    them, with the gradient written over them.

    Shapes: input (C), (N, C) or (N, C, d1, ...), bfloat16, float16, float32 or float64; target (), (N) or
    (N, d1, ...), class indices. For probabilities as target torch's own function is called. A target that is
    neither a class nor ignore_index fails as it does there.
    """
    _check(reduction, label_smoothing)
    if target.is_floating_point():
        if z_loss or soft_cap:
            raise ValueError("z_loss and soft_cap are for class indices as target, not for probabilities")
        return torch.nn.functional.cross_entropy(input, target, weight=weight, ignore_index=ignore_index,
                                                 reduction=reduction, label_smoothing=label_smoothing)
    if input.dim() == 0:
        raise ValueError("input: a row of logits at least")
    class_dim = 0 if input.dim() == 1 else 1
    expected = input.shape[:class_dim] + input.shape[class_dim + 1:]
    if target.shape != expected:
        raise ValueError(f"target: of shape {tuple(target.shape)}, where the input's rows are {tuple(expected)}")
    classes = input.shape[class_dim]
    rows = input.reshape(1, classes) if input.dim() == 1 else (
        input if input.dim() == 2 else input.movedim(1, -1).reshape(-1, classes))
    losses, weights, _ = torch.ops.gapless.cross_entropy(
        rows, _check_labels(target).reshape(-1), None if weight is None else weight.float(), ignore_index,
        float(label_smoothing), float(z_loss), float(soft_cap))
    return _reduced(losses.view(target.shape) if reduction == "none" else losses, weights, reduction)


def _under_autocast(*tensors: Any) -> list[Any]:
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        return [tensor if tensor is None or tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]
    return list(tensors)


def linear_cross_entropy(input: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None, weight: Any = None,
                         reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
                         z_loss: float = 0.0, soft_cap: float = 0.0, accumulate_in_float32: bool = False,
                         pieces: int | None = None) -> Any:
    """cross_entropy(linear(input, linear_weight, linear_bias), target), never with all of the logits.

    Logits, their gradient and what follows from it are made for some rows at a time, forward and backward in one: as
    many rows as there is memory at hand for, asked anew in each call; all of them where they fit. `pieces` says how
    many instead. With `accumulate_in_float32` the weight's gradient is summed up over pieces in float32, which takes
    that much memory, and else in the weight's type.

    Shapes: input (..., in), linear_weight (C, in), linear_bias (C), target (...), class indices. With reduction
    "none" the logits are made again in the backward pass.
    """
    _check(reduction, label_smoothing)
    if linear_weight.dim() != 2 or input.shape[-1] != linear_weight.shape[1]:
        raise ValueError(f"linear_weight: (classes, {input.shape[-1]}) for this input, not {tuple(linear_weight.shape)}")
    if target.is_floating_point():
        raise TypeError("target: class indices; for probabilities there is torch.nn.functional.linear_cross_entropy")
    if target.shape != input.shape[:-1]:
        raise ValueError(f"target: of shape {tuple(target.shape)}, where the input's rows are {tuple(input.shape[:-1])}")
    if pieces is not None and pieces < 1:
        raise ValueError(f"pieces: {pieces}: at least 1")
    input, linear_weight, linear_bias = _under_autocast(input, linear_weight, linear_bias)
    labels = _check_labels(target).reshape(-1)
    rows = input.reshape(-1, input.shape[-1])
    class_weights = None if weight is None else weight.float()
    ignored = -100 if ignore_index is None else ignore_index
    options = (class_weights, ignored, float(label_smoothing), float(z_loss), float(soft_cap))
    if reduction == "none" and torch.is_grad_enabled() and any(
            tensor is not None and tensor.requires_grad for tensor in (rows, linear_weight, linear_bias)):
        return _again_in_backward(rows, linear_weight, linear_bias, labels, options, pieces).view(target.shape)
    wants = [torch.is_grad_enabled() and tensor is not None and tensor.requires_grad
             for tensor in (rows, linear_weight, linear_bias)]
    losses, weights, *_ = torch.ops.gapless.linear_cross_entropy(
        rows, linear_weight, linear_bias, labels, *options, reduction == "mean", wants, accumulate_in_float32, pieces or 0)
    if reduction == "none":
        return losses.view(target.shape)
    if reduction == "sum":
        return losses.sum()
    # The operator's gradients are those of the mean already.
    divisor = divisor_of(labels, Options(*options), losses.dtype)
    return _Mean.apply(losses, divisor)


class _Mean(torch.autograd.Function):  # type: ignore[misc]
    """sum(losses) / divisor, whose gradient for each loss is handed on as it is."""

    @staticmethod
    def forward(ctx: Any, losses: Any, divisor: Any) -> Any:
        ctx.rows = losses.shape[0]
        return losses.sum() / divisor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.expand(ctx.rows), None


def _again_in_backward(rows: Any, linear_weight: Any, linear_bias: Any, labels: Any, options: Any, pieces: int | None) -> Any:
    """Losses of rows that may have any gradient: a piece's logits are made again when theirs comes."""
    from torch.utils.checkpoint import checkpoint

    from ._linear import _rows_that_fit
    size = (-(-rows.shape[0] // pieces) if pieces
            else _rows_that_fit(rows.shape[0], 2 * linear_weight.shape[0] * rows.element_size(), rows.device))

    def losses_of(piece: Any, of_labels: Any) -> Any:
        logits = torch.nn.functional.linear(piece, linear_weight, linear_bias)
        return torch.ops.gapless.cross_entropy(logits, of_labels, *options)[0]

    return torch.cat([checkpoint(losses_of, rows[first:first + size], labels[first:first + size], use_reentrant=False)
                      for first in range(0, max(1, rows.shape[0]), size)])
