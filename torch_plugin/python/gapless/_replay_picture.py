"""The program's memory over time as a picture: what `gapless replay --plot` draws of its recording.

    recording so far -> gapless replay --plot -> SVG -> an <img> of a notebook's cell
"""
from __future__ import annotations

import base64
import dataclasses
import html
import pathlib
import subprocess
import tempfile
from collections.abc import Callable

from ._dryrun import clean_environment, command, last_lines
from ._library import GaplessError

# A cell that shows a report is not to hang on a recording of hours.
LONGEST_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Picture:
    """One that was drawn, or why it was not."""
    svg: str = ""
    why_not: str = ""


def draw(recording: Callable[[str], str | None]) -> Picture | None:
    """None where nothing was recorded. `recording`: gives the file, or makes it in that folder."""
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        try:
            file = recording(folder)
            return None if file is None else Picture(svg=_replayed(file, pathlib.Path(folder, "replay.svg")))
        except (GaplessError, OSError) as error:
            return Picture(why_not=str(error))


def _replayed(file: str, picture: pathlib.Path) -> str:
    words = [str(command()), "replay", file, "--plot", str(picture)]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              env=clean_environment({}), timeout=LONGEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise GaplessError(f"replaying {file} took longer than {LONGEST_SECONDS:.0f} s: gapless replay {file} --plot run.svg"
                           ) from None
    if not picture.exists():  # 3, one that does not fit, has a picture as well
        raise GaplessError(last_lines(done.stderr) or f"gapless replay ended with status {done.returncode}")
    return picture.read_text(encoding="utf-8")


def as_html(picture: Picture | None) -> str:
    """An image, so that its styles stay its own; or the reason why there is none; or nothing."""
    if picture is None:
        return ""
    if picture.why_not:
        return f"<p>Memory over time cannot be shown: {html.escape(picture.why_not)}</p>"
    data = base64.b64encode(picture.svg.encode()).decode()
    return ("<div>Memory over time, replayed with gapless and PyTorch's allocators:</div>"
            f"<img alt='what was reserved and allocated over time' style='max-width:100%' src='data:image/svg+xml;base64,{data}'>")
