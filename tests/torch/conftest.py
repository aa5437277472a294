"""Runs programs under the real PyTorch on simulated GPUs.

The interpreter that runs pytest is the one whose torch is tested; programs run in processes of
their own, with the libraries of build/release/lib/simgpu in front of everything.
"""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from warm import WarmPython

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "build" / "release" / "lib" / "simgpu"
PACKAGE = ROOT / "torch_plugin" / "python"
PRELOAD = LIBRARIES.parent / "libgapless_preload.so"
GAPLESS = ROOT / "build" / "release" / "bin" / "gapless"

# What dryrun() runs unless told otherwise: 100 MiB more with each of its steps.
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


def pytest_configure(config):
    config.addinivalue_line("markers", "one_torch: asks more of our own commands than of torch; CI runs it with one")
    config.addinivalue_line("markers", "long: takes minutes; it begins first, so that no other worker waits for it at the end")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


class Result:
    def __init__(self, done: subprocess.CompletedProcess):
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def values(self) -> dict[str, str]:
        """The lines "name: value" that the program printed."""
        pairs = (line.split(": ", 1) for line in self.out.splitlines() if ": " in line)
        return dict(pair for pair in pairs if len(pair) == 2)


@pytest.fixture(scope="session")
def warm_python():
    warm = WarmPython()
    yield warm
    warm.close()


@pytest.fixture
def simulate(warm_python):
    """simulate(code, gpus="16GiB", gapless=False, **environment): the Result of a Python program; gapless
    comes by LD_PRELOAD. `words`: the interpreter's arguments, in place of code. `warm`: torch is imported
    already (warm.py), which is to be left out where the import is what is tested."""

    def run(code: str, gpus: str = "16GiB", timeout: float = 120, check: bool = True, gapless: bool = False,
            words: list[str] | None = None, warm: bool = True, **environment: str) -> Result:
        preload = ":".join(str(path) for path in sorted(LIBRARIES.glob("*.so*")))
        assert preload, f"no libraries in {LIBRARIES}: build first"
        if gapless:
            assert PRELOAD.exists(), f"{PRELOAD} is not there: build with GAPLESS_TORCH_DIR"
            preload = f"{PRELOAD}:{preload}"
        variables = {**os.environ, "LD_PRELOAD": preload, "SIMGPU_GPUS": gpus,
                     "TRITON_LIBCUDA_PATH": str(LIBRARIES), **environment}
        if warm and words is None:
            done = warm_python.run(textwrap.dedent(code), variables, timeout)
        else:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", *(words or ["-c", textwrap.dedent(code)])], env=variables,
                capture_output=True, text=True, timeout=timeout, check=False)
        result = Result(done)
        if check and done.returncode != 0:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return result

    return run


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


class Said:
    def __init__(self, done, rows):
        self.status, self.out, self.err, self.rows = done.returncode, done.stdout, done.stderr, rows

    @property
    def text(self):
        """Without its lines."""
        return " ".join(self.out.split())

    @property
    def row(self):
        (row,) = self.rows
        return row


@pytest.fixture
def fits(tmp_path):
    """fits(program, *words, arguments=(), status=0): what `gapless fits` says of it, with native unless words say
    otherwise."""

    def run(program, *words, arguments=(), status=0, timeout=120):
        (tmp_path / "train.py").write_text(program)
        words = ("--allocator", "native", *words) if "--allocator" not in words else words
        done = subprocess.run(
            [GAPLESS, "fits", "--context", "100MiB", "--json", "rows.json", *words, "--", sys.executable, "train.py",
             *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return Said(done, json.loads((tmp_path / "rows.json").read_text()))

    return run
