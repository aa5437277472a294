"""gapless fits tries its answer with other numbers, where the host read some that nobody knows and may go by them."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

MiB = 1 << 20

TRAINS = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
x, y = torch.randn(256, 1024).cuda(), torch.arange(256).cuda()
out = model(x)
loss = torch.nn.functional.cross_entropy(out, y)
loss.backward()
print(loss.item())
"""
COUNTS = TRAINS + "print('accuracy', (out.argmax(1) == y).sum().item() / 256)\n"
# As a model of speech that says how long each sound is, which is read to make room for all.
LENGTHS = TRAINS + """
lengths = (out[0, :64] * 10).round().int()
frames = torch.zeros(1 + int(lengths.sum()), 1 << 22, device="cuda")
"""
INDEXES = TRAINS + """
names = ["no", "yes", "maybe"]
print([names[i] for i in (out[0] * 10).int().tolist()])
"""


@pytest.fixture
def fits(tmp_path):
    def run(program, *words, gpu="2GiB"):
        (tmp_path / "train.py").write_text(program)
        done = subprocess.run(
            [GAPLESS, "fits", "--gpu", gpu, "--context", "100MiB", "--allocator", "native", "--json", "rows.json", *words,
             "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        (row,) = json.loads((tmp_path / "rows.json").read_text())
        return done, row, " ".join(done.stdout.split())

    return run


def test_what_is_counted_for_print_changes_nothing(fits):
    done, row, text = fits(COUNTS)
    assert done.returncode == 0 and row["verdict"] == "yes"
    assert row["other_numbers"] == {"unknown": "noise", "fits": True, "peak_allocated_bytes": row["peak_allocated_bytes"]}
    assert ("the host read integers or flags that nobody knows once (train.py:9); with other numbers in their place "
            "(--unknown noise) it takes as much") in text


def test_a_loss_that_is_printed_needs_no_second_run(fits):
    _, row, text = fits(TRAINS)
    assert row["verdict"] == "yes" and "other_numbers" not in row and "other numbers" not in text


def test_memory_that_follows_from_them_is_not_known(fits):
    done, row, text = fits(LENGTHS)
    assert done.returncode == 3 and (row["fits"], row["verdict"], row["headroom_bytes"]) == (None, "not known", None)
    assert row["other_numbers"]["peak_allocated_bytes"] > row["peak_allocated_bytes"] + 10 * MiB
    assert "were allocated instead of" in row["reason"] and "(train.py:11)" in row["reason"] and row["reason"] in text
    done, row, _ = fits(LENGTHS, gpu="160MiB")
    assert done.returncode == 3 and row["fits"] is None and "it does not fit: " in row["reason"]
    done, row, _ = fits(LENGTHS, "--estimates")
    assert done.returncode == 0 and row["verdict"] == "yes" and "other_numbers" not in row


def test_a_program_that_cannot_do_with_others_keeps_its_answer(fits):
    done, row, text = fits(INDEXES)
    assert done.returncode == 0 and row["verdict"] == "yes" and "it did not end well" in text
