"""CrossEntropyLoss and LinearCrossEntropyLoss, as torch.nn has them."""
from __future__ import annotations

from typing import Any

import torch

from . import functional


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):  # type: ignore[misc]
    """torch.nn.CrossEntropyLoss with gapless.nn.functional.cross_entropy, z_loss and soft_cap."""

    def __init__(self, *arguments: Any, z_loss: float = 0.0, soft_cap: float = 0.0, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.z_loss = z_loss
        self.soft_cap = soft_cap

    def forward(self, input: Any, target: Any) -> Any:
        return functional.cross_entropy(input, target, self.weight, self.ignore_index, self.reduction,
                                        self.label_smoothing, z_loss=self.z_loss, soft_cap=self.soft_cap)


class LinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """A linear layer and its loss, with gapless.nn.functional.linear_cross_entropy.

    Shapes: input (..., in_features), target (...).
    """

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = False, device: Any = None, dtype: Any = None,
                 weight: Any = None, reduction: str = "mean", ignore_index: int | None = None,
                 label_smoothing: float = 0.0, z_loss: float = 0.0, soft_cap: float = 0.0,
                 accumulate_in_float32: bool = False, pieces: int | None = None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.soft_cap = soft_cap
        self.accumulate_in_float32 = accumulate_in_float32
        self.pieces = pieces

    def forward(self, input: Any, target: Any) -> Any:
        return functional.linear_cross_entropy(
            input, self.linear.weight, target, linear_bias=self.linear.bias, weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            z_loss=self.z_loss, soft_cap=self.soft_cap, accumulate_in_float32=self.accumulate_in_float32,
            pieces=self.pieces)
