"""torch.distributed on simulated GPUs: processes of torchrun and accelerate."""
import importlib.util
import subprocess
import time

import pytest

from conftest import GAPLESS, ROOT

PROGRAMS = ROOT / "tests" / "torch" / "programs"
LAUNCH = "import runpy, sys; sys.argv = {words!r}; runpy.run_module({module!r}, run_name='__main__')"


def launch(simulate, module, *words, **options):
    return simulate(LAUNCH.format(words=[module, *map(str, words)], module=module), OMP_NUM_THREADS="1",
                    **options)


def test_three_ranks(simulate):
    begin = time.monotonic()
    result = launch(simulate, "torch.distributed.run", "--standalone", "--nproc-per-node", 3, PROGRAMS / "distributed.py",
                    gpus="A100,A100,A100")
    tests = ("collectives", "letters", "objects", "groups", "data_parallel", "sharded", "disagreement")
    said = {name: value for name, value in result.values().items() if name[0].isdigit()}
    assert said == {f"{rank} {test}": "ok" for rank in range(3) for test in tests}, result.err
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


def test_dryrun_reports_each_rank(tmp_path, simulate):
    import json
    import sys
    report = tmp_path / "report.json"
    subprocess.run([GAPLESS, "dryrun", "--gpu", "A100,A100,A100", "--json",
                    report, "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3",
                    PROGRAMS / "distributed.py"], check=True, capture_output=True)
    rows = json.loads(report.read_text())
    trained = [row for row in rows if row["peak_allocated_bytes"]]
    assert [row["rank"] for row in trained] == [0, 1, 2]
    assert [row["device"] for row in trained] == [0, 1, 2]


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
