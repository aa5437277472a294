"""The losses as operators of PyTorch: torch.ops.gapless.*, with fake tensors, autograd and torch.compile.

    cross_entropy(logits [rows, classes], labels [rows], ...)  ->  losses, weights of rows, [2, rows] for backward
      its backward      cross_entropy_backward_, over the logits, where nobody else needs them (_in_place.py);
                        cross_entropy_backward, into new memory, else
    linear_cross_entropy(input [rows, in], linear_weight [classes, in], ...)
        ->  losses, weights of rows, gradients of input, weight and bias (_linear.py)

A loss's gradient for logits of half precision is of half precision; sums are float32.
"""
from __future__ import annotations

from typing import Any

import torch

from . import _by_torch, _in_place, _kernels, _linear
from ._kernels import Options

_MULTIPLIED_AT_ONCE = 16 << 20  # numbers
_OPTIONS = "Tensor? weight, int ignore_index, float label_smoothing, float z_loss, float soft_cap"
_LIBRARY = torch.library.Library("gapless", "DEF")
_LIBRARY.define(f"cross_entropy(Tensor logits, Tensor labels, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define("cross_entropy_backward(Tensor loss_gradients, Tensor logits, Tensor labels, Tensor statistics, "
                f"{_OPTIONS}) -> Tensor")
_LIBRARY.define("cross_entropy_backward_(Tensor loss_gradients, Tensor(a!) logits, Tensor labels, Tensor statistics, "
                f"{_OPTIONS}) -> ()")
_LIBRARY.define(
    f"linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor? linear_bias, Tensor labels, {_OPTIONS}, "
    "bool is_mean, bool[3] gradients, bool in_float32, int pieces) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")


def _backend(logits: Any) -> Any:
    return _kernels if _kernels.run(logits) else _by_torch


def _empty(like: Any) -> Any:
    return torch.empty(0, dtype=like.dtype, device=like.device)


@torch.library.impl(_LIBRARY, "cross_entropy", "CompositeExplicitAutograd")  # type: ignore[misc]
def _cross_entropy(logits: Any, labels: Any, weight: Any, ignore_index: int, label_smoothing: float, z_loss: float,
                   soft_cap: float) -> Any:
    options = Options(weight, ignore_index, label_smoothing, z_loss, soft_cap)
    return _backend(logits).forward(logits, labels, options)


@torch.library.impl(_LIBRARY, "cross_entropy_backward", "CompositeExplicitAutograd")  # type: ignore[misc]
def _cross_entropy_backward(loss_gradients: Any, logits: Any, labels: Any, statistics: Any, weight: Any,
                            ignore_index: int, label_smoothing: float, z_loss: float, soft_cap: float) -> Any:
    options = Options(weight, ignore_index, label_smoothing, z_loss, soft_cap)
    made = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _backend(logits).backward(loss_gradients, logits, labels, statistics, options, made)
    return made


@torch.library.impl(_LIBRARY, "cross_entropy_backward_", "CompositeExplicitAutograd")  # type: ignore[misc]
def _cross_entropy_backward_in_place(loss_gradients: Any, logits: Any, labels: Any, statistics: Any, weight: Any,
                                     ignore_index: int, label_smoothing: float, z_loss: float, soft_cap: float) -> None:
    options = Options(weight, ignore_index, label_smoothing, z_loss, soft_cap)
    _backend(logits).backward(loss_gradients, logits, labels, statistics, options, logits)


@torch.library.impl(_LIBRARY, "linear_cross_entropy", "CompositeExplicitAutograd")  # type: ignore[misc]
def _linear_cross_entropy(input: Any, linear_weight: Any, linear_bias: Any, labels: Any, weight: Any, ignore_index: int,
                          label_smoothing: float, z_loss: float, soft_cap: float, is_mean: bool, gradients: list[bool],
                          in_float32: bool, pieces: int) -> Any:
    options = Options(weight, ignore_index, label_smoothing, z_loss, soft_cap)
    return _linear.run(input, linear_weight, linear_bias, labels, options, is_mean, gradients, in_float32, pieces)


def _statistics_type(logits: Any) -> Any:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


@torch.library.register_fake("gapless::cross_entropy", lib=_LIBRARY)  # type: ignore[misc]
def _(logits: Any, labels: Any, *options: Any) -> Any:
    rows = logits.new_empty(logits.shape[0], dtype=_statistics_type(logits))
    return rows, torch.empty_like(rows), rows.new_empty(2, logits.shape[0])


@torch.library.register_fake("gapless::cross_entropy_backward", lib=_LIBRARY)  # type: ignore[misc]
def _(loss_gradients: Any, logits: Any, *more: Any) -> Any:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.register_fake("gapless::cross_entropy_backward_", lib=_LIBRARY)  # type: ignore[misc]
def _(loss_gradients: Any, logits: Any, *more: Any) -> None:
    return None


@torch.library.register_fake("gapless::linear_cross_entropy", lib=_LIBRARY)  # type: ignore[misc]
def _(input: Any, linear_weight: Any, linear_bias: Any, labels: Any, weight: Any, ignore_index: int,
      label_smoothing: float, z_loss: float, soft_cap: float, is_mean: bool, gradients: list[bool], in_float32: bool,
      pieces: int) -> Any:
    rows = input.new_empty(input.shape[0], dtype=_statistics_type(input))
    made = [torch.empty_like(tensor, memory_format=torch.contiguous_format) if wanted else _empty(input)
            for tensor, wanted in zip((input, linear_weight, linear_bias), gradients)]
    return rows, torch.empty_like(rows), *made


def _keep_cross_entropy(ctx: Any, inputs: Any, output: Any) -> None:
    logits, labels, weight, *ctx.options = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(logits, labels, output[2], *([] if weight is None else [weight]))


def _cross_entropy_gradient(ctx: Any, loss_gradients: Any, *unused: Any) -> Any:
    logits, labels, statistics, *weight = ctx.saved_tensors
    arguments = (loss_gradients, logits, labels, statistics, weight[0] if weight else None, *ctx.options)
    if _in_place.may_write(logits):
        torch.ops.gapless.cross_entropy_backward_(*arguments)
        return logits.detach(), None, None, None, None, None, None
    return torch.ops.gapless.cross_entropy_backward(*arguments), None, None, None, None, None, None


torch.library.register_autograd("gapless::cross_entropy", _cross_entropy_gradient, setup_context=_keep_cross_entropy,
                                lib=_LIBRARY)


def _keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.gradients = inputs[10]
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[2:])


def _multiplied(gradient: Any, outer: Any) -> Any:
    """By a factor in its own precision: one in half precision would be off by up to 0.4 %, for all of it alike. Some rows
    at a time, where they lie if nobody needs them again."""
    if type(gradient) is not torch.Tensor or torch.compiler.is_compiling():
        return (gradient * outer).to(gradient.dtype)
    made = gradient if not torch._C._autograd._get_current_graph_task_keep_graph() else torch.empty_like(gradient)
    rows = max(1, _MULTIPLIED_AT_ONCE // max(1, gradient[:1].numel()))
    for first in range(0, gradient.shape[0], rows):
        part = slice(first, first + rows)
        made[part] = gradient[part].to(outer.dtype) * outer
    return made


def _linear_gradient(ctx: Any, loss_gradients: Any, *unused: Any) -> Any:
    # Of a mean or a sum: of all rows the same.
    outer = loss_gradients[0] if loss_gradients.shape[0] else loss_gradients.sum()
    made = [_multiplied(gradient, outer) if wanted else None for gradient, wanted in zip(ctx.saved_tensors, ctx.gradients)]
    return (*made, *[None] * 10)


torch.library.register_autograd("gapless::linear_cross_entropy", _linear_gradient, setup_context=_keep_linear,
                                lib=_LIBRARY)
