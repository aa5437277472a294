"""Draws mistakes at random: a place in the core, and what is easily got wrong there.

    if (bytes <= left && !asleep) {      ->   bytes < left   |   left || !asleep   |   && asleep
    reserved_ += bytes;                  ->   reserved_ -= bytes   |   the statement is left out

Who writes mistakes down thinks of those that his tests find. These nobody chose: the part of them
that is found says how close the net is. Some change nothing that anybody could see, or do not build. Only
sources are changed: with a header almost everything is built again.
"""

import random
import re
from pathlib import Path

# What is easily got wrong, each as a pattern and what stands there instead. Templates and streams
# have no spaces around theirs.
_SWAPS = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "),
    (r" == ", " != "), (r" != ", " == "),
    (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"(?<=[ (])!(?=[a-z])", ""),
    (r"\b1\b", "2"), (r"\b0\b", "1"),
    (r"\+\+", "--"),
]
# A statement of its own on one line: a call or an assignment, which may be left out.
_STATEMENT = re.compile(r"^ +(?:[a-z_][\w.\[\]>()*-]*)(?:\(.*\)| [-+|&]?= .*|\+\+);$")
_NO_STATEMENT = re.compile(r"^ +(?:return|using|break|continue|const|auto|static|throw|friend)\b")
# What only says something, or is no code.
_PASSED_OVER = re.compile(r"^\s*(?://|#|using |namespace |static_assert|template|\[\[|friend )|fmt::|\"")


def places(file: Path) -> list[tuple[int, str]]:
    """Lines, by index, and what may stand in their place."""
    found: list[tuple[int, str]] = []
    for index, line in enumerate(file.read_text().split("\n")):
        code = line.split(" //")[0]
        if _PASSED_OVER.search(code):
            continue
        for pattern, instead in _SWAPS:
            for match in re.finditer(pattern, code):
                found.append((index, code[: match.start()] + instead + code[match.end():]))
        if _STATEMENT.match(code) and not _NO_STATEMENT.match(code):
            found.append((index, code[: len(code) - len(code.lstrip())] + ";"))
    return found


def draw(root: Path, folders: list[str], count: int, seed: int) -> list[tuple[str, int, str, str]]:
    """So many different ones: file, line (from 1 on), the text that is there once, what stands instead."""
    everything: list[tuple[Path, int, str]] = []
    for folder in folders:
        for file in sorted((root / folder).glob("*.cc")):
            everything += [(file, *place) for place in places(file)]
    drawn: list[tuple[str, int, str, str]] = []
    for file, index, changed in random.Random(seed).sample(everything, len(everything)):
        if len(drawn) == count:
            break
        whole = file.read_text()
        lines = whole.split("\n")
        # With lines before it until it is there once.
        for first in range(index, -1, -1):
            before = "\n".join(lines[first : index + 1])
            if whole.count(before) == 1:
                after = "\n".join([*lines[first:index], changed])
                drawn.append((str(file.relative_to(root)), index + 1, before, after))
                break
    return drawn
