"""The parts that need torch: facts, the examples under three allocators, PyTorch's own tests."""
from __future__ import annotations

import json
import os
import pathlib
import platform
import shutil
import sys
from typing import Any

from .kit import ALLOCATORS, Kit, last_words
from .results import Part
from .table import gib

# Sizes that take most of a card of 80 GB, in a few steps; chosen with `gapless dryrun`. Each needs torch alone.
EXAMPLES = {
    "qwen_lora": ["--batch", "6", "--layers", "10", "--steps", "8"],
    "t5_small": ["--batch", "224", "--steps", "8"],
    "graphs": ["--layers", "20", "--width", "4096", "--heads", "32", "--prompt", "8192", "--steps", "150"],
}
QUICK = {
    "qwen_lora": ["--batch", "2", "--layers", "2", "--steps", "2"],
    "t5_small": ["--batch", "32", "--steps", "2"],
    "graphs": ["--layers", "2", "--steps", "50", "--batches", "1", "8"],
}


def facts(kit: Kit, part: Part) -> None:
    memory_kib = next((line.split()[1] for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
                       if line.startswith("MemTotal")), "0") if os.path.exists("/proc/meminfo") else "0"
    release = {}
    for line in pathlib.Path("/etc/os-release").read_text().splitlines() if os.path.exists("/etc/os-release") else []:
        name, _, value = line.partition("=")
        release[name] = value.strip('"')
    part.step("machine", "ok", found={
        "system": release.get("PRETTY_NAME", ""), "kernel": platform.release(), "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(), "python_path": sys.executable, "processors": os.cpu_count(),
        "memory_kib": int(memory_kib)})
    _, driver = kit.step(part, "driver", kit.python("facts.py", "driver"), 30, kit.environment())
    _, torch = kit.step(part, "torch", kit.python("facts.py", "torch"), 60, kit.torch_environment())
    kit.run(["nvidia-smi", "-q"], 10, kit.environment())  # into the log, where it is there
    device = driver.get("name", "no device")
    kit_device = {"device": device, "total_bytes": driver.get("total_bytes")}
    part.results.data.update(kit_device)
    part.tell(f"{device}, {gib(driver.get('total_bytes'))} GiB; driver {driver.get('driver', '?')} for CUDA "
              f"{driver.get('cuda', '?')}, torch {torch.get('torch', '?')}")


# --- examples

def compare_losses(runs: dict[str, dict[str, Any]], simulated: bool = False) -> tuple[str, str]:
    """Whether gapless computed what PyTorch's own allocators did, to the bit: (status, in words).

    Where these two do not agree with each other either, the program does not repeat itself, and nothing follows."""
    lists = {name: run["losses"] for name, run in runs.items() if run.get("losses")}
    if set(lists) != set(ALLOCATORS):
        missing = [name for name in ALLOCATORS if name not in lists]
        return "failed", f"there are no losses with {', '.join(missing)}"
    native, expandable, gapless = (lists[name] for name in ALLOCATORS)

    def first_difference(one: list[str], other: list[str]) -> int:
        return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))

    if all(float.fromhex(loss) == 0 for losses in lists.values() for loss in losses):
        return ("ok" if simulated else "failed"), "every loss is 0: nothing was computed"
    if gapless in (native, expandable):
        return "ok", f"{len(gapless)} losses are equal to the bit"
    if native == expandable:
        at = first_difference(native, gapless)
        return "differs", f"loss {at} is {gapless[at] if at < len(gapless) else 'missing'} with gapless, else " \
                          f"{native[at] if at < len(native) else 'missing'}"
    at = first_difference(native, expandable)
    return "ok", f"not comparable: native and expandable differ too, from loss {at} on"


def examples(kit: Kit, part: Part) -> None:
    chosen = QUICK if kit.quick else EXAMPLES
    rows, compared = [], []
    for name, words in chosen.items():
        runs = {}
        for allocator in ALLOCATORS:
            ended, found = kit.step(part, f"{name}, {allocator}",
                                    kit.python("example.py", kit.path("examples", f"{name}.py"), *words), kit.limit(60),
                                    kit.torch_environment(allocator, CUBLAS_WORKSPACE_CONFIG=":4096:8"))
            if ended is None:
                continue
            expected = "gapless" if allocator == "gapless" else "native"
            if found and found.get("backend") != expected:
                part.step(f"{name}, {allocator}: its allocator", "failed", f"it ran with {found.get('backend')}")
            runs[allocator] = found
            rows.append({"example": name, "allocator": allocator, "status": ended.status, **found})
            part.tell("", runs=rows)
        if runs:
            status, why = compare_losses(runs, kit.simulated is not None)
            if status == "failed" and len(runs) < len(ALLOCATORS):
                status = "not run"
            part.step(f"{name}: the same numbers", status, "" if status == "ok" else why, found={"words": why})
            compared.append(f"{name}: {why}")
    part.tell("; ".join(compared), runs=rows)


# --- PyTorch's own tests

def upstream(kit: Kit, part: Part) -> None:
    folder = pathlib.Path(kit.path("upstream"))
    outcomes: dict[str, dict[str, str]] = {}
    modules = {"test_newer": [], "test_cuda": ["--list", str(folder / "native-2.11.txt"),
                                               "--except", str(folder / "exceptions-2.11.txt")]}
    exceptions = [line.split()[0] for line in (folder / "exceptions-2.11.txt").read_text().splitlines() if line.strip()]
    jobs = 1 if kit.simulated else max(1, min(6, (os.cpu_count() or 2) // 2))
    for module, words in modules.items():
        if not (folder / f"{module}.py").exists():
            part.step(module, "skipped", "PyTorch's own text is not in this kit")
            continue
        seconds = max(5.0, min(kit.limit(80), kit.left_s() - 40))  # the errors are still to come
        if kit.quick:
            words = words + ["--most", "3"]
        report = kit.scratch / f"{module}.json"
        command = [sys.executable, str(folder / "run.py"), str(folder), "--module", module, "--all", "--fresh",
                   "--may-skip", "--jobs", str(jobs), "--seconds", f"{seconds:.0f}", "--json", str(report), *words]
        more = {"PYTHONPATH": f"{folder}:{kit.path('python')}"}
        if shutil.which("addr2line") is None:  # which torch calls for stack traces of C++
            more["TORCH_SYMBOLIZE_MODE"] = "dladdr"
        ended = kit.run(command, seconds + 60, kit.torch_environment("gapless", **more))
        if ended is None:
            part.step(module, "not run", "the time was used up")
            continue
        found = json.loads(report.read_text()) if report.exists() else {}
        for name, one in found.items():
            if one["outcome"] == "failed" and name in exceptions:
                one["outcome"] = "excepted"
        outcomes.update(found)
        counts = count(found)
        why = ended.why
        if ended.status == "failed":
            wrong = sorted(name for name, one in found.items() if one["outcome"] == "failed")
            why = f"{len(wrong)} fail: {', '.join(wrong)[:200]}" if wrong else last_words(ended.output)
        part.step(module, ended.status, why, ended.seconds, {"counts": counts})
    counts = count(outcomes)
    part.tell(", ".join(f"{number} {word}" for word, number in sorted(counts.items())), outcomes=outcomes)


def count(outcomes: dict[str, dict[str, str]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in outcomes.values():
        counts[one["outcome"]] = counts.get(one["outcome"], 0) + 1
    return counts
