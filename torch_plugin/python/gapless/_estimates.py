"""What a model's training takes, and the largest batch that fits: by dry runs on simulated GPUs, not by formulas.

    estimate_memory_usage(model, 32)          gapless dryrun -- a step of the model with 32 samples
    suggest_batch_size(model, ...)            gapless search --vary batch=1:2048 -- the same with {batch}
"""
from __future__ import annotations

import inspect
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from . import _dry_step, _dryrun
from ._gpu_memory import GIB, _from_nvml, _from_torch
from ._library import GaplessError, import_torch

ROOMY = "4096GiB"  # more than anything takes: nothing is refused, and nothing given back early


class _LanguageInputs:
    """Batches of token ids, as a data loader would bring them: ids, and labels where the model takes them."""

    def __init__(self, length: int, vocabulary: int, labels: int | None, decoder: bool):
        self.length, self.vocabulary, self.labels, self.decoder = length, vocabulary, labels, decoder

    def __call__(self, batch: int) -> dict[str, Any]:
        import torch
        made = {"input_ids": torch.randint(0, self.vocabulary, (batch, self.length))}
        if self.labels is not None:
            made["labels"] = torch.randint(0, self.labels, (batch,)) if self.labels else made["input_ids"].clone()
        elif self.decoder:
            made["decoder_input_ids"] = made["input_ids"].clone()
        return made


class _ImageInputs:
    def __init__(self, channels: int, height: int, width: int, labels: int | None):
        self.shape, self.labels = (channels, height, width), labels

    def __call__(self, batch: int) -> dict[str, Any]:
        import torch
        made = {"pixel_values": torch.randn(batch, *self.shape)}
        if self.labels is not None:
            made["labels"] = torch.randint(0, self.labels, (batch,))
        return made


def _inputs_of(model: Any, length: int | None) -> Callable[[int], dict[str, Any]]:
    """For models of transformers, by their configuration. Raises GaplessError where it is not told there."""
    config: Any = getattr(model, "config", None)
    main_input = getattr(model, "main_input_name", None)
    accepted = inspect.signature(model.forward).parameters
    kind = type(model).__name__
    classes = getattr(config, "num_labels", 2) or 2
    classifies = kind.endswith(("ForSequenceClassification", "ForImageClassification"))
    if main_input == "input_ids" and getattr(config, "vocab_size", None):
        longest = next((getattr(config, name) for name in ("max_position_embeddings", "n_positions", "max_length")
                        if isinstance(getattr(config, name, None), int)), 512)
        if length is None and longest > 4096:
            raise GaplessError(f"{kind} takes up to {longest} tokens: sequence_length=... says how many are meant")
        generates = kind.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM"))
        labels = classes if classifies else 0 if generates else None
        decoder = bool(getattr(config, "is_encoder_decoder", False))
        return _LanguageInputs(length or longest, config.vocab_size, labels if "labels" in accepted else None, decoder)
    if main_input == "pixel_values" and getattr(config, "image_size", None):
        image = config.image_size if isinstance(config.image_size, (list, tuple)) else (config.image_size,) * 2
        return _ImageInputs(getattr(config, "num_channels", 3), image[0], image[1],
                            classes if classifies and "labels" in accepted else None)
    raise GaplessError(
        f"nobody knows what {kind} takes: inputs=... is a batch of it (a tensor, a tuple or a dictionary), or a function "
        'of the batch size that makes one. (method="closed form" asks for parameters, gradients and optimiser alone.)')


def _allocator_here() -> str:
    """What serves this process's GPU memory, or would."""
    from . import is_installed
    if is_installed() or os.environ.get("GAPLESS") == "1" or "libgapless_preload" in os.environ.get("LD_PRELOAD", ""):
        return "gapless"
    conf = os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    if "backend:cudaMallocAsync" in conf:
        return "async"
    return "expandable" if "expandable_segments:True" in conf else "native"


def _work(model: Any, inputs: Any, sequence_length: int | None, loss: Any, optimizer: Any, precision: str, training: bool,
          steps: int) -> dict[str, Any]:
    import_torch()
    if precision not in ("fp32", "bf16", "fp16"):
        raise GaplessError(f'precision "{precision}": expected fp32, bf16 or fp16 (by autocast)')
    if steps < 1:
        raise GaplessError(f"{steps} steps: expected at least one")
    return {"model": model, "inputs": inputs if inputs is not None else _inputs_of(model, sequence_length), "loss": loss,
            "optimizer": optimizer, "precision": precision, "training": training, "steps": steps}


def _closed_form(model: Any, num_gpus: int, optimizer: Any) -> dict[str, Any]:
    parameters = {id(p): p for p in model.parameters()}.values()
    trained = [p for p in parameters if p.requires_grad]
    states = {"sgd": 0, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2, "nadam": 2, "radam": 2}
    if not isinstance(optimizer, str) or optimizer.lower() not in states:
        raise GaplessError(f"a closed form is known of {', '.join(states)}, not of {optimizer!r}")
    weights = sum(p.numel() * p.element_size() for p in parameters)
    gradients = sum(p.numel() * p.element_size() for p in trained)
    state = states[optimizer.lower()] * gradients
    total = (weights + gradients + state) / GIB
    return {"method": "closed form", "is_exact": False,
            "note": "parameters, gradients and optimiser by their sizes; activations, copies, fragmentation and the CUDA "
                    "context are not in it, so that a run takes more",
            "model_params": weights / GIB, "gradient_memory": gradients / GIB, "optimizer_memory": state / GIB,
            "activation_memory": None, "total_per_gpu": total, "total_all_gpus": total * num_gpus}


def _gpus(num_gpus: int) -> int:
    if num_gpus < 1:
        raise GaplessError(f"{num_gpus} GPUs: expected at least one")
    return num_gpus


def estimate_memory_usage(
        model: Any, batch_size: int, num_gpus: int = 1, *, inputs: Any = None, sequence_length: int | None = None,
        loss: Callable[[Any, Any], Any] | None = None, optimizer: Any = "AdamW", precision: str = "fp32",
        training: bool = True, steps: int = 2, gpu: str | None = None, allocator: str | None = None,
        method: str = "dry run", timeout: float = 600) -> dict[str, Any]:
    """What training takes of each GPU, in GiB: measured, by a dry run of steps on simulated GPUs in a child process.
    No GPU is needed, and none is touched. The CUDA build of torch is.

    batch_size: samples in a step, of all GPUs together, which share them (DataParallel in one process, as
    torch.nn.DataParallel has it). inputs: a batch (tensor, tuple or dictionary; its samples are repeated or left out),
    or a function of the number of samples; for models of transformers it is made by their configuration, with
    `sequence_length` tokens. loss: of the model's output and the inputs; else the output's own loss, or the mean of its
    first floats. optimizer: a name in torch.optim, or a function of the parameters. precision: "fp32", or "bf16" and
    "fp16" by autocast. training=False: forward alone. The second step is the one with the optimiser's state.
    gpu: "16GiB", "RTX 4090": whether it fits there; without it there is room for all. allocator: "native",
    "expandable", "gapless"; else the one that serves this process.
    method="closed form": no run, but sizes of what is known beforehand; it is marked as such, and a lower bound.

    Returns "total_per_gpu" and "total_all_gpus" (in use at the peak, with the context; of the fullest GPU, and of all),
    "allocated_per_gpu", "reserved_per_gpu", "model_params", "gradient_memory", "optimizer_memory", "activation_memory"
    (what is allocated at the peak beyond those three and the inputs), "input_memory": GiB; "method", "is_exact",
    "allocator", "fits" (None where no GPU was named), "verdict", "reason", "gpus" (one for each: bytes).
    Raises GaplessError where the model cannot be run so, with what it said.
    """
    num_gpus = _gpus(num_gpus)
    if method == "closed form":
        return _closed_form(model, num_gpus, optimizer)
    if method != "dry run":
        raise GaplessError(f'method "{method}": expected "dry run" or "closed form"')
    if batch_size < num_gpus or batch_size % num_gpus:
        raise GaplessError(f"a batch of {batch_size} cannot be shared evenly by {num_gpus} GPUs")
    work = _work(model, inputs, sequence_length, loss, optimizer, precision, training, steps)
    allocator = allocator or _allocator_here()
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        path, sizes = pathlib.Path(folder, "work.pickle"), pathlib.Path(folder, "sizes.json")
        _dry_step.write(path, work)
        done = _dryrun.run("dryrun", ["--estimates", "--gpu", ",".join([gpu or ROOMY] * num_gpus), "--allocator", allocator],
                           _dry_step.program(path, str(batch_size // num_gpus), str(sizes)), timeout=timeout,
                           environment={"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(num_gpus)))})
        rows = done.found or []
        told = _read_json(sizes)
    if not rows or (told is None and not any(row["fits"] is False for row in rows)):
        raise GaplessError(f"the model cannot be run:\n{_dryrun.last_lines(done.output)}")
    return _estimate(rows, told, num_gpus, allocator, gpu)


def _read_json(path: pathlib.Path) -> dict[str, Any] | None:
    import json
    return dict(json.loads(path.read_text())) if path.exists() else None


def _estimate(rows: list[dict[str, Any]], sizes: dict[str, Any] | None, num_gpus: int, allocator: str, gpu: str | None) -> dict[str, Any]:
    fullest = max(rows, key=lambda row: int(row["peak_used_bytes"]))
    allocated = max(int(row["peak_allocated_bytes"] or 0) for row in rows)
    held = {name: (sizes or {}).get(name) for name in ("parameters", "gradients", "optimizer", "inputs", "buffers")}
    known = sum(value for value in held.values() if value)

    def gib(count: int | None) -> float | None:
        return None if count is None else count / GIB

    guess = next(filter(None, map(_dryrun.estimate, rows)), None)  # of a run that ended well
    fits = all(row["fits"] is True and not row["caught_out_of_memory"] for row in rows)
    return {"method": "dry run", "is_exact": guess is None, "allocator": allocator,
            "fits": (None if fits and guess else fits) if gpu else None,
            "verdict": "not known" if fits and guess else fullest["verdict"],
            "reason": guess if fits and guess else fullest["reason"],
            "total_per_gpu": fullest["peak_used_bytes"] / GIB,
            "total_all_gpus": sum(row["peak_used_bytes"] for row in rows) / GIB,
            "allocated_per_gpu": allocated / GIB,
            "reserved_per_gpu": max(int(row["peak_reserved_bytes"] or 0) for row in rows) / GIB,
            "model_params": gib(held["parameters"]), "gradient_memory": gib(held["gradients"]),
            "optimizer_memory": gib(held["optimizer"]), "input_memory": gib(held["inputs"]),
            "activation_memory": gib(max(0, allocated - known)) if sizes else None,
            "gpus": [{name: row[name] for name in ("device", "total_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
                                                   "peak_used_bytes")} for row in rows][:num_gpus]}


def suggest_batch_size(
        model: Any, num_gpus: int | None = None, target_memory_gb: float | None = None, *, inputs: Any = None,
        sequence_length: int | None = None, loss: Callable[[Any, Any], Any] | None = None, optimizer: Any = "AdamW",
        precision: str = "fp32", training: bool = True, steps: int = 2, allocator: str | None = None,
        max_batch_size: int = 2048, timeout: float = 600, estimates: bool = False) -> int:
    """The largest batch for each GPU with which a step fits on GPUs of so many GiB: tried, and the next one was
    refused. By `gapless search`, without a GPU.

    num_gpus: by DataParallel; else those that this process sees, or one. target_memory_gb: the capacity of each, of
    which a CUDA context takes its part; else the smallest of those it sees. max_batch_size: no larger one is tried.
    estimates: sizes that follow from numbers nobody knows (a router's loads) are taken as they come, with a warning;
    else what has such is not known.
    The rest as for estimate_memory_usage(). It is about steps of one size: where lengths differ, inputs are to be
    the longest. Raises GaplessError where not even one sample fits, with the reason, or the model cannot be run.
    """
    here = _from_nvml() or _from_torch()
    num_gpus = _gpus(num_gpus if num_gpus is not None else max(1, len(here)))
    if target_memory_gb is None:
        if not here:
            raise GaplessError("there is no GPU here: target_memory_gb=... says how much memory one is to have")
        target_memory_gb = min(gpu["total_bytes"] for gpu in here) / GIB
    if max_batch_size < 1:
        raise GaplessError(f"max_batch_size {max_batch_size}: expected at least one")
    work = _work(model, inputs, sequence_length, loss, optimizer, precision, training, steps)
    allocator = allocator or _allocator_here()
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        path = pathlib.Path(folder, "work.pickle")
        _dry_step.write(path, work)
        # In whole MiB, and no more than was said.
        gpu = f"{int(target_memory_gb * 1024)}MiB"
        done = _dryrun.run(
            "search", ["--gpu", ",".join([gpu] * num_gpus), "--allocator", allocator, "--vary", f"batch=1:{max_batch_size}",
                       "--timeout", str(timeout), *(["--estimates"] if estimates else [])],
            [word.replace("{", "{{").replace("}", "}}") if word != "{batch}" else word for word in _dry_step.program(path, "{batch}")],
            environment={"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(num_gpus)))})
    if done.found is None:
        raise GaplessError(f"the model cannot be run:\n{_dryrun.last_lines(done.output)}")
    answer = done.found["allocators"][allocator]
    for warning in answer["warnings"]:
        warnings.warn(f"suggest_batch_size: {warning}", stacklevel=2)
    if answer["batch"] is None:
        raise GaplessError(f"not one sample fits on {gpu}: {answer['reason'] or 'it is not known why'}")
    return int(answer["batch"])


def get_optimal_batch_size(num_gpus: int | None = None, base_batch_size: int = 2048, min_batch_size: int = 1) -> int:
    """Each GPU's part of a batch of base_batch_size: so that the batch as a whole, and with it what is learnt, is the
    same on any number of GPUs. (Whether that fits is another question: suggest_batch_size() answers it.)

    num_gpus: else those that this process sees, or one. Where it does not divide the batch, or the part would be
    less than min_batch_size, the whole is another one, which is warned of.
    """
    if num_gpus is None:
        num_gpus = max(1, len(_from_nvml() or _from_torch()))
    num_gpus = _gpus(num_gpus)
    part = max(min_batch_size, base_batch_size // num_gpus, 1)
    if part * num_gpus != base_batch_size:
        warnings.warn(f"{num_gpus} GPUs with {part} each are a batch of {part * num_gpus}, not of {base_batch_size}", stacklevel=2)
    return part
