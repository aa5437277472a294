"""gapless fits tries its answer with other numbers, where the host read some that nobody knows and may go by them."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

MiB = 1 << 20

TRAINS = """
import torch; torch.manual_seed(0)
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


@pytest.mark.thorough
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


# A metric over what a mask chooses that nobody knows: of 1 MiB, or of more than all the rest.
CHOSEN = TRAINS + "torch.masked_select(out.detach().repeat({times}, 1), (out.detach() > 0.9).repeat({times}, 1)).mean()\n"


@pytest.mark.thorough
def test_sizes_are_tried_at_their_most(fits):
    done, row, text = fits(CHOSEN.format(times=1))
    assert done.returncode == 0 and row["verdict"] == "yes, at the most" and row["unknown"] == "most"
    assert row["headroom_bytes"] > 0 and "each is as large as it can be" in text
    read = "int((out > 0.9).sum())\n"
    done, row, text = fits(CHOSEN.format(times=1) + "torch.empty(1 << 24, device='cuda')\n" + read)
    assert done.returncode == 0 and (row["verdict"], row["unknown"]) == ("yes", "zeros")
    assert row["headroom_bytes"] > 0 and "with as many as there can be (--unknown most) it takes as much" in text
    done, row, text = fits(CHOSEN.format(times=100) + read)
    assert done.returncode == 3 and row["verdict"] == "not known" and row["other_numbers"]["unknown"] == "most"
    assert " are allocated instead of " in row["reason"] and "(train.py:9)" in row["reason"]
    done, row, text = fits(CHOSEN.format(times=100), gpu="400MiB")
    assert done.returncode == 3 and row["verdict"] == "not known" and "it does not fit" in row["reason"], row["reason"]


@pytest.mark.thorough
def test_sizes_that_have_no_most_stay_unknown(fits):
    """How often each row comes: with zeros none does, and with the most there can be none either."""
    done, row, _ = fits(TRAINS + "torch.repeat_interleave(out.detach(), (out[:, 0] * 9).long(), dim=0)\n")
    assert done.returncode == 3 and (row["fits"], row["verdict"]) == (None, "not known")


@pytest.mark.thorough
def test_with_the_other_allocators_as_well(tmp_path):
    (tmp_path / "train.py").write_text(CHOSEN.format(times=1))
    done = subprocess.run([GAPLESS, "fits", "--gpu", "2GiB", "--json", "rows.json", "--", sys.executable, "train.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert done.returncode == 0 and [row["verdict"] for row in rows] == ["yes, at the most"] * 3


def test_what_makes_sure_of_unknown_boxes_goes_on(fits):
    """As DETR's loss does before it matches them: no corner lies before the other."""
    done, row, _ = fits(TRAINS + """
low, high = out[:, :2] - out[:, 2:4] / 2, out[:, :2] + out[:, 2:4] / 2
if not (high >= low).all() or (high < low).any(): raise ValueError("boxes must be in corner format")
room = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
""")
    assert done.returncode == 0 and row["verdict"] == "yes"
    assert row["peak_allocated_bytes"] > 50 * MiB and row["other_numbers"]["fits"] is True


ASSERTS = """
same = torch.nn.functional.pad(out, (1, 1))[:, 1:-1] == out
assert same.all()
assert bool(same.all()), "text"
assert not (out > 9).any() and (out > 9).any(), out.sum() == 4
for number in range(2):
    assert out.max() > 3 or number > 5
    assert number > 5 or out.max() > 3
assert torch.tensor(True).cuda()
assert not torch.vmap(lambda x: x)(torch.tensor([False]).cuda())
"""


def test_what_a_program_asserts_holds(fits):
    """As of a padded tensor, that what lies between is what it was; where it is known, it is what it is."""
    done, row, text = fits(TRAINS + ASSERTS)
    assert (done.returncode, row["verdict"]) == (0, "yes") and "nobody knows" not in text, text
    done, row, text = fits(TRAINS + ASSERTS + "assert torch.tensor(False).cuda()")
    assert row["exception"]["type"] == "AssertionError", text
    done, row, text = fits(TRAINS + "assert out > 3")
    assert "Boolean value of Tensor with more than one value is ambiguous" in text, text


def test_on_the_host_an_assert_that_fails_is_passed_over_and_told(fits):
    """Once numbers were read that nobody knows: what is zero there may be made of such."""
    done, row, text = fits(TRAINS + "weights = out.detach().cpu()\nassert weights.min() > 0\n")
    assert (done.returncode, row["verdict"]) == (0, "yes") and "an assert failed (train.py:10) after numbers" in text, text
    done, row, text = fits(TRAINS.replace("print(loss.item())", "assert torch.zeros(3).min() > 0"))
    assert row["exception"]["type"] == "AssertionError" and done.returncode == 1, text


@pytest.mark.thorough
def test_what_is_asked_for_by_no_assert_is_a_guess(fits):
    """Nor are branches in what the assert is about."""
    done, row, text = fits(TRAINS + """
if (out > 3).all() or (out == 4).any(): raise AssertionError
assert (2 if (out > 4).all() else 3) > 1
""")
    assert (done.returncode, row["verdict"], row["estimates_from"]["steered"]) == (0, "yes", 3), text


DIVIDES = """
import torch
x = torch.randn(2048, 2048).cuda()
y = x @ x
z = torch.zeros(1 << 26, device="cuda") * (1 / y.std().item())
"""


def test_what_dies_of_zeros_is_run_with_noise(fits):
    done, row, text = fits(DIVIDES)
    assert done.returncode == 0 and (row["verdict"], row["unknown"]) == ("yes", "noise"), text
    assert row["peak_allocated_bytes"] > 512 * MiB
    assert ("with zeros in the place of numbers that nobody knows it ended with ZeroDivisionError (train.py:5), so they are "
            "noise (--unknown noise)") in text
    # What dies so or so stays as it was.
    done, row, text = fits(DIVIDES + "if not y[0, 0] < 0: raise ValueError\n")
    assert done.returncode == 1 and (row["verdict"], row["unknown"]) == ("not known", "zeros"), text
    assert "numbers that nobody knows had been read, which are zeros (--unknown noise)" in text


@pytest.mark.thorough
def test_noise_that_was_read_is_tried_with_other_noise(fits):
    _, row, text = fits(DIVIDES + "print((y > 0).sum().item())\n")
    assert (row["verdict"], row["unknown"]) == ("yes", "noise"), text
    assert row["other_numbers"]["peak_allocated_bytes"] == row["peak_allocated_bytes"]
    _, row, text = fits(DIVIDES + "frames = torch.zeros(1 + int(y[0, :64].int().sum()), 1 << 24, device='cuda')\n", gpu="8GiB")
    assert (row["verdict"], row["unknown"]) == ("not known", "noise"), text
    assert "ended with ZeroDivisionError" in text and "instead of" in row["reason"]
