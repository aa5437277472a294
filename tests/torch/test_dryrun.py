"""gapless dryrun, as a user runs it."""
import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import PACKAGE, ROOT

GAPLESS = ROOT / "build" / "release" / "bin" / "gapless"

PROGRAM = """
import sys
import torch
kept = []
parameter = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(int(sys.argv[1])):
    kept.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
"""


@pytest.fixture
def dryrun(tmp_path):
    """dryrun(*words, program=..., arguments=...): (exit status, standard error, rows)."""

    def run(*words, program=PROGRAM, arguments=("8",), status=0):
        (tmp_path / "train.py").write_text(program)
        rows = tmp_path / "rows.json"
        done = subprocess.run(
            [GAPLESS, "dryrun", "--json", rows, *words, "--", sys.executable, "train.py", *arguments],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stderr
        return done.stderr, json.loads(rows.read_text()) if rows.exists() else None

    return run


def test_a_program_that_fits(dryrun):
    text, rows = dryrun("--gpu", "2GiB", "--context", "200MiB")
    assert "Sizes are real; numbers computed are not." in text
    (row,) = rows
    assert row["fits"] and row["exit_status"] == 0 and row["steps"] == 8
    assert row["total_bytes"] == 2 << 30
    assert row["peak_allocated_bytes"] == 800 * (1 << 20) + 3 * 4096  # parameter, gradients
    assert row["peak_reserved_bytes"] == 802 << 20
    assert row["peak_used_bytes"] == 1002 << 20


def test_one_that_does_not(dryrun):
    text, rows = dryrun("--gpu", "T4:1GiB", "--context", "200MiB", arguments=("20",), status=3)
    (row,) = rows
    assert not row["fits"] and row["name"] == "Tesla T4"
    oom = row["out_of_memory"]
    assert (oom["asked_bytes"], oom["step"], oom["line"]) == (100 << 20, 8, "train.py:8")
    assert "no: 100.00 MiB asked in step 8 (train.py:8)" in text
    assert "torch.OutOfMemoryError: CUDA out of memory." in text  # the program's own


def test_one_that_catches_it(dryrun):
    program = PROGRAM.replace("for step", "try:\n  for step").replace("    ", "      ") + """
except torch.OutOfMemoryError:
  print("caught")
"""
    _, rows = dryrun("--gpu", "1GiB", program=program, arguments=("20",))
    assert not rows[0]["fits"] and rows[0]["exit_status"] == 0


@pytest.mark.parametrize("allocator", ["native", "expandable", "async"])
def test_each_allocator(dryrun, allocator):
    _, rows = dryrun("--gpu", "2GiB", "--allocator", allocator)
    assert rows[0]["allocator"] == allocator
    assert 800 << 20 <= rows[0]["peak_allocated_bytes"] <= 803 << 20


def test_one_that_installs_gapless_itself(dryrun, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    _, (row,) = dryrun("--gpu", "2GiB", program="import gapless\ngapless.install()\n" + PROGRAM)
    assert row["allocator"] == "gapless"


def test_recorded_history_is_a_trace(dryrun, tmp_path):
    dryrun("--gpu", "2GiB", "--record", str(tmp_path / "run.pickle"))
    (snapshot,) = tmp_path.glob("run.*.pickle")
    done = subprocess.run([GAPLESS, "replay", snapshot, "--allocator", "native", "--json"],
                          capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    assert row["peak_reserved_bytes"] == 802 << 20


def test_children_are_reported_too(dryrun):
    program = """
import subprocess, sys, torch
if len(sys.argv) > 2:
    x = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
else:
    x = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
    subprocess.run([sys.executable, "train.py", "child", "300"], check=True)
"""
    _, rows = dryrun("--gpu", "2GiB", program=program, arguments=())
    assert sorted(row["peak_allocated_bytes"] >> 20 for row in rows) == [10, 300]


def test_a_loop_that_waits_for_a_value_is_named(dryrun):
    program = """
import torch
for i in range(1500):
    y = torch.rand(1, device="cuda")
    if y.item() == 12345: break
"""
    text, _ = dryrun("--gpu", "1GiB", program=program)
    assert "train.py:5 has read back data that no kernel computed, 1,000 times" in text


def test_wrong_words_are_named(dryrun):
    for words, message in ((("--gpu", "A1000"), '"A1000" is no GPU'),
                           (("--context", "much"), '--context: "much" is no size'),
                           (("--allocator", "best"), "--allocator: best not in")):
        text, _ = dryrun(*words, status=2)
        assert message in text
    done = subprocess.run([GAPLESS, "dryrun", "--", "no-such-program"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "no-such-program: cannot be run: No such file or directory" in done.stderr
    done = subprocess.run([GAPLESS, "dryrun", "--", "true"], capture_output=True, text=True,
                          env=os.environ, check=False)
    assert done.returncode == 0
    assert "the program used no GPU" in done.stderr


def test_a_torch_without_cuda_is_named(dryrun, tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("class version: cuda = None\n__version__ = '2.11.0+cpu'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text, rows = dryrun("--gpu", "1GiB", program="import torch")
    assert "torch 2.11.0+cpu was built without CUDA: install the CUDA build" in text
    assert rows == []


def test_a_runtime_linked_into_the_program_is_named(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    source = tmp_path / "program.cu"
    source.write_text("int main() { int count; return cudaGetDeviceCount(&count); }")
    for kind, words in (("static", "has the CUDA runtime linked into it"), ("shared", "")):
        program = tmp_path / kind
        subprocess.run(["nvcc", "-cudart", kind, "-o", program, source], check=True)
        done = subprocess.run([GAPLESS, "dryrun", "--", program], capture_output=True, text=True, check=False)
        assert words in done.stderr
        assert (done.returncode == 0) == (kind == "shared")


def test_unknown_workspaces_make_peaks_lower_bounds(dryrun):
    text, rows = dryrun("--gpu", "2GiB", program="""
import torch
torch.nn.functional.conv2d(torch.zeros(1, 3, 8, 8, device="cuda"), torch.zeros(4, 3, 3, 3, device="cuda"))
""")
    assert "peaks are lower bounds: workspaces of libcudnn.so.9 are not counted" in text
    assert rows[0]["unknown_workspaces"] == ["libcudnn.so.9"]


def test_processes_share_their_gpus(dryrun):
    program = """
import subprocess, sys
import torch
if len(sys.argv) > 1:
    try:
        torch.empty(800 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("refused", torch.cuda.mem_get_info()[0] >> 20, file=sys.stderr)
else:
    kept = torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
    subprocess.run([sys.executable, "train.py", "child"], check=True)
    del kept
    torch.cuda.empty_cache()
    subprocess.run([sys.executable, "train.py", "child"], check=True)
"""
    text, _ = dryrun("--gpu", "2GiB", "--context", "200MiB", program=program, arguments=())
    assert text.count("refused") == 1
    assert "refused 748" in text  # 2048 - 900 - twice 200
