"""patch_loss: a model's loss without its logits, or without their copy in float32.

    patch_loss(model)
      model's output layer     gives logits that nobody has made yet (nn/_lazy_logits.py), while the model is trained
      the model's own loss     asks for their cross entropy, which one of these computes:

        gapless   kernels/: as many pieces as the memory at hand needs
        torch     torch.nn.functional.linear_cross_entropy (from 2.13)
        liger     liger_kernel's fused loss
        cut       cut_cross_entropy's

Nothing of the model's code is replaced, so it works with models and trainers that nobody here knows.
"""
from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch

from ._library import GaplessError
from .nn import _kernels, functional
from .nn._lazy_logits import LazyLogits, Source

IMPLEMENTATIONS = ("gapless", "torch", "liger", "cut")


def _gapless(source: Source, target: Any, **options: Any) -> Any:
    soft_cap = source.soft_cap or 0.0
    scale = 1.0 if soft_cap else source.scale
    hidden, weight, bias = source.cast()
    if weight is None:
        return functional.cross_entropy(hidden if scale == 1.0 else hidden * scale, target, soft_cap=soft_cap, **options)
    if scale != 1.0:
        hidden, bias = hidden * scale, None if bias is None else bias * scale
    return functional.linear_cross_entropy(hidden, weight, target, linear_bias=bias, soft_cap=soft_cap, **options)


def _torch(source: Source, target: Any, **options: Any) -> Any:
    if source.soft_cap != 0.0 or source.weight is None or source.scale != 1.0:
        return _gapless(source, target, **options)
    hidden, weight, bias = source.cast()
    return torch.nn.functional.linear_cross_entropy(hidden, weight, target, linear_bias=bias,
                                                    options=torch.nn.LinearCrossEntropyOptions(), **options)


def _liger(source: Source, target: Any, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
           label_smoothing: float = 0.0) -> Any:
    from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss
    if source.weight is None or source.scale != 1.0 and not source.soft_cap:
        return _gapless(source, target, weight=weight, ignore_index=ignore_index, reduction=reduction,
                        label_smoothing=label_smoothing)
    hidden, linear_weight, bias = source.cast()
    loss = LigerFusedLinearCrossEntropyLoss(
        ce_weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
        softcap=source.soft_cap or None)
    return loss(linear_weight, hidden, target, bias)


def _cut(source: Source, target: Any, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
         label_smoothing: float = 0.0) -> Any:
    from cut_cross_entropy import linear_cross_entropy
    needs_more = weight is not None or label_smoothing != 0 or source.bias is not None
    if needs_more or source.weight is None or source.scale != 1.0 and not source.soft_cap:
        return _gapless(source, target, weight=weight, ignore_index=ignore_index, reduction=reduction,
                        label_smoothing=label_smoothing)
    hidden, linear_weight, _ = source.cast()
    return linear_cross_entropy(hidden, linear_weight, target, ignore_index=ignore_index, softcap=source.soft_cap or None,
                                reduction=reduction)


_LOSSES: dict[str, Callable[..., Any]] = {"gapless": _gapless, "torch": _torch, "liger": _liger, "cut": _cut}


def _why_not(implementation: str, device: Any) -> str:
    """Empty where it can be used on the device."""
    if implementation == "gapless":
        return _kernels.why_not(device) if device.type == "cuda" else ""
    if implementation == "torch":
        return "" if hasattr(torch.nn, "LinearCrossEntropyOptions") else "torch has it from 2.13 on"
    module = {"liger": "liger_kernel", "cut": "cut_cross_entropy"}[implementation]
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    return "" if device.type == "cuda" else "it is for CUDA"


def _choose(wanted: str, device: Any) -> tuple[str, str]:
    """Which, and why. Raises GaplessError where one that was asked for cannot be used."""
    if wanted != "auto":
        if wanted not in IMPLEMENTATIONS:
            raise GaplessError(f"implementation: {wanted!r}: expected auto, {', '.join(IMPLEMENTATIONS)}")
        if reason := _why_not(wanted, device):
            raise GaplessError(f"implementation: {wanted}: {reason}")
        return wanted, "it was asked for"
    if not (reason := _why_not("gapless", device)):
        return "gapless", "it takes as many pieces as the memory at hand needs"
    for other in ("torch", "liger", "cut"):
        if not _why_not(other, device):
            return other, reason
    return "gapless", f"with torch's operators: {reason}"


def _output_layers(model: Any) -> list[Any]:
    """The layers that give logits, without what is wrapped around them. Raises GaplessError where there is none."""
    found = getattr(model, "get_output_embeddings", lambda: None)()
    if found is None:
        named = [module for name, module in model.named_modules() if name.split(".")[-1] in ("lm_head", "output_projection")]
        found = named[0] if named else None
    if found is None:
        raise GaplessError(f"{type(model).__name__} has no output layer that gives logits: no get_output_embeddings(), and no "
                           "lm_head")
    # peft's modules_to_save has a copy that is trained beside the original; a Sequential casts what its layer gives.
    inner = [module for module in found.modules() if isinstance(module, torch.nn.Linear)]
    layers = [module for module in inner if module.out_features == max(layer.out_features for layer in inner)]
    if not layers:
        raise GaplessError(f"{type(model).__name__}'s output layer is a {type(found).__name__}, with no torch.nn.Linear in it")
    return layers


def _gives_weight(layer: Any) -> bool:
    """Whether the layer's weight is there, whole, after its forward pass; sharded ones are not."""
    weight = layer.weight
    return (type(weight) in (torch.nn.Parameter, torch.Tensor) and weight.is_floating_point()
            and weight.shape == (layer.out_features, layer.in_features)
            and not hasattr(weight, "ds_id") and not getattr(layer, "_is_fsdp_managed_module", False)
            and not layer._forward_hooks and not layer._forward_pre_hooks and not hasattr(layer, "base_layer"))


def _made_dtype(layer: Any, hidden: Any) -> Any:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _unpatched(of: type[Any]) -> Any:
    return object.__new__(of)


def _lazy_class(of: type[Any], loss: Callable[..., Any]) -> type[Any]:
    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        hidden = arguments[0] if len(arguments) == 1 and not named else None
        if (not self.training or not torch.is_grad_enabled() or torch.compiler.is_compiling() or hidden is None
                or getattr(self, "_is_replica", False) or type(hidden) is not torch.Tensor):
            return of.forward(self, *arguments, **named)
        if of.forward is torch.nn.Linear.forward and _gives_weight(self):
            dtype = _made_dtype(self, hidden)
            return LazyLogits(Source(hidden, self.weight, self.bias, self.out_features, dtype, dtype, loss))
        logits = of.forward(self, hidden)
        if type(logits) is not torch.Tensor:
            return logits
        return LazyLogits(Source(logits, None, None, logits.shape[-1], logits.dtype, logits.dtype, loss))

    def reduce(self: Any, protocol: Any) -> Any:
        return _unpatched, (of,), self.__dict__

    # Saved or copied to another process, it is a layer like any.
    return type(of.__name__, (of,), {"forward": forward, "__reduce_ex__": reduce, "__module__": of.__module__,
                                     "_gapless_of": of})


@dataclasses.dataclass
class PatchedLoss:
    """What patch_loss did: which implementation, and why; undo() takes it back."""
    model: Any
    implementation: str
    why: str
    layers: list[Any]

    def undo(self) -> None:
        """The model as it was; a second time it does nothing."""
        for layer in self.layers:
            layer.__class__ = type(layer)._gapless_of
        self.layers = []

    def __str__(self) -> str:
        return f"the loss of {type(self.model).__name__} is computed by {self.implementation}: {self.why}"


def patch_loss(model: Any, implementation: str = "auto", *, quiet: bool = False) -> PatchedLoss:
    """Lets a model's loss be computed without all of its logits, or without their copy in float32.

    For models of transformers (causal, sequence to sequence), also under peft, accelerate and Trainer, and for any
    whose output layer get_output_embeddings() or the name lm_head tells. `implementation`: "gapless", "torch" (from
    2.13), "liger" or "cut", where they are installed; "auto" takes gapless's where its kernels run, else the first of
    the others that can be used, and says which. Results are those of torch.nn.functional.cross_entropy in float32.

    While a model is not trained (eval(), no_grad()), under torch.compile and in DataParallel's replicas it is as ever;
    where its weights are sharded (FSDP, ZeRO-3) or its output layer is no plain torch.nn.Linear, the logits are made,
    and only their copies are not. Returns what undoes it; raises GaplessError where there is no output layer.
    """
    layers = _output_layers(model)
    if any(hasattr(type(layer), "_gapless_of") for layer in layers):
        raise GaplessError("the model's loss is patched already: undo() that first")
    chosen, why = _choose(implementation, layers[0].weight.device)
    for layer in layers:
        layer.__class__ = _lazy_class(type(layer), _LOSSES[chosen])
    patched = PatchedLoss(model, chosen, why, layers)
    if not quiet:
        print(f"gapless: {patched}", file=sys.stderr)
    return patched
