"""libgapless_kernels.so: kernels/cross_entropy.h, called with torch's tensors.

The library needs no torch, and no version of it: pointers, strides and a stream are all it gets.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from .._library import GaplessError, library

TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class Options:
    """What a loss is made of, beside logits and labels (the formula is that of kernels/cross_entropy.h)."""

    def __init__(self, weight: Any, ignore_index: int, label_smoothing: float, z_loss: float, soft_cap: float):
        self.weight = weight  # float32, or None
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.soft_cap = soft_cap


class _Rows(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("type", ctypes.c_int), ("rows", ctypes.c_int64), ("classes", ctypes.c_int64),
        ("logits", ctypes.c_void_p), ("row_stride", ctypes.c_int64), ("class_stride", ctypes.c_int64),
        ("labels", ctypes.c_void_p), ("label_stride", ctypes.c_int64), ("ignore_index", ctypes.c_int64),
        ("class_weights", ctypes.c_void_p), ("class_weight_sum", ctypes.c_void_p),
        ("label_smoothing", ctypes.c_float), ("z_loss", ctypes.c_float), ("soft_cap", ctypes.c_float),
        ("first_class", ctypes.c_int64), ("total_classes", ctypes.c_int64),
        ("largest", ctypes.c_void_p), ("others", ctypes.c_void_p), ("label_logit", ctypes.c_void_p),
        ("weighted", ctypes.c_void_p), ("losses", ctypes.c_void_p), ("row_weights", ctypes.c_void_p),
        ("loss_gradients", ctypes.c_void_p), ("loss_gradient_stride", ctypes.c_int64), ("divisor", ctypes.c_void_p),
        ("gradients", ctypes.c_void_p), ("gradient_row_stride", ctypes.c_int64),
        ("gradient_class_stride", ctypes.c_int64)]


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.CDLL | None:
    try:
        loaded = ctypes.CDLL(str(library("libgapless_kernels.so")))
    except (GaplessError, OSError):
        return None
    loaded.gapless_kernels_last_error.restype = ctypes.c_char_p
    return loaded


@functools.lru_cache(maxsize=None)
def why_not(device: Any) -> str:
    """Why the kernels do not run on a device; empty where they do."""
    if _library() is None:
        return "libgapless_kernels.so is not there: gapless was built without nvcc"
    if torch.version.hip is not None:
        return "the kernels are for CUDA"
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < (7, 5):
        return f"the kernels are for compute capability 7.5 and later, and this GPU has {major}.{minor}"
    return ""


def run(logits: Any) -> bool:
    """Whether they do for these logits."""
    return bool(logits.is_cuda and logits.dtype in TYPES and not why_not(logits.device))


def _call(name: str, rows: _Rows, device: Any) -> None:
    loaded = _library()
    assert loaded is not None
    with torch.cuda.device(device):
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        if getattr(loaded, f"gapless_cross_entropy_{name}")(ctypes.byref(rows), stream) != 0:
            raise GaplessError((loaded.gapless_kernels_last_error() or b"").decode(errors="replace"))


def _rows(logits: Any, labels: Any, options: Options) -> tuple[_Rows, list[Any]]:
    """`logits`: [rows, classes]; `labels`: [rows], int64. And what has to live until the kernel was submitted."""
    rows = _Rows(size=ctypes.sizeof(_Rows), type=TYPES[logits.dtype], rows=logits.shape[0], classes=logits.shape[1],
                 logits=logits.data_ptr(), row_stride=logits.stride(0), class_stride=logits.stride(1),
                 labels=labels.data_ptr(), label_stride=labels.stride(0), ignore_index=options.ignore_index,
                 label_smoothing=options.label_smoothing, z_loss=options.z_loss, soft_cap=options.soft_cap)
    kept = [logits, labels]
    if options.weight is not None:
        weight = options.weight.contiguous()
        rows.class_weights = weight.data_ptr()
        kept.append(weight)
        if options.label_smoothing != 0:
            total = weight.sum()
            rows.class_weight_sum = total.data_ptr()
            kept.append(total)
    return rows, kept


def _results(rows: _Rows, logits: Any) -> Any:
    """[6, rows]: largest, others, label's logit, weighted, loss and weight of each row."""
    made = torch.empty(6, logits.shape[0], dtype=torch.float32, device=logits.device)
    for name, part in zip(("largest", "others", "label_logit", "weighted", "losses", "row_weights"), made):
        setattr(rows, name, part.data_ptr())
    return made


def _writes(rows: _Rows, gradients: Any) -> None:
    rows.gradients = gradients.data_ptr()
    rows.gradient_row_stride, rows.gradient_class_stride = gradients.stride(0), gradients.stride(1)


def forward(logits: Any, labels: Any, options: Options) -> tuple[Any, Any, Any]:
    """Losses, weights of rows, and [2, rows] for backward."""
    rows, kept = _rows(logits, labels, options)
    results = _results(rows, logits)
    if logits.shape[0] != 0:
        _call("forward", rows, logits.device)
        _call("losses", rows, logits.device)
    del kept
    # Of their own: who keeps the losses keeps no more than them.
    return results[4].clone(), results[5].clone(), results[:2].clone()


def backward(loss_gradients: Any, logits: Any, labels: Any, statistics: Any, options: Options, gradients: Any) -> None:
    """`loss_gradients`: [rows], float32, of any stride."""
    if logits.shape[0] == 0:
        return
    rows, kept = _rows(logits, labels, options)
    rows.largest, rows.others = statistics[0].data_ptr(), statistics[1].data_ptr()
    rows.loss_gradients, rows.loss_gradient_stride = loss_gradients.data_ptr(), loss_gradients.stride(0)
    _writes(rows, gradients)
    _call("backward", rows, logits.device)
    del kept


def both(logits: Any, labels: Any, options: Options, divisor: Any) -> tuple[Any, Any]:
    """Losses and weights of rows; the logits become their gradient, over `divisor` (float32) where it is given."""
    rows, kept = _rows(logits, labels, options)
    results = _results(rows, logits)
    if divisor is not None:
        rows.divisor = divisor.data_ptr()
    _writes(rows, logits)
    if logits.shape[0] != 0:
        _call("both", rows, logits.device)
    del kept
    return results[4], results[5]
