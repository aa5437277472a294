"""Tells of tensors whose memory goes while another stream still uses it: record_stream() was forgotten.

PyTorch gives a tensor's memory out again, to the stream that it was allocated on, as soon as the tensor is gone. What other
streams do with it PyTorch does not know, unless it is told:

    x = torch.empty(n, device="cuda")              allocated on the default stream
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2                                  side     |-- reads x --------------|
    del x                                          default    | z = torch.zeros(n): the same bytes
    z = torch.zeros(n, device="cuda")                           part of y is 0, now and then

    with gapless.check_streams() as found:         run the program once inside
        main()
    found.mistakes                                 one for each place; each was told on standard error as well

    python -m gapless --check-streams train.py     or so, with gapless as the allocator; status 1 where there were any

Addresses, sizes and results stay what they are. It needs no luck: whether the work of one stream comes after that of another
follows from the program's events and waits (_stream_order.py), not from when it ran, and the memory need not really be given
out again. It works with PyTorch's own allocator and with gapless, on simulated GPUs too.

A mistake is told where all of this is so:
  - a tensor was allocated on one stream, and an operator, of the forward or a backward pass, in place or over a view, read or
    wrote it under another one;
  - record_stream() was not called for that stream, by the program or by PyTorch itself, as its backward pass does;
  - the memory was freed, and the stream it was allocated on was given memory again without having come after that use: no
    event, wait_stream(), synchronize() or successful query() between. A wait between the free and the next allocation is in
    time. Where the check ends before, the current stream counts as given memory, unless such a wait was seen at those lines.

Nothing is told, for it is not known or not the program's business, of
  - tensors that were allocated before the check began, while a CUDA graph was captured, or by no allocator of PyTorch's;
  - kernels outside of PyTorch's operators (those of Triton, and so of torch.compile; extensions without torch.library), of
    graphs that are replayed, of operators that an operator written in Python consists of; what process groups do (NCCL);
  - operators in threads that the program starts; those of the backward pass are seen;
  - streams that another library made, together with the default stream, which mostly waits for them by itself.
Where another library orders streams by calls of CUDA that PyTorch does not make, a mistake may be told that is none.

An operator takes some 12 us more of the host's time, one that allocates and frees memory 17 (on one CPU, over the simulated
GPU; 7 of them are what PyTorch takes for any mode). When the check has ended, nothing of it is left.
"""
from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from ._call_sites import size
from ._library import GaplessError

if TYPE_CHECKING:
    from ._stream_uses import Freed, StreamUses

_ALLOCATORS = ("native", "gapless")
_active: check_streams | None = None


@dataclass
class StreamMistake:
    """Memory that went while another stream still used it. Streams are handles (cudaStream_t), 0 is the default stream."""
    bytes: int
    device: int
    allocated_on: int
    allocated_at: str  # "train.py:12 (step)", like the other two
    used_on: int
    used_at: str
    operator: str  # of the last use there, "aten.mul.Tensor"
    writes: bool
    freed_at: str
    times: int = 1  # so far, allocated and used at the same lines

    def __str__(self) -> str:
        owner, user = _stream(self.allocated_on), _stream(self.used_on)
        return (f"{size(self.bytes)} on cuda:{self.device}, allocated on {owner} at {self.allocated_at}, were freed at "
                f"{self.freed_at} while {user} may still {'write' if self.writes else 'read'} them ({self.operator} at "
                f"{self.used_at}), and {owner} is given them again before that is done: call tensor.record_stream(stream) after "
                f"the last use on that stream, or have {owner} wait for it (wait_stream) before the tensor goes")


class StreamMistakes(GaplessError):
    """Of check_streams(error=True). `mistakes`: the list."""

    def __init__(self, mistakes: list[StreamMistake]):
        places = "1 place" if len(mistakes) == 1 else f"{len(mistakes)} places"
        super().__init__(f"at {places} a tensor went while another stream still used it: {mistakes[0]}")
        self.mistakes = mistakes


def _stream(handle: int) -> str:
    return f"stream {handle:#x}" if handle else "the default stream"


class check_streams:
    """A context manager, and two functions, that tell of memory that goes while another stream still uses it (above).

        with gapless.check_streams() as found:        check = gapless.check_streams(error=True)
            train()                                   check.enable()
        assert not found.mistakes                     train()
                                                      check.disable()     or not: then until the program ends

    mistakes: StreamMistake for each two lines that allocated and used; of the last time it was on.
    error: raise StreamMistakes at the end where there were any, unless something else was raised. A program that ends with
    the check on ends with status 1 then: at once, without the exit handlers that were registered before enable().
    say: what is called with each sentence, once for each of them; it is printed on standard error else.

    Raises GaplessError where torch has no CUDA or does not tell what its streams do, where memory comes from another
    allocator than PyTorch's own or gapless, and where a check is on already. It sees operators of the thread that began it.
    """

    def __init__(self, *, error: bool = False, say: Callable[[str], object] | None = None):
        self.mistakes: list[StreamMistake] = []
        self._error, self._say = error, say

    def enable(self) -> check_streams:
        global _active
        from ._stream_uses import StreamUses, allocator
        if _active is not None:
            raise GaplessError("check_streams is on already")
        if allocator() not in _ALLOCATORS:
            raise GaplessError(f"check_streams knows PyTorch's own allocator and gapless, not {allocator()}")
        self.mistakes = []
        self._places: dict[tuple[str, ...], StreamMistake] = {}
        self._uses: StreamUses = StreamUses(self._tell)
        self._process, self._thread = os.getpid(), threading.get_ident()
        _active = self
        self._uses.begin()
        atexit.register(self._at_exit)
        return self

    def disable(self) -> None:
        """In the thread of enable(). Raises StreamMistakes, where that was asked for."""
        self._end(goes_on=True)
        if self._error and self.mistakes:
            raise StreamMistakes(self.mistakes)

    def __enter__(self) -> check_streams:
        return self.enable()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.disable()
        else:
            self._end(goes_on=False)

    def _end(self, goes_on: bool) -> None:
        global _active
        if _active is not self:
            raise GaplessError("check_streams is not on")
        if goes_on and threading.get_ident() != self._thread:
            raise GaplessError("check_streams ends in the thread that it began in")
        _active = None
        atexit.unregister(self._at_exit)
        self._uses.end(own_thread=threading.get_ident() == self._thread, goes_on=goes_on)

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        self._end(goes_on=False)  # before the interpreter frees what is left, in no order
        if self._error and self.mistakes:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _tell(self, freed: Freed) -> None:
        if known := self._places.get(freed.lines()):
            known.times += 1
            return
        block, use = freed.block, freed.use
        mistake = StreamMistake(use.bytes, block.device, block.stream, str(block.place), freed.stream, str(use.place),
                                use.operator, use.writes, str(freed.place))
        self._places[freed.lines()] = mistake
        self.mistakes.append(mistake)
        if self._say is not None:
            self._say(str(mistake))
        else:
            print(f"gapless: {mistake}", file=sys.stderr)
