"""Tables of at most 80 columns."""
from __future__ import annotations

import textwrap
from typing import Any, Sequence

WIDTH = 80


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """The last column is folded so that lines fit; columns whose numbers are in `right` stand at its right side."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *texts]) for i in range(len(header))]
    last = WIDTH - sum(widths[:-1]) - 2 * (len(header) - 1)
    widths[-1] = min(widths[-1], max(last, 12))
    lines = []

    def add(row: Sequence[str]) -> None:
        folded = textwrap.wrap(row[-1], widths[-1], break_long_words=True) or [""]
        for i, text in enumerate(folded):
            cells = list(row[:-1]) if i == 0 else [""] * (len(row) - 1)
            cells.append(text)
            lines.append("  ".join(cell.rjust(width) if j in right else cell.ljust(width)
                                   for j, (cell, width) in enumerate(zip(cells, widths))).rstrip())

    add(list(header))
    lines.append("  ".join("-" * width for width in widths))
    for row in texts:
        add(row)
    return "\n".join(lines)


def gib(count: Any) -> str:
    return f"{count / 2**30:.2f}" if isinstance(count, (int, float)) else "-"


def duration(ns: float) -> str:
    """1234 -> "1.2 us"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.0f} ns"
