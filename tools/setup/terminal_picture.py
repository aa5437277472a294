#!/usr/bin/env python3
"""Runs a command in a terminal of 80 columns and writes what it showed as a picture, which needs no other file.

    tools/setup/terminal_picture.py docs/pictures/inspect.svg -- build/release/bin/gapless inspect run.gtrace

    --columns N     another width
    --lines A:B     of what it showed these lines alone, as Python slices
    --shown TEXT    what stands at the prompt in place of the command

Colours and dimmed text are the terminal's (SGR); each run of cells has its column's place, so that a font without
block characters does not shift what follows. Colours follow the reader's preference for light or dark.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import unicodedata
from xml.sax.saxutils import escape

CELL, LINE, EDGE, SIZE = 8.4, 16.4, 14, 14
# Of an SGR code: the class of its text.
CLASSES = {"1": "bold", "2": "dim", "31": "bad", "32": "good", "33": "warn", "36": "accent"}
STYLE = """<style>
svg:root { max-width: 100%; height: auto; color-scheme: light dark }
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #18202b; white-space: pre }
.page { fill: #f6f8fa; stroke: #d5dce5 }
.bold { font-weight: 700 } .dim { fill: #7a8696 } .bad { fill: #b3261e } .good { fill: #11713a }
.warn { fill: #8a5a00 } .accent { fill: #1660a8 } .prompt { fill: #56616f }
@media (prefers-color-scheme: dark) {
text { fill: #dfe6ee }
.page { fill: #10161d; stroke: #27313d }
.dim { fill: #8b98a8 } .bad { fill: #ff8a80 } .good { fill: #6fdc98 }
.warn { fill: #e6c84f } .accent { fill: #6cb4f2 } .prompt { fill: #9aa8b8 }
}
</style>"""


def shown_by(command: list[str], columns: int) -> tuple[int, str]:
    """The exit status of a command in a terminal so wide, and all that it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    # Errors and progress are not part of the picture.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
                          env={**environment, "TERM": "xterm-256color"}) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # what Linux says at the end of a terminal
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return process.returncode, b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")


def runs_of(line: str) -> list[tuple[int, str, str]]:
    """(column, class, text) of each run of one look; what a control sequence else says is left out."""
    runs, column, look = [], 0, ""
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
        if piece.startswith("\x1b"):
            codes = piece[2:-1].split(";") if piece.endswith("m") else []
            for code in codes:
                look = CLASSES.get(code, look) if code not in ("", "0") else ""
            continue
        # Words that stand apart, and pictures, are placed for themselves.
        for word in re.finditer(r"\S+(?: \S+)*", piece):
            start = column + width_of(piece[:word.start()])
            if runs and runs[-1][1] == look and runs[-1][0] + width_of(runs[-1][2]) == start:
                start, _, before = runs.pop()
                runs.append((start, look, before + word.group()))
            else:
                runs.append((start, look, word.group()))
        column += width_of(piece)
    return runs


def width_of(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def picture_of(lines: list[str], prompt: str, columns: int) -> str:
    width, height = columns * CELL + 2 * EDGE, (len(lines) + 2) * LINE + 2 * EDGE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">',
           f"<title>{escape(prompt)}</title>", STYLE,
           f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="6"/>',
           f'<text class="prompt" x="{EDGE}" y="{EDGE + SIZE}">$ {escape(prompt)}</text>']
    for row, line in enumerate(lines, 2):
        y = EDGE + SIZE + row * LINE
        parts = [f'<tspan x="{EDGE + column * CELL:.1f}"' + (f' class="{look}"' if look else "") +
                 f' textLength="{width_of(text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs">{escape(text)}</tspan>'
                 for column, look, text in runs_of(line)]
        if parts:
            out.append(f'<text y="{y}">{"".join(parts)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--lines", default=":")
    parser.add_argument("--shown")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()
    status, text = shown_by(wanted.command, wanted.columns)
    if status not in (0, 3):  # 3: something did not fit, which may be what it is there to show
        print(f"{shlex.join(wanted.command)}: exit status {status}", file=sys.stderr)
        return 1
    first, last = (int(part) if part else None for part in wanted.lines.split(":"))
    lines = text.rstrip("\n").split("\n")[first:last]
    wanted.picture.write_text(picture_of(lines, wanted.shown or shlex.join(wanted.command), wanted.columns), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
