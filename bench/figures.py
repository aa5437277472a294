#!/usr/bin/env python3
"""Write docs/measurements.md: what gapless does today, beside PyTorch's allocators in the same run.

  bench/figures.py                  three minutes on two cores; after `make bench`, which builds what it runs
  bench/figures.py --quick          a few programs and one turn, in half a minute: whether it works
  bench/figures.py --into page.md   somewhere else; '-' is standard output

Every table stands below the command that measures it.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "release" / "bin"
TRACES = "examples/traces/*.gtrace"
GIB = 1 << 30
ALLOCATORS = ("gapless", "native", "expandable")
Row = dict[str, Any]

HEAD = """# Measurements

What gapless does today, beside PyTorch's allocators in the same run: `native` and `expandable` are models of them, equal to the
originals call for call ([simulated-gpu.md](simulated-gpu.md)). Written by `bench/figures.py` ({when}, {machine}).
Times vary by a fifth from run to run; compare within a table, not across. Nothing here was measured on a GPU yet.

What was tried, and what was measured by other commands, is a file for each question:

{experiments}"""

# What the corpus calls its figures, and we in the page: with how many digits, and what is done by us alone.
FIGURES = {
    "over_percent": ("reserved over allocated, %", 2),
    "least_percent": ("least capacity over allocated, %", 2),
    "tight_fails_percent": ("programs that do not complete at 1.02 x, %", 1),
    "tight_stalls": ("stalls of those that do, 4 passes", 0),
    "calls_pass_5": ("driver calls in the fifth pass", 0),
    "calls_pass_10": ("in the tenth", 0),
    "first_pass_a100_ms": ("driver time of the first pass, a100, ms", 0),
    "first_pass_desktop_ms": ("the same, desktop", 0),
}

# Programs of streams_bench that belong together, by how their names begin.
KINDS = {
    "offload-sync-": "offloading, the host waits each step",
    "offload-10-": "offloading, ten side streams",
    "offload-": "offloading, 1 to 3 side streams",
    "fsdp-": "gather, compute, reduce",
    "serve-": "serving, 2 and 4 streams",
}


def run(*words: object) -> str:
    """What a command prints; it is told on standard error, for it may take minutes."""
    text = [str(word) for word in words]
    began = time.monotonic()
    print("+", " ".join(text), file=sys.stderr, flush=True)
    done = subprocess.run(text, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: some allocator was out of memory, which is a figure too
        sys.exit(f"{text[0]} ended with status {done.returncode}")
    print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr)
    return done.stdout


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *[list(row) for row in rows]]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, told: str, *tables: str) -> str:
    lines = textwrap.fill(told, 140, break_long_words=False, break_on_hyphens=False)
    return f"\n## {title}\n\n{lines}\n\n" + "\n".join(tables)


def recorded_runs(most: int) -> str:
    names = ",".join(ALLOCATORS)
    traces = sorted(path.relative_to(ROOT) for path in ROOT.glob(TRACES))[-most:]
    replays = json.loads(run(BIN / "gapless", "replay", *traces, "--allocator", names, "--passes", "5", "--json"))
    fits = json.loads(run(BIN / "gapless", "fit", *traces, "--allocator", names, "--json"))
    by_trace: dict[str, dict[str, Row]] = {}
    for row in replays:
        by_trace.setdefault(row["trace"], {})[row["allocator"]] = row
    for row in fits:
        by_trace[row["trace"]][row["allocator"]]["least_percent"] = row["over_percent"]
    rows = []
    for name, of in sorted(by_trace.items()):
        allocated = of["gapless"]["peak_allocated_bytes"]
        cells = [name, f"{allocated / GIB:.2f} GiB"]
        for allocator in ALLOCATORS:
            row = of[allocator]
            least = row.get("least_percent")
            told = "?" if least is None else f"{least:.2f}"
            cells.append(f"{row['overhead_percent']:.2f}, {told}")
        cells.append(str(of["gapless"]["last_pass_driver_calls"]))
        cells.append(" / ".join(f"{of[allocator]['driver_ns'] / 1e6:.0f}" for allocator in ALLOCATORS))
        rows.append(cells)
    above = [of for of in by_trace.values() if of["gapless"]["peak_allocated_bytes"] > GIB]
    sums = []
    for allocator in ALLOCATORS:
        over = [of[allocator]["overhead_percent"] for of in above]
        least = [of[allocator]["least_percent"] for of in above if of[allocator].get("least_percent") is not None]
        sums.append(f"{allocator} {statistics.mean(over):.2f} % (worst {max(over):.2f}) and "
                    f"{statistics.mean(least):.2f} % ({max(least):.2f})")
    return section(
        "Recorded runs",
        f"`gapless replay {TRACES} --allocator {names} --passes 5` and `gapless fit` of the same: reserved over allocated and least "
        "capacity over allocated, in percent; gapless's driver calls in the fifth pass; driver time of the first pass in ms by the a100 "
        f"profile, gapless / native / expandable. Above 1 GiB: {'; '.join(sums)}.",
        table(["recording", "allocated", *ALLOCATORS, "calls", "first pass"], rows))


def corpus(programs: int) -> str:
    text = run(BIN / "corpus", "--keep", "", "--programs", programs, "--figures", "all", "--no-recordings", "--json")
    tables = json.loads(text)["tables"]
    parts = []
    for group in "seen, above 1 GB", "unseen, above 1 GB":
        of = tables.get(group, {}).get("allocators")
        if of is None:
            parts.append(f"{group}: too few to tell.\n")
            continue
        rows = []
        for figure, (name, digits) in FIGURES.items():
            cells = [name]
            for allocator in ALLOCATORS:
                sums = of[allocator].get(figure)
                kinds = ("mean", "p90", "p99", "worst") if not figure.startswith("tight_fails") else ("mean",)
                cells.append("" if sums is None else ", ".join(f"{sums[kind]:.{digits}f}" for kind in kinds))
            rows.append(cells)
        better = tables[group].get("least_never_more_than_better_peer")
        if better is not None:
            rows.append(["least capacity no more than the better of the other two",
                         f"{better['programs']} of {better['of']} programs", "", ""])
        number = of["gapless"]["over_percent"]["programs"]
        parts.append(table([f"{group}: {number}", *ALLOCATORS], rows))
    return section(
        "Generated programs",
        f"`corpus --programs {programs} --figures all --no-recordings` ([corpus.md](corpus.md)): mean, p90, p99 and worst. Nothing was tuned by looking "
        "at the unseen half.",
        *parts)


def several_streams(iterations: int) -> str:
    names = tuple(reversed(ALLOCATORS))
    with tempfile.TemporaryDirectory() as folder:
        def of(*words: object) -> list[Row]:
            path = pathlib.Path(folder) / "rows.json"
            run(BIN / "streams_bench", "--iterations", iterations, "--json", path, *words)
            rows: list[Row] = json.loads(path.read_text())
            return rows
        free = of("--allocator", *names)
        tight = of("--allocator", *names, "--headroom", "2")

    def kind_of(row: Row) -> str:
        return next(told for begin, told in KINDS.items() if row["program"].startswith(begin))

    def cell(rows: list[Row], figure: str) -> str:
        values = [row[figure] for row in rows if row["fits"]]
        return f"{statistics.mean(values):.1f} ({max(values):.1f})" if values else ""

    rows = []
    for kind in dict.fromkeys(KINDS.values()):
        cells = [kind]
        for allocator in ALLOCATORS:
            mine = [row for row in free if row["allocator"] == allocator and kind_of(row) == kind]
            cells.append(f"{cell(mine, 'overhead_percent')} / {cell(mine, 'lost_percent')}")
        cells.append(str(sum(row["maps"] for row in free if row["allocator"] == "gapless" and kind_of(row) == kind)))
        for allocator in ALLOCATORS:
            mine = [row for row in tight if row["allocator"] == allocator and kind_of(row) == kind]
            cells.append(f"{sum(row['fits'] for row in mine)} of {len(mine)}")
        rows.append(cells)
    violations = sum(row["violations"] for row in free + tight if row["allocator"] == "gapless")
    return section(
        "Several streams",
        f"`streams_bench --iterations {iterations} --allocator {' '.join(names)}`, then with `--headroom 2` (a capacity of 1.02 x peak live): "
        "programs on the virtual clock, the host running ahead. Reserved over live and time lost against unlimited memory, in percent, mean "
        f"(worst); pages that gapless maps once it is warm; how many complete at 1.02 x. Accesses out of order: {violations}.",
        table(["", *ALLOCATORS, "maps", *[f"1.02 x: {allocator}" for allocator in ALLOCATORS]], rows))


def host_time(turns: int, seconds: float) -> str:
    text = run(BIN / "fast_path_bench", "--benchmark_format=json", f"--benchmark_repetitions={turns}",
               "--benchmark_enable_random_interleaving=true", f"--benchmark_min_time={seconds}",
               "--benchmark_filter=(pair|churn)/(gapless|native)/(mixed|small)/(1|1000|100000)$")
    least: dict[str, float] = {}
    for row in json.loads(text)["benchmarks"]:
        if row["run_type"] == "iteration":
            name = row["run_name"]
            least[name] = min(least.get(name, float("inf")), row["real_time"])
    rows = []
    for kind in "pair", "churn":
        for sizes in "mixed", "small":
            cells = [f"{kind}, {sizes}"]
            for live in 1, 1000, 100000:
                mine, theirs = (least[f"{kind}/{allocator}/{sizes}/{live}"] for allocator in ("gapless", "native"))
                cells.append(f"{mine:.0f} / {theirs:.0f} = {mine / theirs:.2f}")
            rows.append(cells)
    return section(
        "Host time",
        "`fast_path_bench`: ns for an allocation and a free, gapless (with lock, address map and all statistics) over the native model (with "
        f"neither lock nor statistics), the least of {turns} turns that alternate, beside so many live blocks. *pair*: of one block; *churn*: one of the "
        "live ones is replaced.",
        table(["", "1", "1,000", "100,000"], rows))


def machine() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "a processor that does not tell its name"
    names = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    return f"{', '.join(sorted(names))}, {sum(line.startswith('processor') for line in lines)} processors"


def title_of(path: pathlib.Path) -> str:
    return path.read_text().splitlines()[0].removeprefix("# ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few programs and one turn")
    parser.add_argument("--into", default="docs/measurements.md", help="the page; '-': standard output")
    options = parser.parse_args()
    missing = [name for name in ("gapless", "corpus", "streams_bench", "fast_path_bench") if not (BIN / name).exists()]
    if missing:
        sys.exit(f"not built: {', '.join(missing)} (make bench builds them)")
    experiments = sorted((ROOT / "docs" / "experiments").glob("*.md"))
    links = "".join(f"- [{title_of(path)}](experiments/{path.name})\n" for path in experiments)
    page = HEAD.format(when=time.strftime("%Y-%m-%d"), machine=machine(), experiments=links)
    quick = options.quick
    page += recorded_runs(2 if quick else 1000)
    page += corpus(24 if quick else 150)
    page += several_streams(5 if quick else 24)
    page += host_time(1, 0.001) if quick else host_time(7, 0.05)
    if options.into == "-":
        sys.stdout.write(page)
    else:
        (ROOT / options.into).write_text(page)


if __name__ == "__main__":
    main()
