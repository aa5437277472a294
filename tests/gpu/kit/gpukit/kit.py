"""The kit's folder, its clock, and the environments that its programs run in."""
from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import time
from typing import Any, Sequence

from .commands import Ended, Log, run
from .results import Part

ALLOCATORS = ("native", "expandable", "gapless")
RESULT = "RESULT "  # what a program of ours has to tell, as JSON behind that


class Kit:
    def __init__(self, folder: pathlib.Path, out: pathlib.Path, budget_s: float, simulated: pathlib.Path | None,
                 quick: bool):
        self.folder, self.out, self.simulated, self.quick = folder, out, simulated, quick
        self.log = Log(out / "log.txt")
        self.deadline = time.monotonic() + budget_s
        # Parts are planned for nine minutes; with other times each has less or more.
        self.scale = budget_s / 540
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpu-kit-"))  # not among what is brought home

    def limit(self, seconds: float) -> float:
        """What a step that is planned to take at most that long may take."""
        return max(5.0, seconds * self.scale)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def path(self, *parts: str) -> str:
        return str(self.folder.joinpath(*parts))

    # --- environments

    def environment(self, **more: str) -> dict[str, str]:
        """For programs without torch."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("GAPLESS", "PYTORCH_", "LD_PRELOAD")) and name != "CI"}
        kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "TMPDIR": str(self.scratch),
                 "XDG_CACHE_HOME": str(self.scratch)}
        kept.setdefault("HOME", str(self.scratch))
        kept.setdefault("USER", "kit")  # torch asks for a name, which not every container has
        if self.simulated:
            before = os.environ.get("LD_LIBRARY_PATH", "")
            kept |= {"GAPLESS_GPU_TEST": "front", "SIMGPU_GPUS": "80GiB", "SIMGPU_CONTEXT": "512MiB",
                     "LD_LIBRARY_PATH": f"{self.simulated}:{before}".rstrip(":")}
        return {**kept, **more}

    def torch_environment(self, allocator: str = "native", **more: str) -> dict[str, str]:
        """For programs with torch, which gets its memory from one of ALLOCATORS."""
        made = self.environment(**more)
        preload = []
        if allocator == "gapless":
            preload.append(self.path("lib", "libgapless_preload.so"))
            made.setdefault("PYTHONPATH", self.path("python"))
            made["GAPLESS_LIBRARY_PATH"] = self.path("lib")
        if allocator == "expandable":
            made["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if self.simulated:
            preload += sorted(str(path) for path in self.simulated.glob("*.so*"))
            made |= {"TRITON_LIBCUDA_PATH": str(self.simulated)}
        if preload:
            made["LD_PRELOAD"] = ":".join(preload)
        return made

    # --- steps

    def run(self, command: Sequence[str], limit_s: float, environment: dict[str, str]) -> Ended | None:
        """Runs a program for as long as it may and there is time. None: there is none."""
        left_s = self.left_s()
        return run(command, min(limit_s, left_s), environment, self.log) if left_s >= 2 else None

    def step(self, part: Part, name: str, command: Sequence[str], limit_s: float, environment: dict[str, str],
             ) -> tuple[Ended | None, dict[str, Any]]:
        """Runs a program as a step of a part, which keeps what it tells (RESULT and JSON, on a line)."""
        ended = self.run(command, limit_s, environment)
        if ended is None:
            part.step(name, "not run", "the time was used up")
            return None, {}
        found = result_of(ended.output)
        status, why = ended.status, ended.why
        if status == "ok" and "skipped" in found:
            status, why = "skipped", found["skipped"]
        elif status == "ok" and found.get("wrong"):
            status, why = "failed", found["wrong"][0]
        elif status in ("failed", "crashed"):
            why = f"{why}: {last_words(ended.output)}".rstrip(": ")
        part.step(name, status, why, ended.seconds, found)
        return ended, found

    def python(self, program: str, *words: str) -> list[str]:
        return [sys.executable, "-W", "ignore", self.path("programs", program), *words]


def result_of(output: str) -> dict[str, Any]:
    """The last that a program told; a program may tell more and more as it goes."""
    for line in reversed(output.splitlines()):
        if line.startswith(RESULT):
            try:
                return json.loads(line[len(RESULT):])
            except json.JSONDecodeError:
                continue  # cut off
    return {}


def last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(RESULT)]
    return lines[-1][:300] if lines else ""
