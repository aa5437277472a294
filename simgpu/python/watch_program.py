"""What `gapless advise` wants to know of a program, beside where its memory went; watch_torch.py's names are here.

    state["program"]    models and their largest parameters (name, shape, dtype, trained or not), optimizers and their
                        states, what wraps models (DataParallel, DDP, FSDP, DeepSpeed), whether anything is computed
                        again (checkpointing), autocast, what losses took, the options that the program knows

All of it is read from objects that are there; where there are none (a program without torch.nn) nothing is said. No
reference to a tensor is kept.
"""
import argparse
import os
import sys
import threading

import torch

MOST_PARAMETERS = 40
MOST_OPTIONS = 400
LARGE = 1 << 20  # bytes of a parameter that is told by itself

_program = {"models": [], "parameters": {"groups": [], "largest": [], "lora_rank": None}, "optimizers": [], "wrappers": [],
            "checkpointed": False, "can_checkpoint": [], "autocast": None, "losses": [], "failed_operator": None,
            "embedded": None, "arguments": []}
state["program"] = _program

# --- models -------------------------------------------------------------------------------------------------


def _name(dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _numbers(parameter) -> int:
    """How many it stands for: 4-bit ones are packed, sharded ones are in part elsewhere."""
    for holder, name in ((getattr(parameter, "quant_state", None), "shape"), (parameter, "ds_shape")):
        shape = getattr(holder, name, None)
        if isinstance(shape, torch.Size):
            return shape.numel()
    return parameter.numel()


def _parameters(roots) -> dict:
    groups, large, seen, rank = {}, [], set(), None
    for root in roots:
        for path, module in root.named_modules(remove_duplicate=True):
            for name, parameter in (module.__dict__.get("_parameters") or {}).items():
                if parameter is None or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                local = getattr(parameter, "_local_tensor", parameter)
                size = local.numel() * local.element_size()
                kind = {"dtype": _name(parameter.dtype), "trained": parameter.requires_grad,
                        "device": parameter.device.type, "module": type(module).__name__}
                group = groups.setdefault(tuple(kind.values()), {**kind, "tensors": 0, "numbers": 0, "bytes": 0})
                group["tensors"] += 1
                group["numbers"] += _numbers(parameter)
                group["bytes"] += size
                if "lora_A" in f"{path}.{name}" and parameter.dim() == 2:
                    rank = max(rank or 0, min(parameter.shape))
                if size >= LARGE:
                    large.append((size, f"{path}.{name}" if path else name, parameter, kind))
    large.sort(key=lambda one: one[0], reverse=True)
    largest = [{"name": name, **kind, "shape": list(parameter.shape), "numbers": _numbers(parameter), "bytes": size,
                "address": getattr(parameter, "_local_tensor", parameter).data_ptr() if parameter.is_cuda else 0}
               for size, name, parameter, kind in large[:MOST_PARAMETERS]]
    return {"groups": list(groups.values()), "largest": largest, "lora_rank": rank}


def _roots(modules) -> list:
    """Those that are in no other."""
    inside = {id(child) for module in modules for child in (module.__dict__.get("_modules") or {}).values()}
    return [module for module in modules if id(module) not in inside and "_parameters" in module.__dict__]


def _wrapper(module) -> dict | None:
    names = {cls.__module__.partition(".")[0] + "." + cls.__name__ for cls in type(module).__mro__}
    if isinstance(module, torch.nn.DataParallel):
        devices = [int(device) for device in module.device_ids or []]
        return {"kind": "DataParallel", "gpus": devices, "gathers_on": getattr(module, "output_device", None)}
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return {"kind": "DDP", "gradients_in_buckets": bool(module.gradient_as_bucket_view)}
    if "torch.FullyShardedDataParallel" in names or "torch.FSDPModule" in names:
        return {"kind": "FSDP"}
    if "deepspeed.DeepSpeedEngine" in names:
        told = {"kind": "DeepSpeed", "stage": int(module.zero_optimization_stage())}
        for what in ("optimizer", "param"):
            offload = getattr(module, f"zero_offload_{what}", None)
            config = offload() if callable(offload) else None
            device = getattr(config, "device", None)
            told[f"offload_{what}"] = str(getattr(device, "value", device)) if device is not None else None
        return told
    return None


# --- optimizers ---------------------------------------------------------------------------------------------


def _optimizer(optimizer) -> dict:
    """Its states by device and dtype, in bytes; `numbers`: of the parameters that it steps."""
    groups = list(getattr(optimizer, "param_groups", ()))
    kept = getattr(optimizer, "state", {})
    parameters = {id(parameter): parameter for group in groups for parameter in group["params"]
                  if parameter.requires_grad or parameter in kept}  # it may have been given all that a model has
    states = {}
    for of_parameter in list(kept.values()):
        for value in of_parameter.values() if isinstance(of_parameter, dict) else ():
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                value = getattr(value, "_local_tensor", value)
                key = f"{value.device.type}:{_name(value.dtype)}"
                states[key] = states.get(key, 0) + value.numel() * value.element_size()
    first = groups[0] if groups else {}
    return {"class": type(optimizer).__name__, "library": type(optimizer).__module__.partition(".")[0],
            "numbers": sum(_numbers(parameter) for parameter in parameters.values()),
            "bytes": sum(p.numel() * p.element_size() for p in parameters.values()), "states": states,
            "fused": first.get("fused"), "foreach": first.get("foreach"),
            "on_gpu": any(parameter.is_cuda for parameter in parameters.values())}


# --- options ------------------------------------------------------------------------------------------------


def _plain(value):
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)[:80]


def _of_parser(parser, values) -> list:
    told = []
    for action in parser._actions[:MOST_OPTIONS]:
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            continue
        long = [name for name in action.option_strings if name.startswith("--")] or list(action.option_strings)
        told.append({"option": long[0], "options": list(action.option_strings), "takes_value": action.nargs != 0,
                     "sets": _plain(action.const) if action.nargs == 0 else None,
                     "choices": [_plain(choice) for choice in list(action.choices)[:20]] if action.choices else None,
                     "value": _plain(getattr(values, action.dest, action.default))})
    return told


def _arguments() -> list:
    """Of the parsers that are still there, with the values that were parsed: the last that has them."""
    parsers, spaces = _alive(argparse.ArgumentParser, argparse.Namespace)
    told = []
    for parser in parsers:
        if len(parser._actions) < 2:
            continue
        wanted = {action.dest for action in parser._actions if action.option_strings and action.dest != "help"}
        space = next((space for space in reversed(spaces) if wanted <= set(vars(space))), None)
        if space is not None:
            told += [one for one in _of_parser(parser, space) if one["option"] not in {o["option"] for o in told}]
    return told


def _parse(self, *arguments, otherwise=argparse.ArgumentParser.parse_known_args, **words):
    values, rest = otherwise(self, *arguments, **words)
    _parsed(self, values)
    return values, rest


@_quietly
def _parsed(parser, values):
    _program["arguments"] = _of_parser(parser, values) or _program["arguments"]


# --- as the program runs ------------------------------------------------------------------------------------

_copying = threading.local()
_largest_loss = {}  # by shape and dtype


@_quietly
def _look(modules, optimizers):
    """What is there now, where that is no less than what was there before: at its end a program has let go."""
    roots = _roots(modules)
    parameters = _parameters(roots)
    size = sum(group["bytes"] for group in parameters["groups"])
    if size >= sum(group["bytes"] for group in _program["parameters"]["groups"]):
        models = [(root, sum(map(_numbers, root.parameters()))) for root in roots]
        _program["models"] = [{"class": type(root).__name__, "numbers": numbers}
                              for root, numbers in sorted(models, key=lambda one: -one[1])[:8] if numbers]
        _program["parameters"] = parameters
        _program["wrappers"] = [told for told in map(_wrapper, modules) if told]
        _program["can_checkpoint"] = sorted({type(module).__name__ for module in modules if _can_checkpoint(module)})
    # accelerate's and the like are around another.
    stepped = [_optimizer(one) for one in optimizers
               if not isinstance(one.__dict__.get("optimizer"), torch.optim.Optimizer)]
    states = sum(size for one in stepped for size in one["states"].values())
    if states >= sum(size for one in _program["optimizers"] for size in one["states"].values()) and stepped:
        _program["optimizers"] = stepped
    if not _program["arguments"]:
        _program["arguments"] = _arguments()
    _program["torch"] = torch.__version__
    _program["world"] = int(os.environ.get("WORLD_SIZE") or 1)
    _program["libraries"] = sorted(name for name in ("accelerate", "bitsandbytes", "deepspeed", "liger_kernel",
                                                     "lightning", "peft", "transformers", "trl") if name in sys.modules)


def _can_checkpoint(module) -> bool:
    return (callable(getattr(type(module), "gradient_checkpointing_enable", None))
            and bool(getattr(module, "supports_gradient_checkpointing", False)))


def _place(frames, _at):
    """A place that asks for memory for the first time."""
    if not _program["checkpointed"]:
        _program["checkpointed"] = any(frame.f_code.co_filename.endswith(
            (os.path.join("utils", "checkpoint.py"), os.path.join("activation_checkpointing", "checkpointing.py")))
            for frame in frames)
    if _program["autocast"] is None and torch.is_autocast_enabled("cuda"):
        _program["autocast"] = _name(torch.get_autocast_dtype("cuda"))


def _loss(operator, tensor):
    if operator is None:
        _copying.what = None
        return
    _copying.what = {"operator": operator.__name__.partition(".")[0], "shape": list(tensor.shape),
                     "dtype": _name(tensor.dtype), "to": None}
    key = (tuple(tensor.shape), tensor.dtype)
    if key not in _largest_loss:
        _largest_loss[key] = {"operator": _copying.what["operator"], "shape": _copying.what["shape"],
                              "dtype": _copying.what["dtype"], "bytes": tensor.numel() * tensor.element_size()}
        largest = sorted(_largest_loss.items(), key=lambda one: -one[1]["bytes"])[:4]
        _largest_loss.clear()
        _largest_loss.update(largest)
        _program["losses"] = [told for _, told in largest]


def _copy(tensor, dtype):
    _copying.what = tensor if tensor is None else {
        "operator": "_to_copy", "shape": list(tensor.shape), "dtype": _name(tensor.dtype),
        "to": _name(dtype) if dtype is not None else None}


@_quietly
def _failed():
    _program["failed_operator"] = getattr(_copying, "what", None)


def _embed(keys, weight, indices, *arguments, otherwise=torch.ops.aten.embedding.default):
    told = _program["embedded"]
    if told is None or indices.numel() > told[0] * told[1]:
        if indices.dim() == 2:
            _program["embedded"] = list(indices.shape)
    return otherwise.redispatch(keys & _below, weight, indices, *arguments)


_below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.ADInplaceOrView)
_embeddings = torch.library.Library("aten", "IMPL")
_embeddings.impl("embedding", _embed, "ADInplaceOrView", with_keyset=True)
argparse.ArgumentParser.parse_known_args = _parse
at_look.append(_look)
at_place.append(_place)
at_loss.append(_loss)
at_copy.append(_copy)
at_out_of_memory.insert(0, _failed)
