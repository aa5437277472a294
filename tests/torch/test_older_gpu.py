"""Where only a GPU's size is given: what it is taken for, and whether an older one of that size would do."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

# Attention of 8 heads that share 4: on older GPUs it makes all scores, 512 MiB of half precision and of single.
PROGRAM = """
import sys
import torch
query = torch.randn(2, 8, 4096, 64, device="cuda", dtype=torch.half, requires_grad=True)
key = torch.randn(2, int(sys.argv[1]), 4096, 64, device="cuda", dtype=torch.half, requires_grad=True)
torch.nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=int(sys.argv[1]) != 8).sum().backward()
"""


@pytest.fixture
def fits(tmp_path):
    def run(gpu, heads):
        (tmp_path / "train.py").write_text(PROGRAM)
        done = subprocess.run(
            [GAPLESS, "fits", "--gpu", gpu, "--allocator", "gapless,native", "--json", "--", sys.executable, "train.py",
             str(heads)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return run


def test_what_an_older_gpu_of_that_size_would_not_do_is_no_plain_yes(fits):
    first, second = fits("1GiB", 4)
    for row in (first, second):
        assert (row["fits"], row["verdict"], row["compute_capability"]) == (True, "yes, on newer GPUs", "8.0")
        assert row["on_older_gpu"]["compute_capability"] == "7.5" and row["on_older_gpu"]["fits"] is False
    assert "on one of 7.5 (T4) it does not fit: 1.00 GiB asked in step 0 (train.py:6)" in first["notes"][0]
    assert "on one of 7.5 (T4) it does not fit with gapless: " in second["notes"][0]


@pytest.mark.parametrize("gpu, heads, note", [
    ("1GiB", 8, "on one of 7.5 (T4) it takes no more"), ("8GiB", 4, "GiB are allocated and fit"),
    ("A100:1GiB", 4, None)])
@pytest.mark.thorough(but=2)
def test_what_one_would_do_is(fits, gpu, heads, note):
    """Where all heads have keys of their own; where there is room, with each allocator; and where the GPU was named
    nobody asks."""
    for row in fits(gpu, heads):
        assert (row["fits"], row["verdict"]) == (True, "yes")
        assert "on_older_gpu" not in row if note is None else row["on_older_gpu"]["fits"] is True
        assert row["notes"] == [] if note is None else note in row["notes"][0]


def test_a_search_tries_the_largest_that_it_found(tmp_path):
    """What that shows holds for every allocator, is kept for another search, and is not asked of a GPU with a name."""
    (tmp_path / "train.py").write_text(PROGRAM.replace("randn(2", "randn(int(sys.argv[2])"))

    def search(gpu):
        done = subprocess.run(
            [GAPLESS, "search", "--gpu", gpu, "--allocator", "gapless,native", "--vary", "batch=2,8", "--resume",
             "found.json", "--json", "--", sys.executable, "train.py", "4", "{batch}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr, json.loads(done.stdout)["allocators"]

    for is_kept in (False, True):
        error, found = search("1GiB")
        for answer in found.values():
            assert (answer["batch"], answer["proven"], answer["verdict"]) == (8, True, "yes, on newer GPUs")
            assert sum("on one of 7.5 (T4) it does not fit with gapless, batch 8: " in each
                       for each in answer["warnings"]) == 1
            assert not any("may take more" in each for each in answer["warnings"])
        assert error.count("warning: gapless, native: only its size was given") == 1
        assert ("known from before" in error) is is_kept
    _, found = search("A100:1GiB")
    assert all(answer["verdict"] == "yes" and "T4" not in str(answer["warnings"]) for answer in found.values())


def test_dryrun_says_what_it_was_taken_for(dryrun):
    for gpu, is_told in (("1GiB", True), ("A100", False)):
        error, rows = dryrun("--gpu", gpu, program=PROGRAM, arguments=("4",))
        assert rows[0]["needs_compute_capability"] == "8.0"
        assert ("so the GPU was taken for one of compute capability 8.0" in error) is is_told


def test_cards_that_are_sold_with_that_size_have_less(dryrun):
    program = "import torch; x = torch.empty(14_900, 1 << 20, dtype=torch.uint8, device='cuda')"
    for gpu, is_told in (("16GiB", True), ("V100", False)):
        error, rows = dryrun("--gpu", gpu, program=program)
        assert rows[0]["fits"] is True
        assert ("cards sold with that have less (T4 14.74 GiB): name the card (--gpu 'T4')" in " ".join(error.split())) is is_told
