"""What `gapless fits` adds to watch_torch.py, whose names it has: what memory is for.

Every allocation and free is written down by libsimgpu.so (simgpu/process/memory_trace.h). It asks here from where in
the program memory is asked for, and is told which tensors are parameters, gradients, states of optimizers, buffers and
logits:

    SIMGPU_REPORT_DIR/PID.N.sites    a line of JSON for each place: the user's line, the library's, what it was at
    events of the trace              "what lies at this address is a gradient"

No reference to a tensor is kept, so nothing lives longer than it would.
"""
import ctypes
import json
import os
import sys
import threading
import time
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

# As Holder has them (simgpu/process/memory_trace.h).
UNKNOWN, PARAMETERS, GRADIENTS, OPTIMIZER_STATES, BUFFERS, INPUTS = range(6)
ACTIVATIONS, LOSS, BACKWARD, OPTIMIZER_STEP, WORKSPACES = range(6, 11)

# --- where memory is asked for ------------------------------------------------------------------------------


def _at(code) -> int | None:
    """What a frame of this code is at; None where that does not say: then the one that called it may."""
    path, name = code.co_filename, code.co_name
    if not path.startswith(_TORCH):
        words = f"{os.path.basename(path)} {name}".lower()
        return LOSS if "loss" in words or "cross_entropy" in words else None
    place = path[len(_TORCH):]
    if place == os.path.join("nn", "functional.py"):
        return LOSS if "loss" in name or name in _LOSSES else None
    if place == os.path.join("nn", "modules", "loss.py"):
        return LOSS
    if place == os.path.join("nn", "modules", "module.py"):
        # What is moved or cast as a module's own may be another's before anybody looks (quantisation).
        return {"_call_impl": ACTIVATIONS, "_apply": PARAMETERS}.get(name)
    if place.startswith("optim" + os.sep):
        return OPTIMIZER_STEP
    if name == "_engine_run_backward":
        return BACKWARD
    # What is gathered and sent there is nobody's, as far as frames tell.
    if place.startswith(("distributed" + os.sep, os.path.join("nn", "parallel") + os.sep)):
        return UNKNOWN
    return None


def _stage(frames) -> int:
    """What frames, from the innermost on, are at. Compiled code may be of anything that the function which was compiled
    does, so that one's name says nothing."""
    compiled = False
    for frame in frames:
        compiled = compiled or _owner(frame) == "generated"
        at = _at(frame.f_code)
        if at is not None and not (compiled and at == LOSS):
            return at
    return UNKNOWN


def _called(frames) -> str | None:
    """The function of a library that the user's line called."""
    below = None
    for frame in frames[:_own(frames)]:
        if _owner(frame) == "library":
            below = frame
    return f"{below.f_globals.get('__name__', '?')}.{below.f_code.co_name}" if below is not None else None


_PARALLEL = {"replicate", "scatter", "gather", "broadcast_coalesced", "reduce_add_coalesced"}


def _part(frames) -> str | None:
    """What of PyTorch's means for several GPUs it is."""
    part = None
    for frame in frames:
        path = frame.f_code.co_filename
        if path.startswith(_TORCH + os.path.join("nn", "parallel") + os.sep):
            if frame.f_code.co_name in _PARALLEL:
                part = frame.f_code.co_name
            elif os.path.basename(path) == "distributed.py":
                return part or "distributed"
        elif path.startswith(_TORCH + "distributed" + os.sep):
            return part or "distributed"
    return part


_LOSSES = {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "log_softmax"}


class _Sites:
    """Numbers for stacks, each told once."""

    def __init__(self):
        self.known = {}
        self.kept = []  # code that keys name by its address
        self.lines = []  # not yet in the file
        self.file = None
        self.lock = threading.Lock()

    def number(self) -> int:
        frames = self._frames()
        key = tuple([value for frame in frames for value in (id(frame.f_code), frame.f_lasti)])
        site = self.known.get(key)
        return site if site is not None else self._tell(key, frames)

    @staticmethod
    def _frames() -> list:
        """The thread's, from the innermost on. A thread of C++ (autograd's) works for the one that waits for it, or for the
        main one."""
        frame, frames = sys._getframe(1), []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        main = threading.main_thread().ident
        if threading.get_ident() != main and not (frames and frames[-1].f_code.co_name == "_bootstrap"):
            running = sys._current_frames()
            del running[threading.get_ident()]  # this very frame would hold itself, and all that is in it
            waiting = (one for one in running.values() if one.f_code.co_name == "_engine_run_backward")
            frame = next(waiting, running.get(main))
            while frame is not None:
                frames.append(frame)
                frame = frame.f_back
        return [frame for frame in frames if os.path.dirname(frame.f_code.co_filename) != _HERE]

    def _tell(self, key, frames) -> int:
        at = _stage(frames)
        place = {"at": at, **_lines([(frame, frame.f_lineno) for frame in frames]), "called": _called(frames),
                 "part": _part(frames)}
        for more in at_place:
            more(frames, at)
        with self.lock:
            if key not in self.known:
                self.kept.append([frame.f_code for frame in frames])
                self.lines.append(json.dumps(place) + "\n")
                self.known[key] = len(self.known) + 1
            number = self.known[key]
            self._write()
        if at == ACTIVATIONS:
            _look_for_holders(False)
        return number

    def write(self) -> None:
        with self.lock:
            self._write()

    def _write(self) -> None:
        """Before the first memory is had, there is no report to write beside."""
        stem = os.fsdecode(library.simgpu_report_stem())
        if self.file is None and stem:
            self.file = open(f"{stem}.sites", "w", encoding="utf-8", buffering=1)
        if self.file is not None:
            self.file.writelines(self.lines)
            self.lines.clear()


_sites = _Sites()


@_quietly
def _site() -> int:
    return _sites.number()


# --- what tensors are for -----------------------------------------------------------------------------------

_holds = library.simgpu_holds
_holds.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_ulonglong), ctypes.c_size_t)
_scope = library.simgpu_scope
_copied = library.simgpu_copied
_copied.argtypes = (ctypes.c_ulonglong, ctypes.c_ulonglong)


def _addresses(tensor) -> list[int]:
    """Places in its memory on GPUs; of one made of others (DTensor), of those. (To ask for its storage would make an
    object of that, and with one autograd no longer adds to a gradient in place.)"""
    if not isinstance(tensor, torch.Tensor):
        return []
    if is_traceable_wrapper_subclass(tensor):
        return [address for name in tensor.__tensor_flatten__()[0] for address in _addresses(getattr(tensor, name))]
    if not tensor.is_cuda or tensor.layout != torch.strided:
        return []
    address = tensor.data_ptr()
    return [address] if address else []


def _tell(holder, tensors) -> None:
    found = []
    for tensor in tensors:
        try:
            found += _addresses(tensor)
        except Exception:  # one that has no memory, of whatever kind
            continue
    if found:
        _holds(holder, (ctypes.c_ulonglong * len(found))(*found), len(found))


def _belongings(parameter, depth=2):
    """What a parameter has with it: the scales of quantised weights (bitsandbytes keeps them in an object of its)."""
    for value in list(getattr(parameter, "__dict__", {}).values()):
        if isinstance(value, torch.Tensor):
            yield value
        elif depth and type(value).__module__ not in ("builtins", "torch") and not isinstance(value, torch.nn.Module):
            yield from _belongings(value, depth - 1)


_seen_parameters = set()  # id of each that a module has


def _holders() -> None:
    """Tells of every module and optimizer that there is."""
    modules, optimizers = _alive(torch.nn.Module, torch.optim.Optimizer)
    parameters, buffers = [], []
    for module in modules:
        parameters += [p for p in (module.__dict__.get("_parameters") or {}).values() if p is not None]
        buffers += [b for b in (module.__dict__.get("_buffers") or {}).values() if b is not None]
    _seen_parameters.clear()
    _seen_parameters.update(id(parameter) for parameter in parameters)
    _tell(BUFFERS, buffers)
    _tell(PARAMETERS, parameters)
    _tell(PARAMETERS, [thing for parameter in parameters for thing in _belongings(parameter)])
    _tell(GRADIENTS, [parameter.grad for parameter in parameters if parameter.is_leaf])
    for optimizer in optimizers:
        _of_optimizer(optimizer)
    for more in at_look:
        more(modules, optimizers)


def _of_optimizer(optimizer) -> None:
    """What it steps is a parameter; where modules have others, it is a copy of theirs (master weights), which is as
    much its state as its momenta are."""
    stepped = [parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]]
    own = [parameter for parameter in stepped if _seen_parameters and id(parameter) not in _seen_parameters]
    _tell(OPTIMIZER_STATES, own)
    owned = {id(parameter) for parameter in own}
    _tell(PARAMETERS, [parameter for parameter in stepped if id(parameter) not in owned])
    _tell(GRADIENTS, [parameter.grad for parameter in stepped])
    states = [state for state in list(getattr(optimizer, "state", {}).values()) if isinstance(state, dict)]
    _tell(OPTIMIZER_STATES, [value for state in states for value in state.values()])


_looked = {"at": 0.0, "took": 0.0}


@_quietly
def _look_for_holders(anyway) -> None:
    """Looking takes as long as there are objects: a twentieth of the program's time at most."""
    begin = time.monotonic()
    if not anyway and begin - _looked["at"] < 20 * _looked["took"]:
        return
    _looked["at"] = begin  # before: what allocates while it looks does not look again
    _holders()
    _looked["took"] = time.monotonic() - begin
    _looked["at"] = time.monotonic()


_once, _twice = _Seen(), _Seen()  # each optimizer that was looked at with everything else


@_quietly
def _before_step(optimizer, _arguments, _words) -> None:
    """Gradients live until the next: each is seen."""
    if optimizer in _twice:
        _of_optimizer(optimizer)
    else:
        (_twice if optimizer in _once else _once).add(optimizer)
        _look_for_holders(True)


@_quietly
def _after_step(optimizer, _arguments, _words) -> None:
    _of_optimizer(optimizer)


# --- logits and losses --------------------------------------------------------------------------------------

# Operators of losses; what they take and make is logits and loss, in the backward pass as well.
_LOSS_OPERATORS = (
    "_ctc_loss", "_ctc_loss_backward", "_log_softmax", "_log_softmax_backward_data", "binary_cross_entropy",
    "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "huber_loss", "huber_loss_backward",
    "logsumexp", "mse_loss", "mse_loss_backward", "multi_margin_loss", "multi_margin_loss_backward",
    "multilabel_margin_loss_backward", "multilabel_margin_loss_forward", "nll_loss2d_backward", "nll_loss2d_forward",
    "nll_loss_backward", "nll_loss_forward", "smooth_l1_loss", "smooth_l1_loss_backward", "soft_margin_loss",
    "soft_margin_loss_backward")
# A copy of logits, in another type or place, is logits; and so is what they were copied from.
_COPIES = ("_to_copy", "clone")
_COPIED_FROM = 1 << 16  # bytes: smaller ones are not worth the time

_below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.ADInplaceOrView)


def _own_memory(tensor) -> int:
    """A place in its memory on a GPU; 0 where it is anything but a plain tensor with memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_cuda:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a plain tensor to look at: one that is traced, or sparse
        return 0


def _loss_kernel(operator):
    def kernel(keys, *arguments, **words):
        # The first is the input; targets and weights are what they were before.
        address = _own_memory(arguments[0]) if arguments else 0
        if address:
            _holds(LOSS, (ctypes.c_ulonglong * 1)(address), 1)
            for more in at_loss:
                more(operator, arguments[0])
        before = _scope(LOSS)
        try:
            made = operator.redispatch(keys & _below, *arguments, **words)
        finally:
            _scope(before)
        if address:
            for more in at_loss:
                more(None, None)
        return made
    return kernel


def _copy_kernel(operator):
    def kernel(keys, tensor, *arguments, **words):
        large = tensor.is_cuda and tensor.numel() * tensor.element_size() >= _COPIED_FROM
        if large:
            for more in at_copy:
                more(tensor, words.get("dtype"))
        copy = operator.redispatch(keys & _below, tensor, *arguments, **words)
        if large:
            for more in at_copy:
                more(None, None)
            source, target = _own_memory(tensor), _own_memory(copy)
            if source and target and source != target:
                _copied(target, source)
        return copy
    return kernel


@_quietly
def _watch_losses():
    """These stand between autograd and the operators themselves, in every thread, and touch no tensor."""
    kernels = torch.library.Library("aten", "IMPL")
    for names, make in ((_LOSS_OPERATORS, _loss_kernel), (_COPIES, _copy_kernel)):
        for name in names:
            packet = getattr(torch.ops.aten, name, None)
            if packet is not None:
                kernels.impl(packet.default, make(packet.default), "ADInplaceOrView", with_keyset=True)
    return kernels


# --- the watch ----------------------------------------------------------------------------------------------

@_quietly
def _ask_for_sites():
    """torch asks where it is while it keeps a history, of which nothing but that is wanted here."""
    if not torch._C._cuda_isHistoryEnabled():
        torch.cuda.memory._record_memory_history("state", context="state", stacks="python", max_entries=1)
    _callbacks.simgpu_watch_sites(_site)


def _forget():
    global _sites
    _sites = _Sites()


_kernels = _watch_losses()
register_optimizer_step_pre_hook(_before_step)
register_optimizer_step_post_hook(_after_step)
at_begin.append(_ask_for_sites)
for moments in at_out_of_memory, at_end:
    moments.append(lambda: _look_for_holders(True))
    moments.append(lambda: _quietly(_sites.write)())
in_child.append(_forget)
at_exit.append(lambda: _callbacks.simgpu_watch_sites(_NO_FUNCTION))
