"""Does `gapless search` find the largest setting that fits? Programs of several libraries, three allocators.

    python searches.py [--programs sft_lora,dpo] [--into searches.json]

      gapless search                                     -> the largest setting that fits, and the next one
      a run of each of these on a GPU with plenty        -> its allocations and frees, recorded
      played through PyTorch's own allocators on the     -> what has to complete, and what must not; and the
      GPU that was searched                                 peak that the search has to have told

The truth is had as in verdicts.py: libc10_cuda of that torch decides, in a process without a program; for gapless, its library.
It prints a table. Needs the release build with torch_host (make peers), and
the libraries of tools/setup/libraries.txt to run with. What --into has already is not run again. Exit status 1
where an answer was wrong."""
import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

from verdicts import GAPLESS, HERE, MIB, PLENTY, TRUTH, dry_run, least_of

PROGRAMS = HERE / "programs"
EXAMPLES = HERE.parents[1] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]


@dataclasses.dataclass(frozen=True)
class Program:
    """What is run, with {} where the setting goes, on a GPU of that many MiB."""
    library: str
    gpu: int
    settings: str  # MIN:MAX[:STEP]
    command: list[str]
    key: str = ""  # in the file that the command ends with, where the setting is there

    def step(self) -> int:
        return int([*self.settings.split(":"), "1"][2])

    def searched(self) -> list[str]:
        if self.key:
            return ["--vary", f"{self.command[-1]}:{self.key}={self.settings}", "--", sys.executable, *self.command]
        return ["--vary", f"size={self.settings}", "--", sys.executable,
                *(word.format("{size}") for word in self.command)]

    def run(self, setting: int, folder: pathlib.Path) -> list[str]:
        if not self.key:
            return [sys.executable, *(word.format(setting) for word in self.command)]
        lines = [f"{self.key}: {setting}" if line.startswith(self.key) else line
                 for line in pathlib.Path(self.command[-1]).read_text().splitlines()]
        config = folder / "config.yaml"
        config.write_text("\n".join(lines))
        return [sys.executable, *self.command[:-1], str(config)]


PROGRAM_OF = {
    "sft_lora": Program("trl, peft", 1024, "1:32", [str(PROGRAMS / "sft_lora.py"), "--batch-size", "{}"]),
    "dpo": Program("trl", 3072, "1:32", [str(PROGRAMS / "dpo.py"), "--batch-size", "{}"]),
    "trainer_lora": Program("transformers, peft", 3072, "1:32", [
        str(PROGRAMS / "trainer_lora.py"), str(PROGRAMS / "trainer_lora.yaml")], "per_device_train_batch_size"),
    "lightning_gpt": Program("lightning", 4096, "1:16", [str(PROGRAMS / "lightning_gpt.py"), "--batch-size", "{}"]),
    "qwen_zero": Program("deepspeed, ZeRO-2", 4608, "1:16", [
        *TORCHRUN, str(EXAMPLES / "qwen_zero.py"), "--stage", "2", "--layers", "8", "--vocabulary", "32000", "--tokens", "512",
        "--steps", "3", "--batch", "{}"]),
    "chatlm_t5": Program("transformers, accelerate", 20050, "16:64:8", [
        str(EXAMPLES / "chatlm_t5.py"), "--steps", "12", "--batch", "{}"]),
    "qwen_qlora": Program("peft, bitsandbytes", 16384, "1:6", [
        str(EXAMPLES / "qwen_qlora.py"), "--rank", "32", "--tokens", "1024", "--batch", "{}"]),
    "gpt2_recommender": Program("transformers, DataParallel", 8192, "32:256:32", [
        str(EXAMPLES / "gpt2_recommender.py"), "--batch", "{}"]),
}


def searched(program: Program) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        found = pathlib.Path(folder, "found.json")
        done = subprocess.run(
            [GAPLESS, "search", "--gpu", f"{program.gpu}MiB", "--context", "0MiB", "--allocator", ",".join(TRUTH),
             "--jobs", "1", "--json", found, *program.searched()], capture_output=True, text=True, check=False)
        if not found.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(found.read_text())["allocators"]


def recorded(program: Program, setting: int) -> dict:
    """Of a run with plenty: for each allocator whether it completes on the GPU, and what it takes there."""
    with tempfile.TemporaryDirectory() as folder:
        command = program.run(setting, pathlib.Path(folder))
        whole = dry_run(PLENTY, "native", command, "--record", str(pathlib.Path(folder) / "run.gtrace"))
        least = least_of(whole["record"])
        others = whole["peak_used_bytes"] - whole["peak_reserved_bytes"]  # handles of libraries
        done = subprocess.run(
            [GAPLESS, "replay", "--json", "--passes", "1", "--capacity", f"{program.gpu - others // MIB}MiB",
             "--allocator", ",".join(TRUTH.values()), whole["record"]], capture_output=True, text=True, check=False)
        rows = {row["allocator"]: row for row in json.loads(done.stdout)}
    # A replay counts what was asked. PyTorch's default also leaves up to 1 MiB of a block unsplit, which is allocated then.
    peaks = {**{allocator: rows[truth]["peak_allocated_bytes"] for allocator, truth in TRUTH.items()},
             "native": whole["peak_allocated_bytes"]}
    return {allocator: {"fits": rows[truth]["fits"], "peak_allocated_bytes": peaks[allocator],
                        "least_bytes": least[truth]["lowest_capacity_bytes"] + others,
                        "enough_bytes": least[truth]["min_capacity_bytes"] + others} for allocator, truth in TRUTH.items()}


def judge(name: str) -> list[dict]:
    program = PROGRAM_OF[name]
    runs: dict[int, dict] = {}
    rows = []
    for allocator, answer in searched(program).items():
        setting = answer[f"{program.command[-1]}:{program.key}" if program.key else "size"]
        row = {"program": name, "allocator": allocator, "gpu_bytes": program.gpu * MIB, "answer": setting,
               "proven": answer["proven"], "warnings": answer["warnings"], "probes": len(answer["probes"]),
               "not_known": [probe for probe in answer["probes"] if probe["verdict"] == "not known"]}
        row["said_peak_bytes"] = answer["peak_allocated_bytes"]
        if setting is not None:
            for at in (setting, setting + program.step()):
                if at not in runs:
                    runs[at] = recorded(program, at)
            row["run"], row["next"] = runs[setting][allocator], runs[setting + program.step()][allocator]
        rows.append(row)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--programs", default=",".join(PROGRAM_OF))
    arguments.add_argument("--into", type=pathlib.Path, default=pathlib.Path("searches.json"))
    options = arguments.parse_args()
    rows = json.loads(options.into.read_text()) if options.into.exists() else []
    for name in options.programs.split(","):
        if not any(row["program"] == name for row in rows):
            rows += judge(name)
            options.into.write_text(json.dumps(rows, indent=1))
    wrong = 0
    print("| program | allocator | answer | it completes | the next one | peak told | peak of the run |\n"
          "|---|---|---|---|---|---|---|")
    for row in rows:
        size = "{:.2f} GiB".format
        gpu, run, after = row["gpu_bytes"] / 2**30, row.get("run"), row.get("next")
        if run is None:
            print(f"| {row['program']}, {gpu:g} GiB | {row['allocator']} | none | | | | |")
            continue
        wrong += not run["fits"] or (row["proven"] and after["fits"])
        proven = "" if row["proven"] else ", not proven"
        print(f"| {row['program']}, {gpu:g} GiB | {row['allocator']} | {row['answer']}{proven} | "
              f"{'yes' if run['fits'] else 'no'}, needs {size(run['enough_bytes'] / 2**30)} | "
              f"{'completes' if after['fits'] else 'fails'}, needs {size(after['least_bytes'] / 2**30)} | "
              f"{row['said_peak_bytes'] / MIB:,.2f} MiB | {run['peak_allocated_bytes'] / MIB:,.2f} MiB |")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
