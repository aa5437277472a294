"""Recordings of programs that run, and what they tell others: gapless top, record and dump."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import GAPLESS, LIBRARIES, PACKAGE, PRELOAD

pytestmark = pytest.mark.one_torch

# Asks the program's own process from outside, as another program would.
ASK = """
import json, os, subprocess, sys, time, torch
def gapless(*words):
    return subprocess.run([{gapless!r}, *map(str, words)], env={{}}, capture_output=True, text=True)
me = os.getpid()
"""

TRAIN = """
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step():
    loss = model(torch.randn(256, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(5):
    step()
"""


def program(text):
    return ASK.format(gapless=str(GAPLESS)) + TRAIN + text


def inspect(file):
    done = subprocess.run([GAPLESS, "inspect", "--json", file], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[0]


def test_others_may_look_record_and_dump(simulate, tmp_path):
    values = simulate(program(f"""
import os
os.chdir({str(tmp_path)!r})
top = json.loads(gapless("top", "--once", "--json", me).stdout)["processes"][0]
now = torch.cuda.memory_stats()
device, = top["devices"]
print("same:", device["allocated_bytes"]["now"] == now["allocated_bytes.all.current"],
      device["reserved_bytes"]["peak"] == now["reserved_bytes.all.peak"], top["pid"] == me)
print("dump:", gapless("dump", "--pid", me, "-o", "now.json").returncode,
      gapless("dump", "--pid", me, "-o", "now.pickle").returncode)
print("begun:", gapless("record", "--pid", me, "-o", "later.gtrace", "--detach").returncode)
step(); step()
print("shown:", "later.gtrace" in gapless("top", "--once", me).stdout)
print("ended:", gapless("record", "--pid", me, "--stop").returncode)
print("allocated:", torch.cuda.memory_allocated())
print("again:", gapless("record", "--pid", me, "--stop").stderr.strip())
"""), gapless=True).values()
    assert values["same"] == "True True True"
    assert values["dump"] == "0 0"
    assert (values["begun"], values["shown"], values["ended"]) == ("0", "True", "0")
    assert "not being recorded" in values["again"]
    allocated = int(values["allocated"])
    for file in ("now.json", "now.pickle"):
        assert inspect(tmp_path / file)["total"]["allocated_bytes"] == allocated
    later = inspect(tmp_path / "later.gtrace")
    assert later["has_events"] and later["at_end"]["allocated_bytes"] == allocated


def test_a_container_sees_its_own_and_is_seen(tmp_path):
    """Processes, mounts and shared memory of its own, as a container has them."""
    unshare = ["unshare", "--pid", "--mount", "--ipc", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces may be made here")
    code = program(f"""
inside = json.loads(gapless("top", "--once", "--json").stdout)["processes"]
print("inside:", [one["pid"] for one in inside] == [me] and me < 100)
print("dump:", gapless("dump", "--pid", me, "-o", {str(tmp_path / "now.json")!r}).returncode)
print("allocated:", torch.cuda.memory_allocated(), flush=True)
sys.stdin.read()
""")
    preload = ":".join(map(str, [PRELOAD, *sorted(LIBRARIES.glob("*.so*"))]))
    with subprocess.Popen(
            [*unshare, "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", "env", f"LD_PRELOAD={preload}",
             "SIMGPU_GPUS=16GiB", sys.executable, "-W", "ignore", "-c", code],
            cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        said = dict(running.stdout.readline().strip().split(": ") for _ in range(3))
        top = subprocess.run([GAPLESS, "top", "--once", "--json"], capture_output=True, text=True, check=True).stdout
        running.communicate("")
    assert (said["inside"], said["dump"]) == ("True", "0")
    allocated = int(said["allocated"])
    assert inspect(tmp_path / "now.json")["total"]["allocated_bytes"] == allocated
    assert allocated in [device["allocated_bytes"]["now"] for one in json.loads(top)["processes"]
                         for device in one["devices"]]


def test_a_recording_names_the_lines_that_ask(simulate, tmp_path):
    folder = tmp_path / "recorded"
    values = simulate(program("""
torch.cuda.synchronize()
print("peak:", torch.cuda.max_memory_allocated())
print("reserved:", torch.cuda.max_memory_reserved())
print("allocated:", torch.cuda.memory_allocated())
"""), gapless=True, GAPLESS_CONF=f"record:{folder}", warm=False).values()
    file, = folder.iterdir()
    report = inspect(file)
    assert report["at_peak"]["allocated_bytes"] == int(values["peak"])
    assert report["at_end"]["allocated_bytes"] <= int(values["allocated"])  # what Python frees when it ends, too
    assert report["at_reserved_peak"]["reserved_bytes"] == int(values["reserved"])
    text = subprocess.run([GAPLESS, "inspect", file], capture_output=True, text=True, check=True).stdout
    assert "<string>:" in text
    converted = tmp_path / "c.pickle"
    subprocess.run([GAPLESS, "convert", file, "-o", converted], check=True, capture_output=True)
    assert b"AddmmBackward0" in converted.read_bytes()  # of autograd's own thread
    # With gapless once more: what it had is what it would have.
    done = subprocess.run([GAPLESS, "replay", "--allocator", "gapless", "--passes", "1", "--json", file],
                          capture_output=True, text=True, check=True)
    row, = json.loads(done.stdout)
    assert row["peak_allocated_bytes"] == int(values["peak"])


def test_python_records_what_stands_in_a_with(simulate, tmp_path):
    file = tmp_path / "part.gtrace"
    values = simulate(TRAIN.join(("import torch\n", f"""
import gapless
with gapless.record({str(file)!r}, stacks=False):
    step()
try:
    with gapless.record({str(file)!r}):
        pass
except gapless.GaplessError as error:
    print("refused:", error)
print("allocated:", torch.cuda.memory_allocated())
""")), gapless=True, PYTHONPATH=str(PACKAGE)).values()
    assert "part.gtrace" in values["refused"]
    assert inspect(file)["at_end"]["allocated_bytes"] == int(values["allocated"])


def start(code, tmp_path, **environment):
    preload = ":".join(str(path) for path in [PRELOAD, *sorted(LIBRARIES.glob("*.so*"))])
    variables = {**os.environ, "LD_PRELOAD": preload, "SIMGPU_GPUS": "16GiB", "TRITON_LIBCUDA_PATH": str(LIBRARIES),
                 **environment}
    return subprocess.Popen([sys.executable, "-c", code], env=variables, cwd=tmp_path, stdout=subprocess.PIPE, text=True)


def test_a_killed_program_leaves_its_recording(tmp_path):
    running = start(program("""
print("going", flush=True)
while True:
    step()
"""), tmp_path, GAPLESS_CONF=f"record:{tmp_path}")
    try:
        assert running.stdout.readline() == "going\n"
        file = tmp_path / f"record-{running.pid}.gtrace"
        before = time.monotonic()
        while time.monotonic() - before < 60 and file.stat().st_size < 5000:
            time.sleep(0.2)
        running.send_signal(signal.SIGKILL)
        running.wait()
    finally:
        running.kill()
        running.wait()
    report = inspect(file)
    assert report["at_peak"]["allocated_bytes"] > 20 << 20
    assert any("ended before" in warning or "within a frame" in warning for warning in report["warnings"])


def test_threads_are_recorded_whole(simulate, tmp_path):
    # One holds Python's lock, others are in requests and want to know where they come from.
    simulate("""
import threading, torch
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
def work(seed):
    kept = []
    for i in range(3000):
        kept.append(torch.empty(1024 * (1 + i % 7), device="cuda"))
        if len(kept) > 20:
            kept.clear()
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""", gapless=True, GAPLESS_CONF=f"record:{tmp_path}", timeout=60)
    report = inspect(next(tmp_path.glob("*.gtrace")))
    assert report["warnings"] == []
    assert report["events"] >= 2 * 4 * 3000
    assert report["at_end"]["allocated_bytes"] == 0
