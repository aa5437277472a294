"""Losses over large vocabularies in little memory.

    from gapless.nn import functional as F
    loss = F.cross_entropy(logits, labels)                    no float32 copy of the logits
    loss = F.linear_cross_entropy(hidden, weight, labels)     never all of the logits

    gapless.patch_loss(model)                                 either of them in a model of transformers

Signatures and results are those of torch.nn.functional, but for one: of half precision the loss is float32.
"""
from __future__ import annotations

from . import functional
from .modules import CrossEntropyLoss, LinearCrossEntropyLoss

__all__ = ["CrossEntropyLoss", "LinearCrossEntropyLoss", "functional"]
