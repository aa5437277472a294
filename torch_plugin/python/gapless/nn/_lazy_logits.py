"""Logits that nobody has asked for yet: what a model's last layer gives while it is trained.

    lm_head(hidden)  ->  LazyLogits: hidden, weight, bias
      .float(), .view(-1, classes), [..., :-1, :], / 30, tanh ...     still nobody needs them
      F.cross_entropy(lazy, labels)                                   linear_cross_entropy: in pieces
      anything else: .argmax(-1), print, ...                          the logits, as the layer would have given them

A model's own code and loss stay as they are, whatever they are: only what they do last is done another way.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Loss = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Source:
    """What logits are made of: hidden [..., in], weight [classes, in] and bias [classes] or None; where weight is None,
    hidden is the logits."""
    hidden: Any
    weight: Any
    bias: Any
    classes: int
    made_dtype: Any  # of what the layer gives
    dtype: Any  # of what the program sees: after .float() another
    loss: Loss  # loss(source, target, **options of F.cross_entropy), or NotImplemented
    scale: float = 1.0
    under_tanh: bool = False
    cap: float = 0.0  # what tanh is multiplied by

    def cast(self) -> tuple[Any, Any, Any]:
        """hidden, weight and bias as the layer multiplies them."""
        return tuple(None if tensor is None else tensor.to(self.made_dtype)  # type: ignore[return-value]
                     for tensor in (self.hidden, self.weight, self.bias))

    def logits(self) -> Any:
        made = self.hidden
        if self.weight is not None:
            with torch.autocast(self.hidden.device.type, enabled=False):
                made = F.linear(*self.cast())
        made = made.to(self.dtype)
        if self.scale != 1.0:
            made = made * self.scale
        if self.under_tanh:
            made = torch.tanh(made)
        return made * self.cap if self.cap else made

    @property
    def soft_cap(self) -> float | None:
        """None where what was done to them is no soft cap."""
        if not self.under_tanh:
            return 0.0
        return self.cap if self.cap and abs(self.cap * self.scale - 1) < 1e-6 else None


def _scaled(source: Source, by: Any) -> Source | None:
    if isinstance(by, bool) or not isinstance(by, (int, float)) or source.cap:
        return None
    if source.under_tanh:
        return dataclasses.replace(source, cap=float(by))
    return dataclasses.replace(source, scale=source.scale * by)


def _multiplied(lazy: LazyLogits, other: Any, **more: Any) -> Source | None:
    return None if more else _scaled(lazy.source, other)


def _divided(lazy: LazyLogits, other: Any, **more: Any) -> Source | None:
    is_number = isinstance(other, (int, float)) and other != 0
    return _scaled(lazy.source, 1 / other) if is_number and not more else None


def _under_tanh(lazy: LazyLogits) -> Source | None:
    source = lazy.source
    return None if source.under_tanh else dataclasses.replace(source, under_tanh=True)


def _as_float(lazy: LazyLogits, **more: Any) -> Source | None:
    return None if more else dataclasses.replace(lazy.source, dtype=torch.float32)


def _converted(lazy: LazyLogits, *to: Any, **more: Any) -> Source | None:
    wanted = [*to, *(more.pop(name) for name in ("dtype", "device") if name in more)]
    dtype = lazy.source.dtype
    for word in wanted:
        if isinstance(word, torch.dtype):
            dtype = word
        elif not isinstance(word, (str, int, torch.device)) or torch.empty(0, device=word).device != lazy.device:
            return None
    return dataclasses.replace(lazy.source, dtype=dtype) if wanted and not more and dtype.is_floating_point else None


def _unchanged(lazy: LazyLogits, **more: Any) -> Source | None:
    return None if more else lazy.source


def _reshaped(lazy: LazyLogits, *shape: Any) -> Source | None:
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)):
        shape = tuple(shape[0])
    source = lazy.source
    if not shape or not all(isinstance(length, int) for length in shape):
        return None
    if shape[-1] == -1:
        rows = source.hidden.numel() // source.hidden.shape[-1]
        known = 1
        for length in shape[:-1]:
            known *= length
        if known != rows:
            return None
    elif shape[-1] != source.classes:
        return None
    return dataclasses.replace(source, hidden=source.hidden.reshape(*shape[:-1], source.hidden.shape[-1]))


def _flattened(lazy: LazyLogits, start_dim: int = 0, end_dim: int = -1) -> Source | None:
    dims = lazy.dim()
    start, end = start_dim % dims, end_dim % dims
    if end >= dims - 1:
        return None
    return dataclasses.replace(lazy.source, hidden=lazy.source.hidden.flatten(start, end))


def _indexed(lazy: LazyLogits, index: Any) -> Source | None:
    """Rows of them, each as a whole."""
    parts = index if isinstance(index, tuple) else (index,)
    taken = 0
    for part in parts:
        if isinstance(part, torch.Tensor):
            taken += part.dim() if part.dtype == torch.bool else 1
        elif isinstance(part, (slice, int)) and not isinstance(part, bool):
            taken += 1
        elif part is not Ellipsis:
            return None
    if any(part is Ellipsis for part in parts):
        if parts[-1] != slice(None) if not isinstance(parts[-1], torch.Tensor) else True:
            return None
    elif taken >= lazy.dim() and (taken > lazy.dim() or isinstance(parts[-1], torch.Tensor) or parts[-1] != slice(None)):
        return None
    return dataclasses.replace(lazy.source, hidden=lazy.source.hidden[index])


_STILL_LAZY: dict[Any, Callable[..., Source | None]] = {
    torch.Tensor.float: _as_float, torch.Tensor.to: _converted, torch.Tensor.contiguous: _unchanged,
    torch.Tensor.view: _reshaped, torch.Tensor.reshape: _reshaped, torch.reshape: _reshaped,
    torch.Tensor.flatten: _flattened, torch.flatten: _flattened, torch.Tensor.__getitem__: _indexed,
    torch.Tensor.mul: _multiplied, torch.Tensor.__mul__: _multiplied, torch.Tensor.__rmul__: _multiplied,
    torch.mul: _multiplied, torch.Tensor.div: _divided, torch.Tensor.__truediv__: _divided, torch.div: _divided,
    torch.Tensor.tanh: _under_tanh, torch.tanh: _under_tanh}

# What their shape and place answer.
_OF_METADATA = {getattr(torch.Tensor, name).__get__ for name in (
    "shape", "dtype", "device", "ndim", "is_cuda", "is_cpu", "is_meta", "layout", "is_sparse", "is_quantized", "is_leaf",
    "is_nested", "names", "grad_fn", "_backward_hooks", "is_mps", "is_xpu") if hasattr(torch.Tensor, name)} | {
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.ndimension, torch.Tensor.numel, torch.Tensor.nelement,
    torch.Tensor.__len__, torch.Tensor.is_floating_point, torch.Tensor.is_complex, torch.Tensor.element_size,
    torch.Tensor.get_device, torch.is_floating_point, torch.is_complex, torch.numel}
_REQUIRES_GRAD = torch.Tensor.requires_grad.__get__
_CROSS_ENTROPY = {"input", "target", "weight", "ignore_index", "reduction", "label_smoothing"}


class LazyLogits(torch.Tensor):  # type: ignore[misc]
    """A tensor by its shape, type and device, with no memory behind it."""
    source: Source
    made: Any

    @staticmethod
    def __new__(cls: Any, source: Source) -> LazyLogits:
        lazy: LazyLogits = torch.Tensor._make_wrapper_subclass(
            cls, (*source.hidden.shape[:-1], source.classes), dtype=source.dtype, device=source.hidden.device)
        lazy.source = source
        lazy.made = None
        return lazy

    def logits(self) -> Any:
        """Made once, however often they are asked for."""
        if self.made is None:
            with torch._C.DisableTorchFunctionSubclass():
                self.made = self.source.logits()
        return self.made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_METADATA:
                return func(*args, **kwargs)
            lazy = args[0] if args else None
            if isinstance(lazy, LazyLogits) and lazy.made is None:
                if func is _REQUIRES_GRAD:
                    return any(tensor is not None and tensor.requires_grad for tensor in (
                        lazy.source.hidden, lazy.source.weight, lazy.source.bias))
                if func in _STILL_LAZY:
                    source = _STILL_LAZY[func](lazy, *args[1:], **kwargs)
                    if source is not None:
                        return LazyLogits(source)
            if func is F.cross_entropy:
                loss = _loss(args, kwargs)
                if loss is not NotImplemented:
                    return loss
        return func(*_made(args), **_made(kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*_made(args), **_made(kwargs or {}))


def _made(arguments: Any) -> Any:
    from torch.utils._pytree import tree_map
    return tree_map(lambda value: value.logits() if isinstance(value, LazyLogits) else value, arguments)


def _loss(args: Any, kwargs: dict[str, Any]) -> Any:
    """NotImplemented where the logits are needed for it."""
    options = {**dict(zip(("input", "target", "weight"), args)), **kwargs}
    if len(args) > 3 or any(value is not None for name, value in options.items() if name not in _CROSS_ENTROPY):
        return NotImplemented
    options = {name: value for name, value in options.items() if name in _CROSS_ENTROPY}
    lazy, target = options.pop("input", None), options.pop("target", None)
    if not isinstance(lazy, LazyLogits) or lazy.made is not None or not isinstance(target, torch.Tensor):
        return NotImplemented
    if isinstance(target, LazyLogits) or target.is_floating_point() or lazy.dim() > 2 or lazy.source.soft_cap is None:
        return NotImplemented
    return lazy.source.loss(lazy.source, target, **options)
