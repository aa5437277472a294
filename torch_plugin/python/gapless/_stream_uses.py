"""What is allocated, used and freed on which stream, and whether memory went too early, for _check_streams.py.

    memory_allocation      block: the default stream's
    use                    block.uses: {side: the 7th work of all, aten.mul.Tensor, at train.py:12}
    memory_deallocation    is the default stream after side's 7? no: freed, and the allocator is counted
    begin of an operator   counted again: does the block wait for a stream, since somebody recorded one? no
    memory_allocation      is the default stream after side's 7 now? no: that is told

Whether PyTorch recorded a stream itself, where no Python sees it, follows from the allocator's statistics: a block that waits
for other streams is no longer allocated but still active, until memory is given out.
"""
from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _watch_torch as watch
from ._stream_order import StreamOrder

_cuda: Any = watch.torch._C


class Use(NamedTuple):
    """The last of a block on a stream."""
    work: int  # as StreamOrder numbers it
    operator: str
    writes: bool
    place: watch.Place
    bytes: int
    in_backward: bool


class Block:
    """Memory that PyTorch gave out since the check began."""
    __slots__ = ("device", "stream", "place", "uses", "recorded")

    def __init__(self, device: int, stream: int, place: watch.Place):
        self.device, self.stream, self.place = device, stream, place
        self.uses: dict[int, Use] = {}  # by other streams
        self.recorded: set[int] = set()  # for which record_stream() was called


class Freed(NamedTuple):
    """What may be a mistake."""
    block: Block
    stream: int
    use: Use
    place: watch.Place

    def lines(self) -> tuple[str, ...]:
        return self.use.operator, str(self.use.place), str(self.block.place)


class _Counts(NamedTuple):
    """Of a device's blocks: ever given out, ever freed, and active: allocated, or waiting for other streams."""
    given: int
    freed: int
    active: int


def _counts(device: int) -> _Counts:
    stats = _cuda._cuda_memoryStats(device)
    blocks = stats["allocation"]["all"]
    return _Counts(blocks["allocated"], blocks["freed"], stats["active"]["all"]["current"])


def allocator() -> str:
    """"native", "gapless", "cudaMallocAsync", ..."""
    return str(watch.torch.cuda.get_allocator_backend())


class StreamUses:
    """tell(freed) is called of each mistake, in any thread."""

    def __init__(self, tell: Callable[[Freed], None]):
        self._tell = tell
        self._lock = threading.RLock()  # callbacks come from every thread, and from the garbage collector
        self._order = StreamOrder()
        self._blocks: dict[int, Block] = {}
        self._foreign: dict[int, bool] = {}  # streams: whether another library made them
        self._last: tuple[list[Freed], _Counts] | None = None  # free: does it wait for a stream?
        self._waiting: dict[tuple[int | str, ...], Freed] = {}  # for their stream to be given memory
        self._in_time: set[tuple[str, ...]] = set()  # lines that waited between a free and that
        self._operators = watch.Operators(self)
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """In the thread whose operators are to be seen."""
        torch = watch.torch
        self._undo = [watch.after(torch.Tensor, "record_stream", lambda _, tensor, s: self.record(tensor, s)),
                      watch.after(torch.cuda.Event, "query", self._event_query),
                      watch.after(torch.cuda.Stream, "query", self._stream_query),
                      watch.after(torch.cuda.Event, "elapsed_time", self._events_done)]
        watch.tell(self)
        self._operators.__enter__()

    def end(self, own_thread: bool, goes_on: bool) -> None:
        """own_thread: it is that of begin(); else that one has ended. goes_on: the program uses the GPU after it."""
        if own_thread:
            self._operators.__exit__(None, None, None)
        watch.tell(None)
        for undo in reversed(self._undo):
            undo()
        with self._lock:
            self.verify()
            for freed in self._waiting.values() if goes_on else ():  # the current stream is likely to be given memory next
                if watch.current_stream(freed.block.device) == freed.block.stream and freed.lines() not in self._in_time:
                    self._judge(freed)

    # --- operators --------------------------------------------------------------------------------------------------------

    def use(self, operator: Any, used: Iterator[tuple[Any, bool]]) -> Callable[[], None] | None:
        device = stream = -1
        before: list[tuple[Block, int, Use | None]] = []
        for tensor, writes in used:
            block = self._blocks.get(watch.address_of(tensor))
            if block is None:
                continue
            if block.device != device:
                device, stream = block.device, watch.current_stream(block.device)
            if stream != block.stream and not _cuda._cuda_isCurrentStreamCapturing() and not self._implied(block, stream):
                with self._lock:
                    before.append((block, stream, block.uses.get(stream)))
                    block.uses[stream] = Use(self._order.work(stream), str(operator), writes, watch.where(whole=True),
                                             tensor.untyped_storage().nbytes(), _cuda._current_graph_task_id() != -1)
        return functools.partial(self._take_back, before) if before else None

    @staticmethod
    def _take_back(before: list[tuple[Block, int, Use | None]]) -> None:
        for block, stream, use in reversed(before):
            if use is None:
                block.uses.pop(stream, None)
            else:
                block.uses[stream] = use

    def _implied(self, block: Block, stream: int) -> bool:
        """Whether CUDA may order the two by itself: the default stream, and one that was not made to run beside it."""
        return (block.stream == 0 and self._is_foreign(block.device, stream)) or \
            (stream == 0 and self._foreign[block.stream])

    def _is_foreign(self, device: int, stream: int) -> bool:
        """Whether another library made the current stream: its number is then its handle, and even."""
        if (known := self._foreign.get(stream)) is None:
            number = _cuda._cuda_getCurrentStream(device)[0]
            known = self._foreign[stream] = stream != 0 and number % 2 == 0
        return known

    def record(self, tensor: Any, stream: Any) -> None:
        block, handle = self._blocks.get(watch.address_of(tensor)), watch.handle_of(stream)
        if block is not None and handle != block.stream:
            block.recorded.add(handle)

    # --- what PyTorch calls -----------------------------------------------------------------------------------------------

    def memory_allocation(self, address: int) -> None:
        device = _cuda._cuda_getDevice()
        stream = watch.current_stream(device)
        captured = _cuda._cuda_isCurrentStreamCapturing()
        with self._lock:
            self.verify()
            for key, freed in list(self._waiting.items()):
                if (freed.block.device, freed.block.stream) == (device, stream):
                    del self._waiting[key]
                    self._judge(freed)
            self._blocks.pop(address, None)
            if not captured:
                self._is_foreign(device, stream)
                self._blocks[address] = Block(device, stream, watch.where())

    def memory_deallocation(self, address: int) -> None:
        with self._lock:
            self.verify()
            block = self._blocks.pop(address, None)
            if block is None or not block.uses or _cuda._cuda_isCurrentStreamCapturing():
                return
            unordered = [(stream, use) for stream, use in block.uses.items() if stream not in block.recorded
                         and not self._order.is_after(block.stream, stream, use.work)]
            if unordered:
                place = watch.where(whole=True)
                self._last = [Freed(block, stream, use, place) for stream, use in unordered], _counts(block.device)

    def event_deletion(self, event: int) -> None:
        with self._lock:
            self._order.forget(event)

    def event_record(self, event: int, stream: int) -> None:
        with self._lock:
            self._order.record(event, stream)

    def event_wait(self, event: int, stream: int) -> None:
        with self._lock:
            self._order.wait(event, stream)

    def event_synchronization(self, event: int) -> None:
        with self._lock:
            self._order.host_waits_for_event(event)

    def stream_synchronization(self, stream: int) -> None:
        with self._lock:
            self._order.host_waits_for_stream(stream)

    def device_synchronization(self) -> None:
        with self._lock:
            self._order.host_waits_for_all()

    def _event_query(self, done: bool, event: Any) -> None:
        if done:
            self.event_synchronization(event.cuda_event)

    def _stream_query(self, done: bool, stream: Any) -> None:
        if done:
            self.stream_synchronization(stream.cuda_stream)

    def _events_done(self, _: float, begin: Any, end: Any) -> None:
        self.event_synchronization(begin.cuda_event)
        self.event_synchronization(end.cuda_event)

    # --- judging ----------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Before every operator: whether the memory that was freed last waits for other streams. It can be asked after the
        free, and until memory is given out again: what waited may be free by then, and nothing is told."""
        if self._last is None:
            return
        with self._lock:
            if self._last is None:
                return
            freed, then = self._last
            now = _counts(freed[0].block.device)
            if now[:2] == then[:2]:
                return  # another thread is about to free it
            self._last = None
            if (now.given, now.freed) != (then.given, then.freed + 1):
                return
            for one in freed:
                waits = now.active == then.active
                if waits and (not one.block.recorded or one.use.in_backward):
                    continue  # else it waits for the streams of record_stream(), this one not among them
                self._waiting[(one.block.stream, one.stream, *one.lines())] = one

    def _judge(self, freed: Freed) -> None:
        if self._order.is_after(freed.block.stream, freed.stream, freed.use.work):
            self._in_time.add(freed.lines())
        else:
            self._tell(freed)
