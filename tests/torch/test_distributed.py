"""torch.distributed on simulated GPUs: processes of torchrun and accelerate."""
import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest

from conftest import GAPLESS, ROOT

PROGRAMS = ROOT / "tests" / "torch" / "programs"
LAUNCH = "import runpy, sys; sys.argv = {words!r}; runpy.run_module({module!r}, run_name='__main__')"


def launch(simulate, module, *words, **options):
    return simulate(LAUNCH.format(words=[module, *map(str, words)], module=module), OMP_NUM_THREADS="1",
                    **options)


TESTS = ("collectives", "sums_beside_what_nobody_knows", "letters", "objects", "groups", "data_parallel", "sharded", "disagreement")
SAID = [f"{rank} {test}: ok" for rank in range(3) for test in TESTS]


@pytest.mark.one_torch
@pytest.mark.thorough
def test_three_ranks(simulate):
    begin = time.monotonic()
    result = launch(simulate, "torch.distributed.run", "--standalone", "--nproc-per-node", 3, PROGRAMS / "distributed.py",
                    gpus="A100,A100,A100")
    assert sorted(line for line in result.out.splitlines() if line[:1].isdigit()) == sorted(SAID), result.err
    assert "rank 1 all-reduce of 9" in result.err and "rank 2 all-reduce of 10" in result.err
    assert time.monotonic() - begin < 60


def test_a_rank_that_never_comes_is_not_waited_for(simulate):
    # Rank 0 of 8 alone: the usual way to look at one rank's memory.
    result = simulate("""
        import torch, torch.distributed as dist
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=8)
        flag = torch.tensor([3]).cuda()
        dist.all_reduce(flag)
        print("sum:", flag.item())
        dist.all_reduce(flag)
        dist.destroy_process_group()  # else PyTorch's watchdog runs on beside the destructors at exit
        """, SIMGPU_WAIT="1")
    assert result.values()["sum"] == "24"  # its own number, eight times
    assert result.err.count("did not come") == 1


def test_data_parallel_in_one_process(simulate):
    simulate("""
        import torch, torch.nn as nn
        model = nn.DataParallel(nn.Linear(8, 8).cuda())
        model(torch.randn(6, 8, device="cuda")).sum().backward()
        assert torch.cuda.max_memory_allocated(1) > 0
        """, gpus="A100,A100")


@pytest.mark.one_torch
def test_dryrun_reports_each_rank(tmp_path, simulate):
    report = tmp_path / "report.json"
    run = subprocess.run([GAPLESS, "dryrun", "--gpu", "A100,A100,A100", "--json",
                          report, "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3",
                          PROGRAMS / "distributed.py"], check=True, capture_output=True, text=True)
    assert set(SAID) <= set(run.stdout.splitlines()), run.stderr
    rows = json.loads(report.read_text())
    trained = [row for row in rows if row["peak_allocated_bytes"]]
    assert [row["rank"] for row in trained] == [0, 1, 2]
    assert [row["device"] for row in trained] == [0, 1, 2]


# What each rank's collectives find where some do not run, and a layer under DDP.
EQUAL = """
import os, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([1 + rank]).cuda()
dist.all_reduce(total)
half = dist.new_group(list(range(world // 2)))  # splits the world's, where all run
part = torch.tensor([10 + rank]).cuda()
dist.all_reduce(part, group=half)
found = [None] * world
dist.all_gather_object(found, rank)
print(f"{rank} found: {total.item()} {part.item()} {found}", flush=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512, device=device))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.zeros(8, 512, device=device)).sum().backward()
optimizer.step()
if os.environ.get("GROUP_OF_HOSTS"): dist.new_group(backend="gloo")
dist.destroy_process_group()
"""


def equal_ranks(folder, ranks, count, *launcher, status=0, **environment):
    """Its rows, what it printed, and what dryrun said."""
    (folder / "train.py").write_text(EQUAL)
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", f"{count}x1GiB", *ranks, "--json", "rows.json", "--", sys.executable, *launcher, "train.py"],
        cwd=folder, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads((folder / "rows.json").read_text()), done.stdout, " ".join(done.stderr.split())


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.mark.one_torch
def test_one_of_equal_ranks_has_the_peaks_of_all(tmp_path):
    all_rows, out, _ = equal_ranks(tmp_path, (), 2, *TORCHRUN, "2")
    assert "0 found: 3 10 [0, 1]" in out and "1 found: 3" in out
    (row,), out, said = equal_ranks(tmp_path, ("--ranks", "0"), 2, *TORCHRUN, "2")
    assert "0 found: 2 10 [0, 0]" in out and "1 found" not in out
    for name in "peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes", "verdict", "steps":
        assert [row[name]] * 2 == [each[name] for each in all_rows], name
    assert row["peak_allocated_bytes"] > 5 * 4 * 512 * 512  # two states, a gradient, DDP's bucket
    assert all(each["ranks_not_run"] == [] for each in all_rows) and row["ranks_not_run"] == [1]
    assert "only those of --ranks 0 ran. 1 did not: it is taken to do the same" in said


@pytest.mark.one_torch
def test_fits_tells_what_a_rank_of_fsdp_holds(tmp_path):
    (tmp_path / "train.py").write_text("""
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False, device=device) for _ in range(4)])
for layer in model: fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(2):
    model(torch.zeros(8, 1024, device=device)).sum().backward()
    spike = torch.empty(64 << 20, dtype=torch.uint8, device=device)
    del spike
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""")
    done = subprocess.run(
        [GAPLESS, "fits", "--gpu", "2x1GiB", "--allocator", "native", "--json", "rows.json", "--", sys.executable, *TORCHRUN,
         "2", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    share = 4 * 4 * 1024 * 1024 // 2
    assert [(row["rank"], row["verdict"], row["steps"]) for row in rows] == [(0, "yes", 2), (1, "yes", 2)]
    for row in rows:
        held = row["memory"]["holders"]
        assert (held["parameters"], held["gradients"]) == (share, share)
        assert 2 * share <= held["optimizer_states"] <= 2 * share + 4 * 512 and held["other"] >= 64 << 20


@pytest.mark.one_torch
@pytest.mark.thorough
def test_two_of_six_ranks_meet(tmp_path):
    rows, out, said = equal_ranks(tmp_path, ("--ranks", "0-1"), 6, *TORCHRUN, "6")
    # Those that do not run come with what rank 0 comes with: 1 + 2 + 4 x 1; 10 + 11 + 10.
    assert "0 found: 7 31 [0, 1, 0, 0, 0, 0]" in out and "1 found: 7 31 [0, 1, 0, 0, 0, 0]" in out
    assert [row["rank"] for row in rows] == [0, 1] and "2-5 did not" in said
    assert "did not come" not in said


@pytest.mark.one_torch
@pytest.mark.thorough
def test_rank_0_keeps_the_store(tmp_path):
    # As with deepspeed's launcher: processes with RANK, and a store that waits until all have come. And a group that
    # would wait for all is an error that says so.
    (tmp_path / "launch.py").write_text("""
import os, socket, subprocess, sys
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
variables = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
ranks = [subprocess.Popen([sys.executable, sys.argv[1]], env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)})
         for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
""")
    (row,), out, said = equal_ranks(tmp_path, ("--ranks", "0"), 2, "launch.py", status=1, GROUP_OF_HOSTS="1")
    assert "0 found: 2 10 [0, 0]" in out and row["ranks_not_run"] == [1] and row["steps"] == 1
    assert row["verdict"] == "not known"
    assert "a group of 2 ranks with gloo waits for those that do not run" in said


def test_ranks_that_are_none(tmp_path):
    done = subprocess.run([GAPLESS, "dryrun", "--ranks", "first", "--", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and '--ranks: "first" is no rank' in done.stderr


@pytest.mark.thorough
def test_accelerate(simulate, tmp_path):
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    program = tmp_path / "train.py"
    program.write_text("""
import torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = torch.nn.Linear(64, 64)
rows = torch.utils.data.TensorDataset(torch.randn(64, 64))
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()),
                                               torch.utils.data.DataLoader(rows, 8))
for (batch,) in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
ranks = accelerator.gather(torch.tensor([accelerator.process_index], device=accelerator.device))
assert ranks.tolist() == list(range(accelerator.num_processes)), ranks
accelerator.end_training()
print(f"processes: {accelerator.num_processes}")
""")
    result = launch(simulate, "accelerate.commands.launch", "--num_processes", 3, "--multi_gpu", "--main_process_port", 0,
                    "--mixed_precision", "bf16", "--num_machines", 1, "--dynamo_backend", "no", program,
                    gpus="A100,A100,A100")
    assert result.out.count("processes: 3") == 3
