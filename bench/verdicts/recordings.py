"""What do gapless and PyTorch's allocators reserve for models as people train them?

    python recordings.py [--models gpt2,t5] [--settings 3] [--jobs 2] [--into rows.jsonl] [--keep FOLDER]

      a training of models.py, on a GPU with plenty  -> its allocations and frees, recorded
      `gapless replay --passes 5`, `gapless fit`     -> reserved, and least capacity, over allocated

The settings are those of verdicts.py, drawn for each model by its name. Nothing was tuned by looking at these. What is there already
in --into is not recorded again. With --keep the recordings stay, for `gapless replay` and others. Needs the release build,
and torch with transformers to run with."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import verdicts

ALLOCATORS = ("gapless", "native", "expandable")
GIB = 1 << 30


def gapless(*words):
    done = subprocess.run([verdicts.GAPLESS, *words, "--allocator", ",".join(ALLOCATORS), "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr[-2000:])
    return {row["allocator"]: row for row in json.loads(done.stdout)}


def figures_of(model, words, keep):
    command = [sys.executable, str(verdicts.HERE / "models.py"), model, *words]
    with tempfile.TemporaryDirectory() as folder:
        where = keep or pathlib.Path(folder)
        name = "_".join([model, *(word.lstrip("-") for word in words)])
        recorded = verdicts.dry_run(verdicts.PLENTY, "native", command, "--record", str(where / f"{name}.gtrace"))
        replays = gapless("replay", "--passes", "5", recorded["record"])
        fits = gapless("fit", recorded["record"])
    row = {"model": model, "setting": " ".join(words), "allocated_bytes": replays["gapless"]["peak_allocated_bytes"]}
    for allocator in ALLOCATORS:
        row[allocator] = {"over_percent": replays[allocator]["overhead_percent"],
                          "least_percent": fits[allocator]["over_percent"],
                          "calls_pass_5": replays[allocator]["last_pass_driver_calls"],
                          "first_pass_ms": replays[allocator]["driver_ns"] / 1e6}
    return row


def sums(rows, figure):
    """Mean, median, 90th percentile and worst, of each allocator."""
    told = {}
    for allocator in ALLOCATORS:
        values = sorted(row[allocator][figure] for row in rows)
        told[allocator] = (statistics.mean(values), statistics.median(values), values[len(values) * 9 // 10], values[-1])
    return told


def table(rows):
    text = "| | " + " | ".join(ALLOCATORS) + " |\n| --- | --- | --- | --- |\n"
    for name, figure, digits in (("reserved over allocated, %", "over_percent", 2),
                                 ("least capacity over allocated, %", "least_percent", 2),
                                 ("driver calls in the fifth pass", "calls_pass_5", 0),
                                 ("driver time of the first pass, a100, ms", "first_pass_ms", 0)):
        of = sums(rows, figure)
        text += f"| {name} | " + " | ".join(", ".join(f"{value:.{digits}f}" for value in of[a]) for a in ALLOCATORS) + " |\n"
    better = sum(row["gapless"]["least_percent"] <= min(row[a]["least_percent"] for a in ALLOCATORS[1:]) for row in rows)
    return text + f"| least capacity no more than the better of the other two | {better} of {len(rows)} recordings | | |\n"


def groups(rows):
    """By size: what is lost is a number of pages, most of which do not grow with a program."""
    parts = {"below 1 GiB": (0, GIB), "1 to 4 GiB": (GIB, 4 * GIB), "4 GiB and more": (4 * GIB, 1 << 60)}
    for name, (least, most) in parts.items():
        of = [row for row in rows if least <= row["allocated_bytes"] < most]
        if of:
            yield f"{len(of)} recording{'s' if len(of) > 1 else ''} {name}", of


def main():
    arguments = verdicts.arguments_of(__doc__, "recordings.jsonl")
    arguments.add_argument("--keep", type=pathlib.Path, help="folder for the recordings")
    options = arguments.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    done, jobs = verdicts.left_to_do(options)
    failed = verdicts.measure(options, jobs, lambda model, words: [figures_of(model, words, options.keep)], done,
                              lambda rows: f"{rows[0]['gapless']['over_percent']:.2f} %")
    for name, rows in groups(done):
        print(f"\n{name}: mean, median, p90, worst\n\n{table(rows)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
