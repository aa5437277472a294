"""A flag that nobody knows, asked for by an assert, is what lets the program go on; watch_torch.py's names are here.

    assert (padded[..., left:right] == x).all()    true
    assert not x.isnan().any() and x.max() > 0     false, true

A program whose asserts fail is not the one whose memory is asked for. What it asks for elsewhere is a guess, and told.
On the host nobody keeps account of what is known: once numbers that are not were read there, an assert that fails is passed
over, and told.
"""
import ctypes
import dis
import functools
import sys

import torch

library.simgpu_knowledge.argtypes, library.simgpu_knowledge.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
_KNOWN = 2
_PASSED_OVER = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN")


def _is_raised(one) -> bool:
    return one.opname == "LOAD_ASSERTION_ERROR" or one.argval is AssertionError


def _how_good(instructions, offset) -> int:
    """To go on there: -1 where AssertionError is raised, 1 right after that."""
    index = next((i for i, one in enumerate(instructions) if one.offset >= offset), len(instructions))
    if index < len(instructions) and _is_raised(instructions[index]):
        return -1
    return int(instructions[index - 1].opname == "RAISE_VARARGS" and any(map(_is_raised, instructions[:index])))


@functools.lru_cache(maxsize=1024)
def _goes_on_with(code, at: int) -> bool | None:
    """What keeps the code from raising AssertionError, of a flag that is asked for by the instruction at that offset: one
    that goes by it, or one before that, which makes it a bool. None where it is no assert, or either will do."""
    instructions = [one for one in dis.get_instructions(code) if one.offset >= at and one.opname not in _PASSED_OVER]
    jump = next((one for one in instructions[:2] if one.opname.endswith(("IF_TRUE", "IF_FALSE"))), None)
    if jump is None or "JUMP" not in jump.opname:
        return None
    there, here = _how_good(instructions, jump.argval), _how_good(instructions, jump.offset + 2)
    return None if there == here else (there > here) == jump.opname.endswith("IF_TRUE")


@_as_torchs_own
def _is_known(flag) -> bool:
    try:
        return library.simgpu_knowledge(flag.data_ptr(), flag.element_size()) == _KNOWN
    except RuntimeError:  # of those that a transformation stands in for, as in vmap
        return True


def _asks(function):
    @_as_torchs_own
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
            return function(flag)
        if on_host and function(flag) != goes_on_with:
            state["assert_passed_over"] = state["assert_passed_over"] or _current_lines()
        return goes_on_with
    return wrapped


torch.Tensor.__bool__ = _asks(torch.Tensor.__bool__)
