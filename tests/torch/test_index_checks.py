"""Indices out of range end a program on a GPU (a kernel's assertion does not hold), so it is not one that fits."""
import pytest

WITHIN = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
ids = lambda *numbers: torch.tensor(numbers).cuda()
table = torch.randn(5000, 64, device="cuda", requires_grad=True)
rows = torch.zeros(4, 4, device="cuda")
F.embedding(ids(0, 4999), table).sum().backward()
F.cross_entropy(torch.randn(3, 10, device="cuda"), ids(9, -100, 0))
F.cross_entropy(torch.randn(1, 10, 2, device="cuda"), torch.tensor([[9, 3]]).cuda(), ignore_index=3)
F.nll_loss(torch.randn(10, device="cuda"), ids(9).squeeze())
table.detach()[ids(-5000, 4999)], rows[:, ids(3)], rows[rows > 1], rows[None, ids(0), ids(-1)]
rows[ids(-1), :] = 1
rows.index_fill_(1, ids(-4), 2.0).index_add_(0, ids(3), torch.ones(1, 4, device="cuda"))
rows.gather(1, torch.tensor([[3]]).cuda()), rows.scatter(-1, torch.tensor([[3]]).cuda(), 1.0)
unknown = (torch.randn(200, 200, device="cuda") @ torch.randn(200, 200, device="cuda")).argmax(1) * 100
F.embedding(unknown, table)  # most likely not, but nobody knows
torch.cuda.synchronize()
"""
OUTSIDE = [("F.embedding(ids(1, 5000), table)", "index 5000 in index_select, where there are 5000"),
           ("F.cross_entropy(torch.randn(2, 10, device='cuda'), ids(1, 10))", "class 10 in nll_loss_forward, where there are 10"),
           ("rows[ids(1), ids(4)]", "index 4 in index, where there are 4"),
           ("rows[ids(1), ids(-5)] = 1", "index -5 in _index_put_impl, where there are 4"),
           ("rows.gather(1, torch.tensor([[-1]]).cuda())", "index -1 in gather, where there are 4"),
           ("F.one_hot(ids(1, 5), 3)", "index 5 in scatter, where there are 3")]


def test_what_lies_within_is_as_it_was(dryrun):
    _, (row,) = dryrun("--gpu", "2GiB", program=WITHIN)
    assert row["fits"] is True and row["assertion"] is None


@pytest.mark.parametrize("more, told", OUTSIDE)
@pytest.mark.thorough(but=2)
def test_what_lies_outside_ends_the_program(dryrun, more, told):
    text, (row,) = dryrun("--gpu", "2GiB", program=WITHIN + f"{more}\ntorch.cuda.synchronize()\n", status=1)
    line = f"train.py:{WITHIN.count(chr(10)) + 1}"
    assert row["fits"] is None and (row["assertion"]["text"], row["assertion"]["line"]) == (told, line), text
    assert "CUDA error: device-side assert triggered" in row["reason"] and f"; {told} ({line}" in row["reason"]
    assert f"simgpu: {line}: {told}: a kernel's assertion does not hold" in text


def test_who_catches_the_error_has_done_nothing_more(dryrun):
    """As loops do that pass over what is wrong with one batch."""
    text, (row,) = dryrun("--gpu", "2GiB", status=0, program=WITHIN + """
try:
    F.embedding(ids(1, 5000), table)
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
""")
    assert row["fits"] is None and "a kernel's assertion does not hold" in row["reason"], text
    assert "; index 5000 in index_select, where there are 5000 (train.py:22)" in row["reason"]


def test_fits_tells_it_as_why_nothing_is_known(fits):
    said = fits("""
import torch
model = torch.nn.Sequential(torch.nn.Embedding(300, 64), torch.nn.Linear(64, 300)).cuda()
tokens = torch.tensor([[5, 299, 300]]).cuda()  # one was added, and the embedding is as it was
torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
torch.optim.AdamW(model.parameters()).step()
""", "--gpu", "2GiB", status=1)
    (row,) = said.rows
    assert row["fits"] is None and "; index 300 in index_select, where there are 300 (train.py:5" in row["reason"]
