"""What PyTorch tells of operators, memory and streams to who asks, for _stream_uses.py.

    with Operators(check):    check.use(operator, tensors) before every operator of this thread, and of its backward passes
    tell(check)               check.memory_allocation(address), check.event_wait(event, stream), ... from every thread
    after(Event, "query", f)  f(result, event) after each call of what PyTorch tells nobody of
    where()                   the line of the program that led here

The callbacks of torch.cuda._gpu_trace are there for torch.cuda._sanitizer. That is another check (two streams use a tensor
without an order, while it lives); importing it begins it, so nothing of it is used here.
Importing this module raises GaplessError where torch is not there, has no CUDA, or has no such callbacks.
"""
from __future__ import annotations

import ctypes
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from ._library import GaplessError, import_torch, torch_version

torch: Any = import_torch()
torch_version()
try:
    _gpu_trace: Any = importlib.import_module("torch.cuda._gpu_trace")
    _dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
    current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream  # of a device: its handle
    _activate, _data_address, _node = torch._C._activate_gpu_trace, torch._C._data_address, torch._C._current_autograd_node
except (ImportError, AttributeError) as error:
    raise GaplessError(f"torch {torch.__version__} does not tell what its streams do: {error}") from error

_EVENTS = ("event_deletion", "event_record", "event_wait", "memory_allocation", "memory_deallocation",
           "device_synchronization", "stream_synchronization", "event_synchronization")
_LIBRARIES = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__))
_receiver: Any = None
_registered = False


class Place(NamedTuple):
    """A line of the program, a node of the backward pass, or both; neither where nothing is known."""
    file: str = ""
    line: int = 0
    function: str = ""
    node: str = ""

    def __str__(self) -> str:
        """"train.py:12 (step), MulBackward0 of the backward pass"."""
        line = f"{self.file}:{self.line} ({self.function})" if self.file else ""
        node = f"{self.node} of the backward pass" if self.node else ""
        return ", ".join(filter(None, (line, node))) or "a place that is not known"


def _line(frame: FrameType | None) -> Place | None:
    """The innermost frame that is neither torch's nor of this package."""
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARIES):
            return Place(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


def where(whole: bool = False) -> Place:
    """Of the caller. Threads of the backward pass have no line of their own: there it is the node and, where `whole`, the
    line that waits for the backward pass, if it is the only one that does."""
    if found := _line(sys._getframe(1)):
        return found
    node = _node()
    waiting = list(filter(_waits_for_backward, sys._current_frames().values())) if whole and node is not None else []
    line = _line(waiting[0]) if len(waiting) == 1 else None
    return (line or Place())._replace(node="" if node is None else node.name())


def _waits_for_backward(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        frame = frame.f_back
    return frame is not None


def address_of(tensor: Any) -> int:
    """Where the memory begins that a tensor or a view lies in; 0 where it has none of its own, as sparse ones."""
    try:
        return int(_data_address(tensor))  # of the storage
    except RuntimeError:
        return 0


def handle_of(stream: Any) -> int:
    """cudaStream_t of a torch.cuda.Stream or torch.Stream."""
    return int(stream.cuda_stream if hasattr(stream, "cuda_stream") else stream.native_handle)


# --- operators -----------------------------------------------------------------------------------------------------------

_SKIP, _READ, _WRITE = range(3)
_FACTORY = re.compile(r"aten::(new_.*|.*_like)")  # take a tensor for its shape
_WITHOUT_KERNEL = {"aten::record_stream", "aten::_unsafe_view", "aten::is_same_size"}
_NAMESPACES = {"prim", "profiler", "c10d", "_c10d_functional"}  # process groups look after what they are given


class _Arguments(NamedTuple):
    """How an operator uses its arguments: _SKIP, _READ or _WRITE, by position and by name."""
    kinds: tuple[int, ...]
    names: dict[str, int]
    splits: bool  # into operators that are seen themselves: whether it reads or makes a view is not said


@functools.lru_cache(maxsize=None)
def _arguments(operator: Any) -> _Arguments | None:
    """None where it uses no tensor's memory."""
    schema = operator._schema
    if (operator.namespace in _NAMESPACES or schema.name in _WITHOUT_KERNEL or _FACTORY.fullmatch(schema.name)
            or torch.Tag.inplace_view in operator.tags):
        return None
    names, views = {}, False
    for argument in schema.arguments:
        alias = argument.alias_info
        view = alias is not None and not alias.is_write
        views = views or view
        names[argument.name] = _SKIP if view or "Tensor" not in str(argument.type) else _READ if alias is None else _WRITE
    splits = views and torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    return _Arguments(tuple(names.values()), names, splits) if splits or any(names.values()) else None


def _used(arguments: _Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """(a tensor on a GPU, whether it is written) for each that the operator uses."""
    for kind, value in (*zip(arguments.kinds, args), *((arguments.names.get(name, _SKIP), kwargs[name]) for name in kwargs)):
        if kind == _SKIP:
            continue
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, torch.Tensor) and one.is_cuda:
                yield one, kind == _WRITE


class Operators(_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, tells `check` of this thread's operators, before they run:

    check.verify()                of every one
    check.record(tensor, stream)  of record_stream()
    check.use(operator, used)     of those that use memory of a GPU, with [(tensor, whether it is written)]; what it
                                  returns is called where the operator fails
    """
    supports_higher_order_operators = True

    def __init__(self, check: Any):
        super().__init__()
        self._check = check

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                # A wrapper of tensors comes first, so that what it does with those in it is seen; fake ones have no memory.
                return func(*args, **kwargs) if kind.__module__.startswith("torch._subclasses.") else NotImplemented
        self._check.verify()
        if func is torch.ops.aten.record_stream.default:
            self._check.record(*args, **kwargs)
        arguments = _arguments(func) if isinstance(func, torch._ops.OpOverload) else None
        if arguments is None:
            return func(*args, **kwargs)
        if arguments.splits:
            with self:
                result = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
        failed = self._check.use(func, _used(arguments, args, kwargs))
        if failed is None:
            return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except BaseException:
            failed()
            raise


# --- callbacks -----------------------------------------------------------------------------------------------------------

def tell(receiver: Any) -> None:
    """Its methods of the names in _EVENTS are called from now on, with handles; nobody's where it is None."""
    global _receiver, _registered
    _receiver = receiver
    if receiver is None:
        _turn(_was_on)
        return
    if not _registered:
        _registered = True
        for event in _EVENTS:
            getattr(_gpu_trace, f"register_callback_for_{event}")(functools.partial(_tell, event))
    _activate()
    _turn(True)


def _tell(event: str, *handles: int) -> None:
    if _receiver is not None:
        getattr(_receiver, event)(*handles)


def _switch() -> Any:
    """Whether PyTorch calls, as C++ has it (c10/core/impl/GPUTrace.h); None where it cannot be found. It has no function to
    end that, and a C++ thread that calls Python while the interpreter ends is stopped where it is, with the locks it holds."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
        return ctypes.c_bool.in_dll(library, "_ZN3c104impl8GPUTrace9haveStateE")
    except (OSError, ValueError):
        return None


_calls = _switch()
_was_on = _calls is not None and bool(_calls.value)  # for torch.cuda._sanitizer


def _turn(on: bool) -> None:
    if _calls is not None:
        _calls.value = on


def after(owner: Any, name: str, then: Callable[..., None]) -> Callable[[], None]:
    """then(result, *arguments) after each call of that method, which PyTorch tells nobody of. Returns what undoes it."""
    original, own = getattr(owner, name), owner.__dict__.get(name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        then(result, *args, **kwargs)
        return result

    def undo() -> None:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    setattr(owner, name, method)
    return undo
