"""Do dry runs say "fits" where it fits, and only there? Many models, three allocators, two GPUs each.

    python verdicts.py [--models gpt2,t5] [--settings 3] [--jobs 2] [--into rows.jsonl]

      the run itself, on a GPU with plenty     -> its allocations and frees, recorded
      played through PyTorch's own allocators  -> the least memory with which they complete: the truth
      dry run with just that, and with 1 % less than the least they ever complete with
                                               -> has to say yes, and no

The truth is not the dry run's own: libc10_cuda of that torch decides, in a process without a program
(`gapless fit --allocator torch-native,torch-expandable`; for gapless its library). It is that of the run that was
recorded, though: where reference cycles hold memory, another run of the same program takes more or less, as Python's garbage
collector comes later or earlier, and "not known" because of that is no wrong verdict. Nor is one that other runs of the same
do not share: where a dry run disagrees, it is made REPEATS times more, and where those disagree with each other the least
memory of the program lies on both sides of that capacity; such settings are counted apart. Needs the release
build with torch_host (make peers), and torch with transformers to run with. What is there in --into
already is not run again. Exit status 1 where a verdict was wrong."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GAPLESS = HERE.parents[1] / "build" / "release" / "bin" / "gapless"
TRUTH = {"native": "torch-native", "expandable": "torch-expandable", "gapless": "gapless"}
PLENTY = "170GiB"
REPEATS = 4
MIB = 1 << 20


def settings_of(model, count):
    """The same ones for a model each time: sizes, precision and optimizer drawn together."""
    draw = random.Random(model)
    found = []
    for _ in range(count):
        words = ["--batch", draw.choice([1, 2, 3, 4, 6, 8, 12, 16]), "--length", draw.choice([64, 128, 200, 256, 384, 500]),
                 "--precision", draw.choice(["fp32", "autocast", "bf16"]),
                 "--optimizer", draw.choice(["adamw", "adamw", "sgd", "adafactor"])]
        words += ["--checkpointing"] * (draw.random() < 0.25) + ["--varying"] * (draw.random() < 0.5)
        found.append([str(word) for word in words])
    return found


def dry_run(gpu, allocator, command, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "rows.json"
        done = subprocess.run([GAPLESS, "dryrun", "--gpu", gpu, "--context", "0MiB", "--allocator", allocator,
                               "--json", report, *options, "--", *command],
                              capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(done.stderr[-2000:])
        (row,) = json.loads(report.read_text())
        by_garbage = row["fits"] is None and "garbage collector" in row["reason"]
        if row["fits"] is None and not by_garbage or (done.returncode and row["fits"]):
            raise RuntimeError(str(row) + done.stderr[-2000:])
        return row


def least_of(trace):
    names = ",".join(TRUTH.values())
    done = subprocess.run([GAPLESS, "fit", "--json", "--passes", "1", "--allocator", names, trace],
                          capture_output=True, text=True, check=True)
    return {row["allocator"]: row for row in json.loads(done.stdout)}


def judge(model, words):
    command = [sys.executable, str(HERE / "models.py"), model, *words]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        whole = dry_run(PLENTY, "native", command, "--record", str(pathlib.Path(folder) / "run.gtrace"))
        least = least_of(whole["record"])
    others = whole["peak_used_bytes"] - whole["peak_reserved_bytes"]  # handles of libraries
    for allocator, truth in TRUTH.items():
        enough = least[truth]["min_capacity_bytes"]
        short = int(least[truth]["lowest_capacity_bytes"] * 0.99) // (2 * MIB) * 2 * MIB
        for capacity, fits in ((enough, True), (short, False)):
            gpu = f"{(capacity + others) // MIB}MiB"
            row = dry_run(gpu, allocator, command)
            disagrees = row["fits"] is not None and row["fits"] != fits
            again = [dry_run(gpu, allocator, command)["fits"] for _ in range(REPEATS)] if disagrees else []
            rows.append({"model": model, "setting": " ".join(words), "allocator": allocator,
                         "capacity_bytes": capacity, "truth": fits, "said": row["fits"], "said_again": again,
                         "peak_allocated_bytes": row["peak_allocated_bytes"],
                         "whole_peak_allocated_bytes": whole["peak_allocated_bytes"]})
    return rows


def is_wrong(row):
    """And stays so."""
    return row["said"] is not None and row["said"] != row["truth"] and not set(row.get("said_again", ())) - {row["said"]}


def arguments_of(doc, into):
    """What measurements of many models have in common."""
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--models", default="")
    arguments.add_argument("--settings", type=int, default=3, help="of each model")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--into", type=pathlib.Path, default=pathlib.Path(into))
    return arguments


def left_to_do(options):
    """The rows that are there already, and the models and settings without one."""
    sys.path.insert(0, str(HERE))
    names = options.models.split(",") if options.models else None
    if names is None:
        import models
        names = models.NAMES
    done = [json.loads(line) for line in options.into.read_text().splitlines()] if options.into.exists() else []
    known = {(row["model"], row["setting"]) for row in done}
    return done, [(name, words) for name in names for words in settings_of(name, options.settings)
                  if (name, " ".join(words)) not in known]


def measure(options, jobs, rows_of, done, told):
    """The rows of each setting, as rows_of(model, words) finds them, into `done` and --into, with a word about them; how
    many settings failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, options.into.open("a") as into:
        futures = {pool.submit(rows_of, *job): job for job in jobs}
        for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
            model, words = futures[future]
            try:
                rows = future.result()
            except Exception as error:
                failed += 1
                print(f"{model} {' '.join(words)}: {error}", file=sys.stderr)
                continue
            done += rows
            into.write("".join(json.dumps(row) + "\n" for row in rows))
            into.flush()
            print(f"{count}/{len(jobs)} {model} {' '.join(words)}: {told(rows)}", file=sys.stderr, flush=True)
    return failed


def main():
    options = arguments_of(__doc__, "verdicts.jsonl").parse_args()
    done, jobs = left_to_do(options)
    failed = measure(options, jobs, judge, done,
                     lambda rows: f"{sum(is_wrong(row) for row in rows)} wrong of {len(rows)}")
    yes = [row for row in done if is_wrong(row) and row["said"]]
    no = [row for row in done if is_wrong(row) and not row["said"]]
    either = [row for row in done if set(row.get("said_again", ())) - {row["said"]}]
    unknown = [row for row in done if row["said"] is None]
    for row in yes + no + either:
        print(row)
    settings = {(row["model"], row["setting"]) for row in done}
    print(f"{len({row['model'] for row in done})} models, {len(settings)} settings, {len(done) + len(settings)} dry runs: "
          f"{len(yes)} false yes, {len(no)} false no, {len(unknown)} not known, "
          f"{len(either)} another in the next run, {failed} settings that did not run")
    sys.exit(bool(yes or no or failed))


if __name__ == "__main__":
    main()
