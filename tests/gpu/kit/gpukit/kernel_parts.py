"""The part of our own kernels: losses and patterns beside PyTorch's, and mistakes that checks are to find."""
from __future__ import annotations

from typing import Any

from .kit import Kit, last_words
from .results import Part
from .table import duration

# A program's mistake (programs/mistakes.py), the options, whether it ends well, and what is said.
MISTAKES = (
    ("good", "check:poison+redzones,fence:1/3", True, ""),
    ("behind", "check:redzones", True, "4 bytes were written behind the end of a block of 1000 bytes"),
    ("before", "check:redzones", True, "16 bytes were written before the begin of a block of 1048576 bytes"),
    ("after_free", "check:poison", True, "written after it was freed, the first at byte 100"),
    ("never_written", "check:poison", True, "nan: True True"),
    ("read_after_free", "check:poison", True, "word: 0xffffffff"),
    ("far_behind", "check:fence", False, "illegal"),
)


def kernels(kit: Kit, part: Part) -> None:
    words = ["--simulated"] if kit.simulated else []
    # Programs find the kernels' library as the package does, whatever allocator they have.
    environment = kit.torch_environment("gapless")
    _, losses = kit.step(part, "losses", kit.python("losses.py", *words), kit.limit(60), environment)
    _, patterns = kit.step(part, "patterns", kit.python("patterns.py", *words), kit.limit(30), environment)
    for mistake, conf, ends_well, says in MISTAKES[:3] if kit.quick else MISTAKES:
        name = f"{mistake} with {conf}"
        ended = kit.run(kit.python("mistakes.py", mistake), kit.limit(30), kit.torch_environment("gapless", GAPLESS_CONF=conf))
        if ended is None:
            part.step(name, "not run", "the time was used up")
            continue
        status, why = judge(ended.status, ended.output, ends_well, says)
        part.step(name, status, why, ended.seconds)
    part.tell(summary(losses, patterns), losses=losses.get("rows", []), patterns=patterns)


def judge(status: str, output: str, ends_well: bool, says: str) -> tuple[str, str]:
    """Whether a program with a mistake ended as it should, and was told of as it should: (status, why)."""
    if (status == "ok") != ends_well:
        return ("failed" if status == "ok" else status), f"ended: {status}; {last_words(output)}"
    found = [line for line in output.splitlines() if line.startswith("gapless: check:")]
    if not says:
        return ("ok", "") if not found else ("failed", f"a false alarm: {found[0][:200]}")
    return ("ok", "") if says in output else ("failed", f"nothing says: {says}")


def summary(losses: dict[str, Any], patterns: dict[str, Any]) -> str:
    words = []
    for row in losses.get("rows", []):
        if "ours_ns" in row:
            others = ", ".join(f"{name} {row[f'{name}_ns'] / row['ours_ns']:.2f}"
                               for name in ("eager", "compiled", "liger") if f"{name}_ns" in row)
            words.append(f"{row['type']}: {duration(row['ours_ns'])}, {100 * row['of_copy']:.0f} % of a copy's "
                         f"bandwidth; times ours: {others}")
    if "verify_ns" in patterns:
        words.append(f"verify: {100 * patterns['verify_of_copy']:.0f} %, fill: {100 * patterns['fill_of_copy']:.0f} %")
    return "; ".join(words) or "results are right"
