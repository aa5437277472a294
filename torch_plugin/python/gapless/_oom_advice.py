"""What to do when memory runs out: say why, free what can be freed, and go on with a smaller batch or not at all.

    @gapless.oom_advice(retry=True)
    def train(data, batch_size=32, accumulation_steps=1): ...     out of memory -> train(data, 16, 2) -> ...

The effective batch, batch_size x accumulation_steps, stays what it was.
"""
from __future__ import annotations

import functools
import gc
import inspect
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ._call_sites import size

_Function = TypeVar("_Function", bound=Callable[..., Any])
_TEXTS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether it is one of a GPU's, or was raised from one."""
    torch = sys.modules.get("torch")
    while error is not None:
        if torch is not None and isinstance(error, torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and "CUDA" in str(error) and any(text in str(error) for text in _TEXTS):
            return True
        error = error.__cause__
    return False


def _explanation() -> list[str]:
    """Sentences about the GPUs as they are now."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    from . import _call_sites, is_installed, report
    lines = []
    for index in range(torch.cuda.device_count()):
        allocated, reserved = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
        if reserved == 0:
            continue
        free, total = torch.cuda.mem_get_info(index)
        unused = reserved - allocated
        lines.append(f"GPU {index}: {size(total)} in all; PyTorch has {size(allocated)} in use and {size(unused)} reserved "
                     f"beside; {size(free)} are free; {size(max(0, total - free - reserved))} are others' and the context's")
        if is_installed():
            lines += [f"would help: {advice}" for advice in (report(index).failure or {}).get("advice", ())]
        elif unused > total // 20:
            lines.append(f"{size(unused)} are reserved in pieces that did not serve the request: gapless, "
                         "or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, would use them")
        lines += [f"live: {_call_sites.describe(site)}" for site in _call_sites.live(index)[:5]]
    return lines


def _free(error: BaseException) -> int:
    """Lets go of what the functions that failed still hold, and of what nobody uses. Bytes that it made free."""
    torch = sys.modules.get("torch")
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    gc.collect()
    if torch is None or not torch.cuda.is_initialized():
        return 0

    before = _reserved(torch)
    torch.cuda.empty_cache()
    return max(0, before - _reserved(torch))


def _reserved(torch: Any) -> int:
    return sum(int(torch.cuda.memory_reserved(index)) for index in range(torch.cuda.device_count()))


def _smaller(batch: int, accumulation: int) -> tuple[int, int] | None:
    """The largest smaller batch, at most half, that makes up the same whole; None below one."""
    whole = batch * accumulation
    return next(((part, whole // part) for part in range(batch // 2, 0, -1) if whole % part == 0), None)


class oom_advice:
    """As a context manager, and as a decorator: explains an out of memory of the GPU on standard error, and in the
    exception's notes (Python 3.11), frees what can be freed, and raises it again. Other exceptions pass.

        with gapless.oom_advice():              @gapless.oom_advice(retry=True)
            train_step()                        def train(batch_size=32, accumulation_steps=1): ...

    retry: of a decorated function, which is then called again with a batch of half the size or less and so many more
    steps of accumulation that the whole stays the same, until it succeeds or one sample does not fit. What it did
    before is not undone: it is to be called again from the start, or to know where it was.
    batch, accumulation: the names of those parameters of it.
    say: what is called with the explanation; prints it on standard error else.
    """

    def __init__(self, *, retry: bool = False, batch: str = "batch_size", accumulation: str = "accumulation_steps",
                 say: Callable[[str], object] | None = None):
        self._retry, self._batch, self._accumulation, self._say = retry, batch, accumulation, say

    def __enter__(self) -> oom_advice:
        if self._retry:
            raise TypeError("oom_advice(retry=True) is a decorator: what is in a `with` cannot be done again")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and is_out_of_memory(error):
            self._tell(error, "")

    def __call__(self, function: _Function) -> _Function:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} returns before it has run: put the `with` inside it")
        signature = inspect.signature(function)
        if self._retry and (missing := [name for name in (self._batch, self._accumulation) if name not in signature.parameters]):
            raise TypeError(f"{function.__qualname__} has no parameter {' and no '.join(missing)}: oom_advice(retry=True) "
                            "needs both, by these names or by batch=... and accumulation=...")

        @functools.wraps(function)
        def advised(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            while True:
                try:
                    return function(*bound.args, **bound.kwargs)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    smaller = self._next(bound.arguments)
                    note = "" if smaller is None else (f"again with {self._batch}={smaller[0]}, {self._accumulation}={smaller[1]}: "
                                                       "the same whole")
                    self._tell(error, note)
                    if smaller is None:
                        raise
                bound.arguments[self._batch], bound.arguments[self._accumulation] = smaller

        return advised  # type: ignore[return-value]

    def _next(self, arguments: dict[str, Any]) -> tuple[int, int] | None:
        return _smaller(int(arguments[self._batch]), int(arguments[self._accumulation])) if self._retry else None

    def _tell(self, error: BaseException, note: str) -> None:
        lines = ["gapless: out of memory: " + (str(error).strip().partition("\n")[0] or type(error).__name__), *_explanation()]
        freed = _free(error)
        lines.append(f"freed {size(freed)} of what was no longer in use")
        if note:
            lines.append(note)
        text = "\n  ".join(lines)
        if hasattr(error, "add_note"):
            error.add_note(text)
        if self._say is not None:
            self._say(text)
        else:
            print(text, file=sys.stderr)
