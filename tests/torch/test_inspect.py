"""`gapless inspect` names the causes that were planted in programs under PyTorch's own allocator."""
import json
import pickle
import subprocess

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

# Each ends with a snapshot; line numbers matter.
RECORD = """
import sys, torch
torch.cuda.memory._record_memory_history(context="all", stacks="python")
def keep(snapshot):
    torch.cuda.memory._dump_snapshot(snapshot)
def megabytes(count):
    return torch.empty(int(count * (1 << 20)), dtype=torch.uint8, device="cuda")
"""
LEAK = """
history = []
def step(number):
    activations = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
    history.append(torch.empty(3 << 20, dtype=torch.uint8, device="cuda"))
    if number == 0:
        weights.append(megabytes(64))
weights = [megabytes(100)]
for number in range(12):
    step(number)
"""
# Segments of 256 MiB, of which 2 MiB at the end are live; then a request that is larger than what is free in each.
PINNED = """
def pin():
    return torch.empty(2 << 20, dtype=torch.uint8, device="cuda")
segments = [megabytes(256) for _ in range(8)]
kept = []
while segments:
    segments.pop()
    most = megabytes(254)
    kept.append((most, pin()))
kept = [small for most, small in kept]
main = megabytes(300)
"""
# Holes of 2 MiB, each taken by 1.1 MiB: 0.9 MiB are left with the block.
CLIFF = """
many = [megabytes(2) for _ in range(500)]
del many[::2]
blocks = [megabytes(1.1) for _ in range(250)]
"""
# 1 MiB and less come from other segments than what is a little more.
TWO_POOLS = """
many = [megabytes(1) for _ in range(400)]
del many
blocks = [megabytes(1.01) for _ in range(400)]
"""
STREAMS = """
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    prefetched = megabytes(700)
side.synchronize()
del prefetched
rest = [megabytes(100) for _ in range(10)]
"""
GRAPHS = """
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    once = megabytes(900)
del once
rest = [megabytes(100) for _ in range(10)]
"""
CHANGING = """
import random
random.seed(4)
for step in range(60):
    length = random.randint(20, 300)
    layers = [megabytes(length / 4) for _ in range(8)]
    logits = megabytes(length)
    del layers, logits
"""
GOOD = """
weights = [megabytes(40) for _ in range(10)]
for step in range(20):
    layers = [megabytes(30) for _ in range(10)]
    del layers
"""


@pytest.fixture
def inspect(simulate, tmp_path):
    def of(program, *words):
        snapshot = tmp_path / "snapshot.pickle"
        simulate(f"{RECORD}{program}\nkeep({str(snapshot)!r})\n", gpus="80GiB", gapless=False)
        command = [str(GAPLESS), "inspect", *words, str(snapshot)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)[0] if "--json" in words else done.stdout

    return of


@pytest.mark.parametrize("program, cause, said", [
    (LEAK, "leak", "<string>:12 step stays, 3.00 MiB a step"),
    (PINNED, "pinned_segments", "2.00 MiB allocated at <string>:10 pin"),
    (CLIFF, "size_cliff", "requests just above that cliff, of 1.10 MiB to 1.10 MiB"),
    (TWO_POOLS, "small_pool", "cliff"),
    (STREAMS, "other_streams", "700.00 MiB is free in memory of other streams"),
    (GRAPHS, "private_pools", "900.00 MiB is free in private pools"),
    (CHANGING, "changing_sizes", "Sizes change from step to step"),
], ids=["leak", "pinned", "cliff", "two pools", "streams", "pools", "changing"])
def test_planted_causes_are_named(inspect, program, cause, said):
    findings = inspect(program, "--json", "--at", "end" if cause != "changing_sizes" else "peak")["findings"]
    assert cause in [finding["cause"] for finding in findings]
    assert said in next(finding["text"] for finding in findings if finding["cause"] == cause)


def test_what_is_well_is_not_blamed(inspect):
    causes = [finding["cause"] for finding in inspect(GOOD, "--json")["findings"]]
    assert causes[0] == "little_lost"
    assert not {"leak", "pinned_segments", "size_cliff", "changing_sizes"} & set(causes)


def test_the_peak_is_shown_with_the_programs_own_lines(inspect):
    report = inspect(LEAK, "--json")
    assert report["at"] == "peak"
    groups = {group["name"].split()[0]: group["bytes"] for group in report["groups"]}  # before 3.12 also "<listcomp>"
    assert groups["<string>:11"] == 20 * (8 << 20)


def test_a_training_steps_memory_is_told_apart(simulate, tmp_path, inspect):
    report = inspect("""
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for step in range(6):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(512, 1024, device="cuda")), torch.zeros(512, dtype=torch.long).cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""", "--json", "--at", "end")
    kinds = {kind["name"]: kind["bytes"] for kind in report["kinds"]}
    parameters = sum(p * 4 for p in [1024 * 1024, 1024]) * 8
    assert kinds["parameters"] == parameters
    assert 2 * parameters <= kinds["optimizer states"] <= 2 * parameters + 16 * 512
    assert "leak" not in [finding["cause"] for finding in report["findings"]]


def test_the_line_of_a_library_stands_beside_the_programs(tmp_path):
    """All that a trainer does comes from one line of the program's."""
    packages = "/usr/lib/python3.11/site-packages"
    functional = {"filename": f"{packages}/torch/nn/functional.py", "line": 9, "name": "gelu"}
    program = {"filename": "train.py", "line": 7, "name": "<module>"}

    def at(file, line):
        return [functional, {"filename": f"{packages}/{file}", "line": line, "name": "forward"}, program]
    stacks = [(at("llama/model.py", 3), 3), (at("llama/model.py", 8), 2), (at("peft/lora.py", 5), 1), ([functional, program], 4)]
    events = [{"action": "alloc", "addr": (i + 1) << 24, "size": mebibytes << 20, "stream": 0, "time_us": i, "frames": frames}
              for i, (frames, mebibytes) in enumerate(stacks)]
    segments = [{"device": 0, "address": event["addr"], "total_size": event["size"], "stream": 0, "segment_type": "large",
                 "allocated_size": event["size"], "active_size": event["size"],
                 "blocks": [{"size": event["size"], "requested_size": event["size"], "address": event["addr"],
                             "state": "active_allocated", "frames": event["frames"]}]} for event in events]
    file = tmp_path / "run.pickle"
    file.write_bytes(pickle.dumps({"segments": segments, "device_traces": [events]}))

    def groups(by):
        done = subprocess.run([GAPLESS, "inspect", "--try", "none", "--json", "--by", by, file], capture_output=True, text=True, check=True)
        return [(group["name"], group["bytes"] >> 20) for group in json.loads(done.stdout)[0]["groups"]]
    line = "train.py:7 <module>"
    assert groups("site") == [(line, 4), (f"{line}, in llama/model.py:3", 3), (f"{line}, in llama/model.py:8", 2),
                              (f"{line}, in peft/lora.py:5", 1)]
    assert groups("line") == [(line, 10)]
    assert groups("module") == [("llama/model.py", 5), ("train.py", 4), ("peft/lora.py", 1)]
