"""The parts that need no torch: what the driver answers, what it does to memory, what its calls cost, contents."""
from __future__ import annotations

import json
import pathlib
import re
from typing import Any

from .commands import Ended
from .kit import Kit
from .results import Part
from .table import duration


def tests_of(kit: Kit, pattern: str) -> list[str]:
    """The GPU tests whose names match, as gtest writes them: "Gpu.SharedMemoryIsTheSameMemory"."""
    ended = kit.run([kit.path("bin", "gpu_test"), "--gtest_list_tests", f"--gtest_filter={pattern}"], 20,
                    kit.environment())
    names, suite = [], ""
    for line in (ended.output if ended else "").splitlines():
        if line.startswith("  "):
            names.append(suite + line.split("#")[0].strip())
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    return names


def run_test(kit: Kit, part: Part, name: str, limit_s: float, **environment: str) -> str:
    """One GPU test in a process of its own, as a step: an error that lasts is then only its own. Its status."""
    report = kit.scratch / "report.json"
    report.unlink(missing_ok=True)
    ended = kit.run([kit.path("bin", "gpu_test"), f"--gtest_filter={name}", f"--gtest_output=json:{report}"], limit_s,
                    kit.environment(**environment))
    short = name.rpartition("/")[2].removeprefix("Gpu.")
    if ended is None:
        part.step(short, "not run", "the time was used up")
        return "not run"
    status, why, told = ended.status, ended.why, ""
    if ended.status in ("ok", "failed"):
        status, why, told = outcome_of(report, ended)
    part.step(short, status, why, ended.seconds, {"told": told} if told else {})
    return status


def outcome_of(report: pathlib.Path, ended: Ended) -> tuple[str, str, str]:
    """(status, why, what the test recorded as "told")."""
    try:
        suites = json.loads(report.read_text())["testsuites"]
        test = [test for suite in suites for test in suite["testsuite"]][0]
    except (OSError, json.JSONDecodeError, KeyError, IndexError):
        return "failed", f"it left no report: {ended.why}", ""
    told = test.get("told", "")
    if failures := test.get("failures"):
        return "failed", " ".join(failures[0]["failure"].split())[:400], told
    if test.get("result") == "SKIPPED":
        # gtest 1.12 reports no reasons; it prints them below "file:line: Skipped".
        said = re.search(r": Skipped\n(.*)", ended.output)
        return "skipped", said.group(1) if said else "the test says so", told
    return "ok", "", told


# --- driver, errors: the same calls, the same answers?

def read_answers(path: pathlib.Path) -> list[dict[str, Any]]:
    """Of each question the last line: a call that was made and not answered ended the process."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off
        rows[row["script"], row["asked"]] = row
    return list(rows.values())


def is_different(row: dict[str, Any]) -> bool:
    return row["real"] != row["simulated"]


def driver(kit: Kit, part: Part) -> None:
    compare_answers(kit, part, "Scripts/*")


def errors(kit: Kit, part: Part) -> None:
    """What no program may do: it comes last, for what a driver does then may outlast the process."""
    compare_answers(kit, part, "WildScripts/*")


def compare_answers(kit: Kit, part: Part, scripts: str) -> None:
    answers = kit.scratch / f"{scripts.partition('/')[0]}.jsonl"
    for name in tests_of(kit, scripts):
        script = name.rpartition("/")[2]
        report = kit.scratch / "report.json"
        report.unlink(missing_ok=True)
        ended = kit.run([kit.path("bin", "gpu_test"), f"--gtest_filter={name}", f"--gtest_output=json:{report}"],
                        kit.limit(30), kit.environment(GAPLESS_GPU_ANSWERS=str(answers)))
        if ended is None:
            part.step(script, "not run", "the time was used up")
            continue
        rows = [row for row in read_answers(answers) if row["script"] == script]
        differing = [row for row in rows if is_different(row)]
        status, why = ended.status, ended.why
        if status == "failed":
            status, why, _ = outcome_of(report, ended)
            if differing and status == "failed":
                status, why = "differs", f"{len(differing)} of {len(rows)} answers differ"
        elif rows and rows[-1]["real"] is None:
            why += f" in {rows[-1]['asked']}"
        part.step(script, status, why, ended.seconds, {"answers": len(rows), "different": len(differing)})
    rows = read_answers(answers)
    for row in rows:
        if row["real"] is None:
            row["real"] = "(never answered)"
    differing = [row for row in rows if is_different(row)]
    # An allocator goes by whether a call is made, out of memory or not ready; which error it is matters less.
    matter = [row for row in differing if not row["same_kind"]]
    part.tell(f"{len(differing)} of {len(rows)} answers differ from the simulated GPU's, {len(matter)} of them in kind",
              answers=len(rows), differences=differing)


# --- memory, costs, contents

def memory(kit: Kit, part: Part) -> None:
    for name in tests_of(kit, "Gpu.*"):
        run_test(kit, part, name, kit.limit(40))
    words = ["--simulated"] if kit.simulated else []
    _, found = kit.step(part, "torch's kernels", kit.python("beside_work.py", *words), kit.limit(60),
                        kit.torch_environment())
    steps = part.data["steps"]
    good = sum(step["status"] == "ok" for step in steps)
    held_up = found.get("held_up", "")
    part.tell(f"{good} of {len(steps)} hold{'; ' + held_up if held_up else ''}")


def costs(kit: Kit, part: Part) -> None:
    profile, rows = kit.out / "profile.json", kit.scratch / "costs.json"
    run_test(kit, part, "GpuCosts.AsAProfile", kit.limit(90), GAPLESS_GPU_PROFILE=str(profile),
             GAPLESS_GPU_COSTS=str(rows))
    if not profile.exists() or not rows.exists():
        return
    kit.step(part, "replay with them", [kit.path("bin", "gapless"), "replay", kit.path("traces", "tiny.gtrace"),
                                        "--profile", str(profile)], 20, kit.environment())
    found = json.loads(rows.read_text())

    def median(call: str, mappings: int) -> str:
        for row in found:
            if (row["call"], row["mappings"], row["beside_work"]) == (call, mappings, False):
                return duration(row["median_ns"])
        return "-"

    told = ", ".join(f"{word} {median(call, 1)}" for word, call in (
        ("create", "cuMemCreate"), ("map", "cuMemMap"), ("access", "cuMemSetAccess"), ("unmap", "cuMemUnmap")))
    part.tell(f"2 MiB: {told}; {len(found)} rows", costs=found)


def model(kit: Kit, part: Part) -> None:
    seconds = 2 if kit.quick else max(4, int(kit.limit(15)))
    for name in tests_of(kit, "*GpuModel*"):
        run_test(kit, part, name, seconds + kit.limit(40), GAPLESS_GPU_SECONDS=str(seconds))
    words = ["--seconds", str(seconds)] + (["--simulated"] if kit.simulated else [])
    kit.step(part, "torch's kernels", kit.python("contents.py", *words), seconds + kit.limit(40),
             kit.torch_environment("gapless", GAPLESS_CONF="limit:3GiB"))
    told = [step["found"]["told"] for step in part.data["steps"] if "told" in step["found"]]
    part.tell(f"every block kept what was written, in {sum(step['status'] == 'ok' for step in part.data['steps'])} of "
              f"{len(part.data['steps'])} programs", told=told)
