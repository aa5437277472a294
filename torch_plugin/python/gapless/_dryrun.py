"""`gapless dryrun` and `gapless search` from Python: the same command, in a process of its own."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from ._library import GaplessError, package_folders, source_tree


def command() -> pathlib.Path:
    """The program: of this package, of the build tree around it, or on the PATH. Raises GaplessError."""
    tree = source_tree()
    places = [*(folder / "bin" / "gapless" for folder in package_folders()),
              *([tree / "build" / "release" / "bin" / "gapless"] if tree else [])]
    for place in places:
        if place.exists():
            return place
    if found := shutil.which("gapless"):
        return pathlib.Path(found)
    raise GaplessError(f"the gapless command is not there ({', '.join(map(str, places))}): install the whole package "
                       "(pip install .) or build it (make build)")


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The program is to be on a simulated GPU, with the allocator that is asked for: what this process was given to
    have gapless stays here."""
    mine = re.compile("GAPLESS|PYTORCH_(CUDA_)?ALLOC_CONF|SIMGPU_(GPUS|SHARED|REPORT_DIR|RECORD|STRICT)")
    kept = {name: value for name, value in os.environ.items() if not mine.fullmatch(name)}
    preloaded = [path for path in kept.pop("LD_PRELOAD", "").split(":")
                 if path and "libgapless_preload" not in path and "/simgpu/" not in path]
    if preloaded:
        kept["LD_PRELOAD"] = ":".join(preloaded)
    return {**kept, **more}


class Finished:
    """A dry run: its exit status, what was said, and what its JSON holds (None where it wrote none)."""

    def __init__(self, status: int, output: str, found: Any):
        self.status, self.output, self.found = status, output, found


def run(subcommand: str, options: Sequence[str], program: Sequence[str], *, timeout: float | None = None,
        environment: Mapping[str, str] | None = None) -> Finished:
    """Raises GaplessError where the command is not there, and subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        rows = pathlib.Path(folder, "found.json")
        words = [str(command()), subcommand, *options, "--json", str(rows), "--", *program]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=clean_environment(environment or {}), text=True, errors="replace") as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.terminate()  # it ends its program, too
                process.communicate()
                raise
        found = json.loads(rows.read_text()) if rows.exists() and rows.stat().st_size else None
        return Finished(process.returncode, output, found)


def last_lines(output: str, lines: int = 15) -> str:
    """The end of what a program said."""
    return "\n".join(output.rstrip().splitlines()[-lines:])


def estimate(row: dict[str, Any]) -> str | None:
    """Why what a row of `gapless dryrun --json` says is an estimate; None where it is exact."""
    told = row.get("estimates_from")
    if not told or (told["kind"] != "size" and row.get("computes_numbers") is not False):
        return None
    line = f" ({told['line']})" if told["line"] else ""
    return f"sizes may follow from numbers that nobody knows, which were read {told['count']:,} times, first here{line}"
