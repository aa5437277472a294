"""Which work comes after which: a vector clock for each stream, each event and the host.

    side.work() -> 7                    side: {side: 7}
    event.record(side)                  event: {side: 7}
    default.wait_event(event)           default: {default: ..., side: 7}      so default is after the side stream's 7

Streams and events are handles (cudaStream_t, cudaEvent_t), as PyTorch's callbacks give them. The default stream is 0 on
every GPU, so those of several GPUs are one here: that orders more than is ordered, never less.
"""
from __future__ import annotations

_Clock = dict[int, int]  # of each stream, up to which of its work this has waited


class StreamOrder:
    def __init__(self) -> None:
        self._streams: dict[int, _Clock] = {}
        self._events: dict[int, _Clock] = {}
        self._host: _Clock = {}  # what the host has waited for: all that is begun later comes after it
        self._last = 0

    def work(self, stream: int) -> int:
        """A number for work that begins there now."""
        self._last += 1
        self._clock(stream)[stream] = self._last
        return self._last

    def is_after(self, stream: int, other: int, work: int) -> bool:
        """Whether all that `stream` is given from now on comes after that work of `other`."""
        return stream == other or self._clock(stream).get(other, 0) >= work

    def record(self, event: int, stream: int) -> None:
        self._events[event] = dict(self._clock(stream))

    def forget(self, event: int) -> None:
        self._events.pop(event, None)

    def wait(self, event: int, stream: int) -> None:
        """An event that was recorded before this object was made has only older work before it."""
        _join(self._clock(stream), self._events.get(event, {}))

    def host_waits_for_event(self, event: int) -> None:
        self._host_waits(self._events.get(event, {}))

    def host_waits_for_stream(self, stream: int) -> None:
        self._host_waits(dict(self._clock(stream)))

    def host_waits_for_all(self) -> None:
        for clock in list(self._streams.values()):
            self._host_waits(dict(clock))

    def _clock(self, stream: int) -> _Clock:
        clock = self._streams.get(stream)
        if clock is None:
            clock = self._streams[stream] = dict(self._host)
        return clock

    def _host_waits(self, done: _Clock) -> None:
        _join(self._host, done)
        for clock in self._streams.values():
            _join(clock, done)


def _join(clock: _Clock, other: _Clock) -> None:
    for stream, work in other.items():
        if clock.get(stream, 0) < work:
            clock[stream] = work
