"""What the parts found, as text of 80 columns."""
from __future__ import annotations

from typing import Any

from .table import duration, gib, table

MOST_ROWS = 60  # of a table; results.json has them all


def text(data: dict[str, Any]) -> str:
    """The parts come last: that is what is left of a long output."""
    parts = data["parts"]
    blocks = []
    for name, make in (("costs", costs), ("memory", beside_work), ("driver", differences), ("errors", differences),
                       ("examples", examples)):
        if name in parts and (block := make(parts[name])):
            blocks.append(block)
    if bad := bad_steps(parts):
        blocks.append("Not as it should be:\n\n" + table(("part", "step", "result", "why"), bad))
    rows = [(name, part["status"], f"{part['seconds']:.0f} s", found_in(part)) for name, part in parts.items()]
    blocks.append(table(("part", "result", "time", "what was found"), rows, right=(2,)))
    return "\n\n".join(blocks) + "\n"


def found_in(part: dict[str, Any]) -> str:
    return ". ".join(words for words in (part.get("summary", ""), part.get("why", "")) if words)


def bad_steps(parts: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows = [(name, step["name"][:24], step["status"], step["why"]) for name, part in parts.items()
            for step in part["steps"] if step["status"] not in ("ok", "differs")]
    return rows[:MOST_ROWS]


def differences(part: dict[str, Any]) -> str:
    rows = [(row["script"][:16], row["asked"],
             f"{short(row['real'])}; simulated: {short(row['simulated'])}") for row in part.get("differences", [])]
    if not rows:
        return ""
    lines = [f"{script}: {asked}\n    {answer}" for script, asked, answer in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        lines.append(f"and {len(rows) - MOST_ROWS} more")
    return "What the driver answers, and what the simulated GPU does:\n\n" + "\n".join(lines)


def short(answer: Any) -> str:
    return str(answer).replace("CUDA_ERROR_", "").replace("CUDA_SUCCESS", "ok")


def beside_work(part: dict[str, Any]) -> str:
    rows = next((step["found"]["beside"] for step in part["steps"] if "beside" in step["found"]), [])
    if not rows:
        return ""
    return "Mapping beside torch's kernels:\n\n" + table(
        ("what", "alone", "beside work", "found"),
        [(row["what"], duration(row["alone_ns"]), duration(row["beside_ns"]), row["found"]) for row in rows],
        right=(1, 2))


def costs(part: dict[str, Any]) -> str:
    """A line for each call and size; the columns are how many mappings the call is over."""
    columns = [(1, False), (64, False), (1024, False), (1, True), (64, True)]
    rows: dict[tuple[str, int], dict[tuple[int, bool], str]] = {}
    for row in part.get("costs", []):
        cells = rows.setdefault((row["call"].removeprefix("cu"), row["bytes"]), {})
        cells[row["mappings"], row["beside_work"]] = duration(row["median_ns"])
    if not rows:
        return ""
    return "What calls cost (median), over so many mappings, alone and beside work:\n\n" + table(
        ("call", "each of", "1", "64", "1024", "1, work", "64, work"),
        [(call[:24], size(count), *(cells.get(column, "") for column in columns))
         for (call, count), cells in rows.items()], right=(1, 2, 3, 4, 5, 6))


def size(count: int) -> str:
    for unit, bytes_ in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_:
            return f"{count // bytes_} {unit}"
    return f"{count} B" if count else ""


def examples(part: dict[str, Any]) -> str:
    rows = [(run["example"], run["allocator"], gib(run.get("peak_allocated")), gib(run.get("peak_reserved")),
             gib(run.get("peak_used")), duration(run["step_ns"]) if run.get("step_ns") else "-",
             run.get("out_of_memory") or run["status"]) for run in part.get("runs", [])]
    if not rows:
        return ""
    return "Examples (GiB):\n\n" + table(
        ("example", "allocator", "allocated", "reserved", "used", "step", ""), rows, right=(2, 3, 4, 5))
