"""Programs that the command leaves running when it ends: `nohup python train.py &`, a server that nobody ended."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

TRAIN = """
import sys
import torch
torch.manual_seed(0)
held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.fixture
def judged(tmp_path):
    """judged(command, script, status): rows of what a shell script is said to take on 1 GiB, and the text."""
    def run(command, script, status):
        (tmp_path / "train.py").write_text(TRAIN)
        (tmp_path / "run.sh").write_text(script.replace("PYTHON", sys.executable))
        done = subprocess.run(
            [GAPLESS, command, "--gpu", "1GiB", "--allocator", "native", "--context", "100MiB", "--json", "rows.json", "--",
             "bash", "run.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        rows = json.loads((tmp_path / "rows.json").read_text())
        return rows, " ".join((done.stdout + done.stderr).split())
    return run


@pytest.mark.parametrize("command", ["fits", "dryrun"])
def test_what_runs_on_in_the_background_is_judged_too(judged, command):
    rows, _ = judged(command, "PYTHON train.py 100\nnohup PYTHON train.py 2000 > log 2>&1 &\n", 3)
    assert sorted(((row["peak_allocated_bytes"] or 0) >> 20, row["fits"]) for row in rows) == [(0, False), (100, True)]
    rows, text = judged(command, "setsid sh -c 'sleep 3; exec PYTHON train.py 200' > log 2>&1 < /dev/null &\n", 0)
    assert [(row["peak_allocated_bytes"] >> 20, row["fits"]) for row in rows] == [(200, True)]
    assert "what it left running is waited for" in text


@pytest.mark.parametrize("command", ["fits", "dryrun"])
def test_what_fails_in_the_background_is_told(judged, command):
    rows, text = judged(command, "PYTHON train.py 100\nPYTHON -c 'import no_such_module' > log 2>&1 &\n", 0)
    assert [row["fits"] for row in rows] == [True]
    assert "which the command left running, ended with status 1 and used no GPU" in text


def test_a_server_that_nobody_ends_is_not_known(judged):
    rows, text = judged("fits", """
        PYTHON -c 'import torch, time; x = torch.ones(9, device="cuda"); open("up", "w"); time.sleep(1000)' > log 2>&1 &
        while [ ! -e up ]; do sleep 0.1; done
        PYTHON train.py 100
        """, 3)
    assert sorted(row["verdict"] for row in rows) == ["not known", "yes"]
    assert "it was still running when the command had ended: let the command end it, or wait for it" in text
