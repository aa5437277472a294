"""What a program chooses by what nobody knows; watch_torch.py's names are here.

    if val.item() < best: keep(model)              by the numbers: 0 < 0, false
    total = total + loss.item()                    nobody knows the total either
    if (loss < best): keep(model)                  a flag that nobody knows: false
    assert (padded[..., left:right] == x).all()    true
    assert not x.isnan().any() and x.max() > 0     false, true

    state["choices"]    {"/home/you/train.py:10:216": false, ...}: what was always chosen at a place, an instruction of the
                        function that begins in that line; null where it was now this and now that

Each is counted as a flag that was read, so that a program whose answer may hang on one is run again. It is given some of these
(SIMGPU_CHOICES), and goes the other way there, if that is not to raise an error: what both ways take is seen, as far as a few
runs can show it. Numbers are followed through sums, products and the like on the host; not through numpy, math and float(),
which make some of their own.

A program whose asserts fail is not the one whose memory is asked for, so an assert lets it go on. On the host nobody keeps
account of which tensors are known: once numbers that are not were read there, an assert that fails is passed over, and told.
"""
import ctypes
import dis
import functools
import json
import math
import os
import sys

import torch

library.simgpu_knowledge.argtypes, library.simgpu_knowledge.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
_KNOWN = 2  # Knowledge
_FLAG = 3  # ProcessRecord's Estimate
_MOST_CHOICES = 200
_chosen_before = json.loads(os.environ.get("SIMGPU_CHOICES") or "{}")

# --- asserts ------------------------------------------------------------------------------------------------

_PASSED_OVER = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN")


def _is_raised(one) -> bool:
    return one.opname == "LOAD_ASSERTION_ERROR" or one.argval is AssertionError


def _how_good(instructions, offset) -> int:
    """To go on there: -1 where AssertionError is raised, 1 right after that."""
    index = next((i for i, one in enumerate(instructions) if one.offset >= offset), len(instructions))
    if index < len(instructions) and _is_raised(instructions[index]):
        return -1
    return int(instructions[index - 1].opname == "RAISE_VARARGS" and any(map(_is_raised, instructions[:index])))


def _jump(instructions):
    """What goes by a flag that the first instruction asks for: that itself, or the next; None where neither does."""
    jump = next((one for one in instructions[:2] if one.opname.endswith(("IF_TRUE", "IF_FALSE"))), None)
    return jump if jump is not None and "JUMP" in jump.opname else None


def _instructions(code, at: int) -> list:
    return [one for one in dis.get_instructions(code) if one.offset >= at and one.opname not in _PASSED_OVER]


@functools.lru_cache(maxsize=1024)
def _goes_on_with(code, at: int) -> bool | None:
    """What keeps the code from raising AssertionError, of a flag that is asked for by the instruction at that offset: one
    that goes by it, or one before that, which makes it a bool. None where it is no assert, or either will do."""
    instructions = _instructions(code, at)
    jump = _jump(instructions)
    if jump is None:
        return None
    there, here = _how_good(instructions, jump.argval), _how_good(instructions, jump.offset + 2)
    return None if there == here else (there > here) == jump.opname.endswith("IF_TRUE")


@functools.lru_cache(maxsize=1024)
def _raises(code, at: int, flag: bool) -> bool:
    """Whether the code goes straight to a raise with that flag, which the instruction at that offset asks for."""
    jump = _jump(_instructions(code, at))
    if jump is None:
        return False
    jumps = jump.opname.endswith("IF_TRUE") == flag
    for one in _instructions(code, jump.argval if jumps else jump.offset + 2):
        if one.opname == "RAISE_VARARGS":
            return True
        if "JUMP" in one.opname or one.opname.startswith(("RETURN", "FOR_ITER", "YIELD")):
            return False
    return False


# --- choices ------------------------------------------------------------------------------------------------

def _choose(frame, by_numbers: bool) -> bool:
    code, at = frame.f_code, frame.f_lasti
    file = os.fsencode(code.co_filename).decode("utf-8", "replace")
    place = f"{file}:{code.co_firstlineno}:{at}"
    before = _chosen_before.get(place)
    choice = by_numbers if before is None else before if _raises(code, at, not before) else not before
    choices = state["choices"]
    if place in choices or len(choices) < _MOST_CHOICES:
        choices[place] = choice if choices.get(place, choice) is choice else None
    return choice


def _is_known(tensor) -> bool:
    try:
        return library.simgpu_knowledge(tensor.data_ptr(), tensor.element_size()) == _KNOWN
    except RuntimeError:  # of those that a transformation stands in for, as in vmap
        return True


def _asks(function):
    @functools.wraps(function)
    def wrapped(flag):
        on_host = not flag.is_cuda
        if type(flag) is not torch.Tensor or flag.numel() != 1:  # more than one are no flag, which is an error
            return function(flag)
        if not state["first_estimates"] if on_host else _is_known(flag):
            return function(flag)
        frame = sys._getframe(1)
        goes_on_with = _goes_on_with(frame.f_code, frame.f_lasti)
        if goes_on_with is None:
            value = function(flag)
            return value if on_host else _choose(frame, value)
        if on_host and function(flag) != goes_on_with:
            state["assert_passed_over"] = state["assert_passed_over"] or _current_lines()
        return goes_on_with
    return wrapped


class _UnknownFloat(float):
    """A number that nobody knows, whatever stands in for it."""
    __slots__ = ()

    def __reduce_ex__(self, _protocol):  # elsewhere nobody knows this class
        return float, (float.__pos__(self),)

    def __round__(self, digits=None):
        value = float.__round__(self, digits)
        return value if digits is None else _UnknownFloat(value)


_UnknownFloat.__name__ = _UnknownFloat.__qualname__ = "float"  # as it is called in messages
_PLAIN = (float, int, bool, _UnknownFloat)


def _calculates(name: str):
    operation = getattr(float, name)

    @functools.wraps(operation)
    def method(self, *others):
        if any(type(other) not in _PLAIN for other in others):
            return NotImplemented  # a tensor's, numpy's
        value = operation(self, *others)
        return _UnknownFloat(value) if type(value) is float else value  # a power may be complex
    return method


@functools.lru_cache(maxsize=4096)
def _compares_itself(code, at: int) -> bool:
    """Not in C for it, as max() and sorted(), and not in Python's library."""
    return dis.opname[code.co_code[at]] == "COMPARE_OP" and not code.co_filename.startswith(_STANDARD)


def _compares(name: str):
    operation = getattr(float, name)

    @functools.wraps(operation)
    def method(self, other):
        if type(other) not in _PLAIN:
            return NotImplemented
        value = operation(self, other)
        frame = sys._getframe(1)
        # Whatever it is, it is less than infinity.
        if not math.isfinite(self) or not math.isfinite(other) or not _compares_itself(frame.f_code, frame.f_lasti):
            return value
        goes_on_with = _goes_on_with(frame.f_code, frame.f_lasti)
        if goes_on_with is not None:
            return goes_on_with
        library.simgpu_estimated(_FLAG)
        return _choose(frame, value)
    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "neg", "pos", "abs"):
    setattr(_UnknownFloat, f"__{_name}__", _calculates(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(_UnknownFloat, f"__{_name}__", _compares(f"__{_name}__"))


def _marked(value):
    if isinstance(value, list):
        return [_marked(one) for one in value]
    return _UnknownFloat(value) if type(value) is float else value


def _reads(function, most: int):
    @functools.wraps(function)
    def wrapped(tensor):
        if type(tensor) is not torch.Tensor or not tensor.is_cuda or not 0 < tensor.numel() <= most:
            return function(tensor)
        is_known = _is_known(tensor)  # before: noise is likely once it was read
        value = function(tensor)
        if is_known:
            return value
        if type(value) is bool:
            return _choose(sys._getframe(1), value)
        return _marked(value)
    return wrapped


def _is_written_by_yaml(yaml):
    for representer in yaml.SafeRepresenter, yaml.Representer:
        representer.add_representer(_UnknownFloat, representer.represent_float)


torch.Tensor.__bool__ = _asks(torch.Tensor.__bool__)
torch.Tensor.item = _reads(torch.Tensor.item, 1)
torch.Tensor.tolist = _reads(torch.Tensor.tolist, 10_000)
_when_imported("yaml.representer", _is_written_by_yaml)
