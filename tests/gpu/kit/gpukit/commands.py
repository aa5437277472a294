"""Programs with a limit of time, whose output goes into the log while they run."""
from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from typing import Mapping, NamedTuple, Sequence

LOG_BYTES = 12 << 20  # the log goes over a wire
GRACE_S = 3.0


class Ended(NamedTuple):
    status: str  # ok, failed, timed out, crashed
    why: str
    seconds: float
    output: str


class Log:
    def __init__(self, path: pathlib.Path):
        self.path = path
        path.write_text("")

    def write(self, text: str) -> None:
        with open(self.path, "a") as file:
            file.write(text)

    def size(self) -> int:
        return self.path.stat().st_size


def end_group(child: subprocess.Popen) -> bool:
    """Ends a program and all it started. False where it cannot be ended: a driver may hold it for ever."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what it left
    return child.poll() is not None


def run(command: Sequence[str | os.PathLike[str]], limit_s: float, environment: Mapping[str, str], log: Log) -> Ended:
    words = [os.fspath(word) for word in command]
    log.write("\n$ " + " ".join(words) + "\n")
    begin_at, begin = log.size(), time.monotonic()
    with open(log.path, "ab") as output:
        try:
            child = subprocess.Popen(words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            return Ended("failed", f"{words[0]}: {error.strerror}", 0.0, "")
    ended_by = ""
    try:
        while child.poll() is None:
            if time.monotonic() - begin > limit_s:
                ended_by = f"ran longer than {limit_s:.0f} s"
            elif log.size() - begin_at > LOG_BYTES:
                ended_by = "wrote more than the log has room for"
            if ended_by:
                if not end_group(child):
                    ended_by += ", and could not be ended"
                break
            time.sleep(0.02)
    except BaseException:
        end_group(child)
        raise
    seconds = time.monotonic() - begin
    with open(log.path, "rb") as file:
        file.seek(begin_at)
        text = file.read(LOG_BYTES).decode(errors="replace")
    if ended_by:
        return Ended("timed out", ended_by, seconds, text)
    if child.returncode < 0:
        return Ended("crashed", f"ended by {signal.Signals(-child.returncode).name}", seconds, text)
    if child.returncode != 0:
        return Ended("failed", f"exit status {child.returncode}", seconds, text)
    return Ended("ok", "", seconds, text)
