"""A training step of somebody's model, in a process of its own on a simulated GPU.

    parent    model, inputs, loss, optimiser  --pickle-->  a file      weights as their shapes, without their numbers
    child     the file  -->  the same model, steps, sizes  --JSON-->   parent

The child is told how its parent was started, as multiprocessing's "spawn" does, so that what the parent's script
defines is found. Only torch and what the model itself needs are imported there.
"""
from __future__ import annotations

import contextlib
import io
import json
import multiprocessing.spawn
import os
import pathlib
import pickle
import sys
from collections.abc import Callable
from typing import Any

from ._library import GaplessError, import_torch

IN_STEP = "GAPLESS_IN_DRY_STEP"
_KEPT_BYTES = 64 << 10  # of floats: numbers that steer a program are few


# --- there ----------------------------------------------------------------------------------------------------

def _rebuilt(shape: tuple[int, ...], stride: tuple[int, ...], dtype: Any, device: str, requires_grad: bool,
             parameter: bool, data: bytes | None) -> Any:
    import torch
    if data is None:
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    else:
        numbers = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensor = numbers.reshape(shape).to(device)
    return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)


def _pickler_class() -> type[Any]:
    """cloudpickle's, where it is installed: it takes what `__main__` and notebooks define along."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    pickler: type[Any] = cloudpickle.CloudPickler
    return pickler


def _dump(what: Any, file: Any) -> None:
    torch = import_torch()
    base: Any = _pickler_class()

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
                return _rebuilt, _described(value)
            inherited = getattr(super(), "reducer_override", None)
            return inherited(value) if inherited else NotImplemented

    def _described(tensor: Any) -> tuple[Any, ...]:
        parameter = type(tensor) is torch.nn.Parameter
        leaf = tensor.detach()
        device = "cuda" if leaf.device.type == "cuda" else "cpu"
        floats = leaf.dtype.is_floating_point or leaf.dtype.is_complex
        kept = leaf.device.type != "meta" and (not floats or leaf.nbytes <= _KEPT_BYTES)
        data = None
        if kept:
            flat = leaf.cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        requires_grad = tensor.requires_grad and (tensor.is_leaf or parameter)
        return tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, device, requires_grad, parameter, data

    Pickler(file, protocol=5).dump(what)


def write(path: pathlib.Path, work: dict[str, Any]) -> None:
    """Raises GaplessError where something of it cannot be told to another process."""
    if os.environ.get(IN_STEP):
        raise GaplessError('the script asks for an estimate while it is imported for one: begin it under '
                           'if __name__ == "__main__": (or install cloudpickle)')
    with_main = _pickler_class() is pickle.Pickler
    preparation = multiprocessing.spawn.get_preparation_data("gapless")
    for name in ("authkey", *(() if with_main else ("init_main_from_name", "init_main_from_path"))):
        preparation.pop(name, None)
    buffer = io.BytesIO()
    try:
        _dump(work, buffer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise GaplessError(f"the model cannot be told to another process: {error} (cloudpickle, where it is installed, "
                           "takes more: pip install cloudpickle)") from error
    with path.open("wb") as file:
        pickle.dump(preparation, file)
        file.write(buffer.getvalue())


def program(path: pathlib.Path, batch: str, results: str = "") -> list[str]:
    """The words that run it, with so many samples for each GPU."""
    here = pathlib.Path(__file__).resolve().parents[1]
    code = f"import sys; sys.path.insert(0, {str(here)!r}); from gapless._dry_step import main; main()"
    return [sys.executable, "-c", code, str(path), batch, results]


# --- here -----------------------------------------------------------------------------------------------------

def _moved(value: Any, move: Callable[[Any], Any]) -> Any:
    """Every tensor in it replaced."""
    import torch
    if isinstance(value, torch.Tensor):
        return move(value)
    if isinstance(value, dict) or hasattr(value, "items"):
        return {key: _moved(part, move) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(*(_moved(part, move) for part in value)) if hasattr(value, "_fields") else \
            type(value)(_moved(part, move) for part in value)
    return value


def _resized(tensor: Any, batch: int) -> Any:
    """So many samples, of those that there are."""
    if tensor.dim() == 0:
        return tensor
    import torch
    return tensor[torch.arange(batch) % tensor.shape[0]]


def _first_float(value: Any) -> Any:
    import torch
    if isinstance(value, torch.Tensor):
        return value if value.dtype.is_floating_point else None
    parts = value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else ()
    return next((found for part in parts if (found := _first_float(part)) is not None), None)


def _loss_of(output: Any, inputs: Any, loss: Callable[[Any, Any], Any] | None) -> Any:
    if loss is not None:
        return loss(output, inputs)
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    found = own if own is not None else _first_float(output)
    if found is None:
        raise GaplessError(f"the model's output ({type(output).__name__}) holds no loss and no floats: loss=... makes one of it")
    return found.mean()  # of a loss on each GPU, too


def _nbytes(tensors: Any) -> int:
    return sum({tensor.data_ptr() or id(tensor): tensor.nbytes for tensor in tensors}.values())


def _tensors_in(value: Any) -> list[Any]:
    found: list[Any] = []

    def note(tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    _moved(value, note)
    return found


class _Step:
    """What is done again and again, and what it holds."""

    def __init__(self, work: dict[str, Any], batch: int):
        import torch
        self.work, self.batch = work, batch
        gpus = torch.cuda.device_count()
        self.model = work["model"].cuda()
        self.model.train(work["training"])
        self.runner = torch.nn.DataParallel(self.model) if gpus > 1 else self.model
        self.samples = batch * gpus
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = work["optimizer"](trained) if work["training"] and trained else None
        self.sizes = {"parameters": _nbytes(self.model.parameters()), "buffers": _nbytes(self.model.buffers()),
                      "gradients": 0, "optimizer": 0, "inputs": 0}

    def run(self) -> None:
        import torch
        work = self.work
        made = work["inputs"](self.samples) if callable(work["inputs"]) else \
            _moved(work["inputs"], lambda tensor: _resized(tensor, self.samples))
        inputs = _moved(made, lambda tensor: tensor.cuda())
        self.sizes["inputs"] = _nbytes(_tensors_in(inputs))
        dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[work["precision"]]
        with torch.autocast("cuda", dtype) if dtype else contextlib.nullcontext(), \
                contextlib.nullcontext() if work["training"] else torch.no_grad():
            output = self.runner(**inputs) if isinstance(inputs, dict) else \
                self.runner(*inputs) if isinstance(inputs, (tuple, list)) else self.runner(inputs)
            loss = _loss_of(output, inputs, work["loss"]) if self.optimizer else None
        if self.optimizer is None or loss is None:
            return
        del output
        loss.backward()
        self.sizes["gradients"] = _nbytes(p.grad for p in self.model.parameters() if p.grad is not None)
        self.optimizer.step()
        self.sizes["optimizer"] = _nbytes(
            tensor for state in self.optimizer.state.values() for tensor in _tensors_in(state) if tensor.is_cuda)
        self.optimizer.zero_grad()


def _optimizer(name: str, params: Any) -> Any:
    import torch
    classes = {key.lower(): value for key, value in vars(torch.optim).items() if isinstance(value, type)}
    if name.lower() not in classes:
        raise GaplessError(f'there is no optimiser "{name}" in torch.optim')
    return classes[name.lower()](params, lr=1e-4)


def main() -> None:
    """FILE BATCH RESULTS, of sys.argv."""
    path, batch, results = sys.argv[1:4]
    os.environ[IN_STEP] = "1"
    with open(path, "rb") as file:
        multiprocessing.spawn.prepare(pickle.load(file))
        work = pickle.load(file)
    if isinstance(work["optimizer"], str):
        name = work["optimizer"]
        work["optimizer"] = lambda params: _optimizer(name, params)
    step = _Step(work, int(batch))
    for _ in range(work["steps"]):
        step.run()
    if results:
        pathlib.Path(results).write_text(json.dumps(step.sizes))
