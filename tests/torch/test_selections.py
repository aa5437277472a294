"""Sizes that follow from numbers: what a mask selects, and what is said where nothing is known of them."""
import pytest


SELECTS = """
import torch

labels = torch.tensor([-100, 4, 5, -100]).cuda()
logits = torch.zeros(4, 1 << 20, device="cuda")
known = logits[labels != -100]
assert known.shape == (2, 1 << 20), known.shape
"""


def test_a_selection_has_the_size_that_its_mask_gives_it(dryrun):
    text, rows = dryrun("--gpu", "2GiB", program=SELECTS)
    assert rows[0]["peak_allocated_bytes"] >= 24 << 20
    assert "too low" not in text and rows[0]["empty_selections"] is None


def test_a_selection_by_what_is_not_known_is_told(dryrun):
    text, rows = dryrun("--gpu", "2GiB", program=SELECTS + """
scores = torch.randn(4, device="cuda")
for _ in range(3):
    unknown = logits[scores > 0.5]
    assert len(unknown) == 0
""")
    assert ("peaks may be too low: a selection (by a mask, nonzero, unique, repeat_interleave) was empty 3 times, "
            "first here (train.py:11); numbers that no kernel computed are zeros") in text
    assert rows[0]["empty_selections"] == {"count": 3, "line": "train.py:11", "library_line": None}


@pytest.mark.parametrize("size", ["labels.unique()", "labels.unique(return_inverse=True)[0]",
                                  "torch.unique_consecutive(labels)", "torch.unique(torch.stack([labels] * 2), dim=0)",
                                  "torch.repeat_interleave(labels, torch.ones_like(labels))"])
def test_other_sizes_that_are_not_known_are_told(dryrun, size):
    text, rows = dryrun("--gpu", "2GiB", program=SELECTS + size)
    assert "peaks may be too low" in text and rows[0]["empty_selections"]["line"] == "train.py:8"


def test_a_size_that_the_program_tells_is_known(dryrun):
    text, _ = dryrun("--gpu", "2GiB", program=SELECTS + """
assert len(torch.repeat_interleave(labels, torch.ones_like(labels), output_size=4)) == 4
embedding = torch.nn.Embedding(1000, 64, device="cuda")
embedding(torch.arange(5000, device="cuda") % 1000).sum().backward()
""")
    assert "too low" not in text
