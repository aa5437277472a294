"""What `gapless advise` has a program do otherwise, to see what it takes then; watch_torch.py's names are here.

    SIMGPU_CHANGE=checkpointing,fused,loss
        checkpointing   as model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
                        before the first forward pass in training, for models that have it (transformers)
        fused           as AdamW(..., fused=True), before an optimizer of torch.optim has made its first step
        loss            as gapless.patch_loss(model), before the first forward pass in training, for models whose output
                        layer it finds

state["changed"] says what was changed, so that a run in which nothing could be is not taken for one that was.
"""
import os
import sys

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

MOST_MODULES = 1000  # that are looked at

_looked = [0]
_looked_for_loss = [0]
_wanted = [word for word in os.environ.get("SIMGPU_CHANGE", "").split(",") if word]
_changed = state["changed"] = []


def _note(what) -> None:
    if what not in _changed:
        _changed.append(what)


def _enable(module) -> bool:
    if not getattr(module, "supports_gradient_checkpointing", False):
        return False
    enable = getattr(module, "gradient_checkpointing_enable", None)
    if not callable(enable) or getattr(module, "is_gradient_checkpointing", False):
        return False
    enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if hasattr(getattr(module, "config", None), "use_cache"):
        module.config.use_cache = False
    return bool(getattr(module, "is_gradient_checkpointing", False))


@_quietly
def _checkpoint(module, _arguments):
    """The first module that runs in training and has what can be switched in it is the model, or what is around it."""
    if not module.training or not torch.is_grad_enabled():
        return
    _looked[0] += 1
    if any([_enable(inner) for inner in module.modules()]):
        _note("checkpointing")
    if _changed or _looked[0] >= MOST_MODULES:
        _hook.remove()


def _package():
    """gapless: the program's own, else the one that this file comes with (gapless/lib/simgpu/python, or a build tree's)."""
    try:
        import gapless
    except ImportError:
        parts = os.path.abspath(__file__).split(os.sep)
        folders = [os.sep.join(parts[:-5]), os.sep.join([*parts[:-6], "torch_plugin", "python"])]
        sys.path += [folder for folder in folders if os.path.exists(os.path.join(folder, "gapless", "_patch_loss.py"))]
        import gapless
    return gapless


@_quietly
def _patch_loss(module, _arguments):
    if not module.training or not torch.is_grad_enabled():
        return
    _looked_for_loss[0] += 1
    for inner in module.modules():
        if "loss" in _changed:
            break
        if callable(getattr(inner, "get_output_embeddings", None)) or hasattr(inner, "lm_head"):
            gapless = _package()
            try:
                gapless.patch_loss(inner, quiet=True)
                _note("loss")
            except gapless.GaplessError:
                pass
    if "loss" in _changed or _looked_for_loss[0] >= MOST_MODULES:
        _loss_hook.remove()


@_quietly
def _fuse(optimizer, _arguments, _words):
    if optimizer.state or not type(optimizer).__module__.startswith("torch.optim"):
        return
    for group in getattr(optimizer, "param_groups", ()):
        plain = all(parameter.is_cuda and torch.is_floating_point(parameter) for parameter in group["params"])
        if "fused" in group and plain and not group.get("capturable") and not group.get("differentiable"):
            group["fused"], group["foreach"] = True, False
            _note("fused")


if "checkpointing" in _wanted:
    _hook = register_module_forward_pre_hook(_checkpoint)
if "loss" in _wanted:
    _loss_hook = register_module_forward_pre_hook(_patch_loss)
if "fused" in _wanted:
    register_optimizer_step_pre_hook(_fuse)
