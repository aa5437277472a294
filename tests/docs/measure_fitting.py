"""Makes the tables of docs/fitting.md: runs the programs of examples/ with `gapless dryrun` and prints Markdown.

    .venv-torch-2.11-libraries/bin/python tests/docs/measure_fitting.py [TABLE ...]

What was measured is kept in build/fitting.json and not measured again. The whole takes hours on two cores, and 12 GiB of memory for the offloaded ones (the 1.8B more).
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAPLESS = ROOT / "build/release/bin/gapless"
KEPT = ROOT / "build/fitting.json"
ALLOCATORS = ("native", "expandable", "gapless")

# A row of a table: what stands before the figures, the GPUs, the ranks of torchrun (0: none), the program's words.
Case = collections.namedtuple("Case", "name gpus ranks words")


def command(case: Case) -> list[str]:
    """As a user would type it: of several equal ranks, rank 0 runs."""
    words = ["gapless", "dryrun", "--gpu", case.gpus]
    if case.ranks > 1:
        words += ["--ranks", "0"]
    words += ["--"]
    words += ["torchrun", "--nproc-per-node", str(case.ranks)] if case.ranks else ["python"]
    return words + case.words


def measured(case: Case, allocator: str) -> dict:
    """The row of the process, or of the first of them; the worst of its GPUs."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    key = " ".join([allocator, *command(case)])
    if key in kept:
        return kept[key]
    words = command(case)
    launcher = words.index("--") + 1
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"] if case.ranks else [sys.executable]
    program = start + words[launcher + 1:]
    with tempfile.TemporaryDirectory() as folder:
        rows = pathlib.Path(folder, "rows.json")
        done = subprocess.run(
            [str(GAPLESS), *words[1:launcher - 1], "--allocator", allocator, "--json", str(rows), "--", *program], cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False)
        found = json.loads(rows.read_text()) if rows.exists() else []
    if not found:
        sys.exit(f"{key}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    row = max(found, key=lambda row: (row["fits"] is False, row["fits"] is None, row["peak_used_bytes"]))
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept[key] = {name: row[name] for name in ("fits", "verdict", "reason", "steps", "stalls", "out_of_memory", "total_bytes",
                                              "peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes")}
    KEPT.write_text(json.dumps(kept, indent=1))
    return kept[key]


def size(count: int) -> str:
    return f"{count / 2**30:.2f}"


def cell(row: dict) -> str:
    """"10.66 / 12.10"; "no: 17.91 + 0.86 in step 15", what was allocated and what was asked."""
    if row["fits"] is None:
        return "not known (garbage)" if "garbage collector" in row["reason"] else f"not known: {row['reason']}"
    if row["fits"]:
        stalls = f", {row['stalls']} stall{'s' if row['stalls'] > 1 else ''}" if row["stalls"] else ""
        return f"{size(row['peak_allocated_bytes'])} / {size(row['peak_reserved_bytes'])}{stalls}"
    request = row["out_of_memory"]
    return (f"no: {size(request['allocated_bytes'])} + {size(request['asked_bytes'])} of {size(request['reserved_bytes'])} "
            f"in step {request['step']}")


def t5(batch: int, *words: str, ranks: int = 3, gpus: str = "3x19.58GiB") -> Case:
    return Case(f"{batch}", gpus, ranks, ["examples/chatlm_t5.py", "--batch", str(batch), *words])


def qlora(gpu: int, rank: int, batch: int) -> Case:
    return Case(f"{gpu} GiB, rank {rank}, {batch} x 2,048", f"{gpu}GiB", 0,
                ["examples/qwen_qlora.py", "--rank", str(rank), "--batch", str(batch)])


def zero(gpu: int, ranks: int, model: str, stage: int, offload: str) -> Case:
    offloaded = ["--offload", offload, "--pin"] if offload != "none" else []
    told = {"none": "", "optimizer": ", optimizer offloaded", "all": ", all offloaded"}[offload]
    return Case(f"{model.upper()}, ZeRO-{stage}{told}, {ranks} rank{'s' if ranks > 1 else ''}, {gpu} GiB",
                f"{gpu}GiB" if ranks == 1 else f"{ranks}x{gpu}GiB", ranks,
                ["examples/qwen_zero.py", "--model", model, "--stage", str(stage), *offloaded])


def recommender(gpus: int, batch: int) -> Case:
    return Case(f"{gpus} GPUs, {batch:,}", f"{gpus}x16GiB", 0, ["examples/gpt2_recommender.py", "--batch", str(batch)])


STAGES = [(2, "none"), (2, "optimizer"), (3, "none"), (3, "optimizer"), (3, "all")]
SIZES = (4, 6, 8, 12, 24)
TABLES = {
    "t5": [t5(batch, "--steps", "40") for batch in (16, 24, 32, 40)],
    "t5-small": [t5(batch, "--model", "small", "--shortest", "256", "--precision", precision, "--steps", "3")
                 for precision in ("no",) for batch in (40, 64)],
    "qlora": [qlora(gpu, rank, batch) for gpu in (16, 24) for rank in (64, 32) for batch in (1, 2)],
    "recommender": [recommender(gpus, batch) for gpus in (2, 4, 8) for batch in (512, 1024, 2048)],
}
# What is offloaded of the 1.8B does not go into the memory of the machine this was measured on.
SMALLEST = {f"zero-{model}": [(ranks, model, *stage) for ranks in (1, 2) for stage in STAGES if model == "0.5b" or stage[1] == "none"]
            for model in ("0.5b", "1.8b")}


def hopeless(row: dict) -> bool:
    """Whether no allocator could have served it: what was live and asked is more than the GPU has."""
    request = row["out_of_memory"]
    context = row["peak_used_bytes"] - row["peak_reserved_bytes"]
    return row["fits"] is False and request["allocated_bytes"] + request["asked_bytes"] + context > row["total_bytes"]


def smallest(settings: tuple) -> list[str]:
    """What is live at once on the largest of SIZES; and the first on which it fits, with gapless and with native. One that is
    smaller than what is live fits with no allocator, so it is not run."""
    largest = measured(zero(SIZES[-1], *settings), "gapless")
    if not largest["fits"]:
        native = "none" if hopeless(largest) else f"none: {cell(measured(zero(SIZES[-1], *settings), 'native'))}"
        return ["", f"none: {cell(largest)}", native]
    context = largest["peak_used_bytes"] - largest["peak_reserved_bytes"]
    tried = [gpu for gpu in SIZES if gpu * 2**30 >= largest["peak_allocated_bytes"] + context]
    cells = [size(largest["peak_allocated_bytes"])]
    for allocator in ("gapless", "native"):
        parts = []
        for gpu in tried:
            row = measured(zero(gpu, *settings), allocator)
            if row["fits"]:
                parts.append(f"{gpu} GiB: {cell(row)}")
                break
            if row["fits"] is None or gpu == SIZES[-1]:
                parts.append(f"{gpu} GiB: {cell(row)}")
        cells.append("; ".join(parts))
    return cells


def main() -> None:
    for name in sys.argv[1:] or [*TABLES, *SMALLEST]:
        if name in SMALLEST:
            print(f"{name}\n\n| | live | gapless | native |\n|---|---|---|---|", flush=True)
            for settings in SMALLEST[name]:
                case = zero(SIZES[0], *settings)
                print(f"| {case.name.rpartition(', ')[0]} | {' | '.join(smallest(settings))} |", flush=True)
        else:
            print(f"{name}\n\n| | {' | '.join(ALLOCATORS)} |\n|---|{'---|' * len(ALLOCATORS)}", flush=True)
            for case in TABLES[name]:
                print(f"| {case.name} | {' | '.join(cell(measured(case, allocator)) for allocator in ALLOCATORS)} |",
                      flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
