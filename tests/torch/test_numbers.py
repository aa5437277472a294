"""What the host reads back is right where it can be known, and what follows from what nobody knows is told."""
import json
import pathlib
import shutil
import subprocess

import pytest

from conftest import ROOT

PROGRAMS = ROOT / "tests" / "torch" / "programs"


def test_what_follows_from_the_hosts_numbers_is_right(simulate):
    program = PROGRAMS / "known_numbers.py"
    values = simulate(f"import runpy; runpy.run_path({str(program)!r})").values()
    assert len(values) > 100
    assert {name: value for name, value in values.items() if value != "ok"} == {}


WRITES_IN_PART = """
import torch

ids = torch.empty(4, dtype=torch.long, device="cuda")
ids[torch.tensor([True, False, True, True]).cuda()] = torch.tensor([5, 6, 7]).cuda()
assert ids[0].item() == 5 and ids[2:].tolist() == [6, 7]
ids.index_put_((torch.tensor([0, 2]).cuda(),), torch.tensor([1, 1]).cuda(), accumulate=True)
assert ids[2].item() == 7
ids.scatter_add_(0, torch.tensor([0]).cuda(), torch.tensor([1]).cuda())
"""


def test_what_is_written_to_some_places_is_known_there(dryrun):
    """And nowhere else; what is added to a number that nobody knows is not known."""
    _, rows = dryrun("--gpu", "2GiB", program=WRITES_IN_PART)
    assert rows[0]["fits"] is True and rows[0]["estimates_from"] is None
    for more in ("ids[1].item()", "ids.index_put_((ids[3:] - 6,), ids[3:].clone(), accumulate=True); ids[1].item()",
                 "torch.empty_like(ids).scatter_(0, ids, ids).tolist()"):
        _, rows = dryrun("--gpu", "2GiB", program=WRITES_IN_PART + more)
        assert (rows[0]["estimates_from"]["kind"], rows[0]["estimates_from"]["line"]) == ("integer", "train.py:10")


LARGE_RESULTS = """
import resource, torch

def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB

place = torch.arange(20000, device="cuda")
before = resident()
torch.zeros(20000, 0, device="cuda") @ torch.zeros(0, 20000, device="cuda")  # the gradient of an expert that got nothing
apart = place[:, None] - place  # how far one is from another, for a bias
angles = torch.outer(place[:16000] * 0.5, place[:16000] * 0.25)
partly = torch.empty_like(place)
partly[:4] = place[:4]
apart = partly[:, None] - partly
assert resident() - before < 200 * 1024, resident() - before
few = place[:2000, None] - place[:2000]
assert few[7, 5].item() == 2
"""


def test_what_is_too_large_to_be_kept_is_not_computed(dryrun):
    """A mixture of experts took the host's memory for gradients of experts that got nothing: zeros, which are known."""
    _, rows = dryrun("--gpu", "24GiB", program=LARGE_RESULTS)
    assert rows[0]["fits"] is True and rows[0]["estimates_from"] is None


BY_ELEMENT = """
import torch

given = torch.tensor([3, 4]).cuda()
computed = (torch.randn(8, 1 << 20, device="cuda") @ torch.randn(1 << 20, 8, device="cuda")).long()
lengths, ids = torch.empty_like(given), torch.empty_like(computed)
torch._foreach_copy_([ids, lengths], [computed, given])
assert lengths.tolist() == [3, 4]
torch._foreach_add_([lengths, ids], [2, 5])
assert lengths.tolist() == [5, 6]
torch._foreach_add_([ids, lengths, torch.randn(8, 1 << 20, device="cuda")], 1)
assert torch._foreach_mul([ids, lengths], torch.tensor(2).cuda())[1].tolist() == [12, 14]
"""


def test_what_is_done_with_many_is_known_of_those_that_are_known(dryrun):
    """sglang copies the lengths of its texts together with what was computed."""
    _, rows = dryrun("--gpu", "2GiB", program=BY_ELEMENT)
    assert rows[0]["fits"] is True and rows[0]["estimates_from"] is None, rows[0]
    for more in ("ids[0, 0].item()", "torch._foreach_add([lengths, ids], 1)[1].tolist()",
                 "torch._foreach_mul_([lengths], ids[0, 0]); lengths.tolist()"):
        _, rows = dryrun("--gpu", "2GiB", program=BY_ELEMENT + more)
        assert (rows[0]["estimates_from"]["kind"], rows[0]["estimates_from"]["line"]) == ("integer", "train.py:13"), more


IN_PART = """
import torch

loss = (torch.randn(8, 1 << 20, device="cuda") @ torch.randn(1 << 20, 8, device="cuda")).mean()
count = torch.tensor(32.0).cuda()
sums = torch.stack([loss, count])
rows = torch.stack([sums, sums.half() + 1])
known = [sums[1], (sums * 2)[1] / 2, (sums / sums[1])[1] * 32, rows.sum(0)[1] - 33, rows.mean(0)[1] - 0.5, sums.flip(0).cumsum(0)[0],
         torch.cat([sums, loss[None]]).long()[1], sums[torch.tensor([1, 0]).cuda()][0], rows.t().contiguous()[1, 0],
         torch.zeros(3, device="cuda").index_add(0, torch.tensor([2, 1]).cuda(), sums)[1], sums[None].expand(3, 2).clamp(min=1)[2, 1]]
assert [float(number) for number in known] == [32.0] * len(known)
flags = sums.long() == 32
assert flags[1].item() and not (sums > 33).logical_not().logical_not()[1]
ids = torch.cat([torch.tensor([3, 4]).cuda(), loss.long()[None]])
assert ids[:2].tolist() == [3, 4] and (ids.view(3, 1) + ids)[:2, :2].tolist() == [[6, 7], [7, 8]]
"""


def test_of_numbers_of_which_some_are_known_these_stay_known(dryrun):
    """A count beside a loss, a prompt before the words that follow it."""
    text, rows = dryrun("--gpu", "2GiB", program=IN_PART)
    assert (rows[0]["fits"], rows[0]["estimates_from"]) == (True, None), text
    noise = "assert sums.tolist()[1] == 32 and sums.tolist()[0] > 0 and sums[:, None].expand(2, 3).tolist()[0][2] > 0"
    text, rows = dryrun("--gpu", "2GiB", "--unknown", "noise", program=f"{IN_PART}{noise}; loss.expand(3, 3).tolist()")
    assert rows[0]["fits"] is True, text
    for more in ("flags[0].item()", "ids[2].item()", "ids.sum().item()", "ids.cumsum(0).tolist()", "(ids.view(3, 1) + ids)[0, 2].item()",
                 "(ids - ids).tolist()", "ids.index_add(0, torch.tensor([0, 0, 2]).cuda(), ids, alpha=-1)[2].item()",
                 "sums.sum(dtype=torch.int8).item()", "(ids * 0).sum().item()",
                 "torch.tensor([0, 1]).cuda().index_select(0, ids[2:] % 2).item()", "ids.index_put((ids % 2,), ids).tolist()"):
        _, rows = dryrun("--gpu", "2GiB", program=IN_PART + more)
        found = rows[0]["estimates_from"]
        assert (found["kind"], found["line"]) == ("flag" if "flags" in more else "integer", "train.py:16"), more


UNKNOWN = """
import torch

numbers = torch.randn(8, 1 << 20, device="cuda") @ torch.randn(1 << 20, 8, device="cuda")
"""


@pytest.mark.parametrize("made", ["numbers.unique()", "torch.isin(numbers, torch.arange(99.0).cuda())",
                                  "torch.matrix_exp(numbers.view(4, 4, 4))"])
@pytest.mark.thorough(but=2)
def test_of_numbers_that_nobody_knows_one_at_least_differs(dryrun, made):
    """Operators that others are made of die where there is none."""
    _, rows = dryrun("--gpu", "2GiB", program=f"{UNKNOWN}assert {made}.numel() > 0")
    assert (rows[0]["end"]["status"], rows[0]["estimates_from"]["kind"]) == (0, "size")


@pytest.mark.parametrize("unknown", ["zeros", "noise", "most"])
@pytest.mark.thorough(but=1)
def test_matrices_that_nobody_knows_can_be_factored(dryrun, unknown):
    """And what the program looks at to see that they could is no number that it steers by."""
    solves = """
torch.linalg.inv(numbers), torch.linalg.cholesky(numbers), torch.linalg.solve(numbers, numbers)
torch.linalg.lu_factor(numbers), torch.linalg.eigh(numbers), torch.linalg.matrix_power(numbers, -2)
"""
    error, rows = dryrun("--gpu", "2GiB", "--unknown", unknown, program=UNKNOWN + solves)
    assert (rows[0]["fits"], rows[0]["estimates_from"]) == (True, None), error


SPARSE = """
import torch

places = torch.tensor([[0, 1, 1], [2, 0, 0]]).cuda()
nobody_knows = (torch.randn(3, 1 << 20, device="cuda") @ torch.randn(1 << 20, 4, device="cuda")).long().t()[:2]
matrix = lambda places: torch.sparse_coo_tensor(places, torch.ones(3, device="cuda"), (4, 4), check_invariants=False)
assert matrix(places).coalesce()._nnz() == 2
"""


def test_places_of_sparse_tensors_that_nobody_knows_are_told(dryrun):
    """All of them are taken to differ."""
    _, rows = dryrun("--gpu", "2GiB", program=SPARSE)
    assert rows[0]["fits"] is True and rows[0]["estimates_from"] is None
    for more in ("assert matrix(nobody_knows).coalesce()._nnz() == 3", "matrix(places) @ matrix(places)",
                 "matrix(places).coalesce().to_sparse_csr() @ matrix(places).coalesce().to_sparse_csr()",
                 "matrix(places).index_select(0, torch.tensor([1]).cuda())"):
        _, rows = dryrun("--gpu", "2GiB", program=SPARSE + more)
        assert (rows[0]["estimates_from"]["kind"], rows[0]["estimates_from"]["line"]) == ("size", "train.py:8")
        assert rows[0]["fits"] is None
    _, rows = dryrun("--gpu", "2GiB", "--unknown", "most", program=SPARSE + "assert matrix(nobody_knows).coalesce()._nnz() == 3")
    assert rows[0]["fits"] is True and rows[0]["estimates_from"]["bounded"] == 1


SELECTS = """
import torch

labels = torch.tensor([-100, 4, 5, -100]).cuda()
logits = torch.zeros(4, 1 << 20, device="cuda")
known = logits[labels != -100]
assert known.shape == (2, 1 << 20), known.shape
assert labels.unique().tolist() == [-100, 4, 5]
assert len(torch.repeat_interleave(labels, torch.ones_like(labels))) == 4
logits.sum().item()
"""


@pytest.mark.thorough
def test_sizes_are_told_where_nobody_knows_what_they_follow_from(dryrun):
    text, rows = dryrun("--gpu", "2GiB", program=SELECTS)
    assert rows[0]["peak_allocated_bytes"] >= 24 << 20 and rows[0]["computes_numbers"] is True
    assert "estimate" not in text and rows[0]["unknown"] == "zeros"
    assert rows[0]["estimates_from"] == {"kind": "number", "count": 1, "bounded": 0, "steered": 0, "step": 0,
                                         "line": "train.py:10", "library_line": None}

    text, rows = dryrun("--gpu", "2GiB", program=SELECTS + """
scores = logits @ logits.t()
if (scores.sum() > 1):
    pass
for _ in range(3):
    assert len(logits[scores[0] != scores[1]]) == 4
    assert len(logits[torch.isnan(scores[0])]) == 0
""")
    assert ("peaks are estimates from here: the size of a tensor followed from numbers that nobody knows (by a mask, "
            "nonzero, unique, repeat_interleave) 3 times, first in step 0 (train.py:16)") in text
    assert rows[0]["estimates_from"] == {"kind": "size", "count": 3, "bounded": 0, "steered": 1, "step": 0,
                                         "line": "train.py:16", "library_line": None}
    assert (rows[0]["fits"], rows[0]["verdict"]) == (None, "not known") and text.count("peaks are estimates") == 1

    text, rows = dryrun("--gpu", "2GiB", "--unknown", "noise", program=SELECTS + """
scores = logits @ logits.t()
if scores.sum() > 1:
    pass
assert scores[0].tolist() != [0, 0, 0, 0]
""")
    assert "a flag that nobody knows was read once in step 0 (train.py:13): if the program branches by it" in text
    assert rows[0]["estimates_from"]["kind"] == "flag" and rows[0]["unknown"] == "noise"


def test_that_numbers_are_finite_is_certain(dryrun):
    """Trainers look at each loss so."""
    text, rows = dryrun("--gpu", "1GiB", program="""
import torch
loss = (torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")).mean()
if torch.isnan(loss) or torch.isinf(loss) or not torch.isfinite(loss) or loss != loss or loss == float("-inf"):
    raise SystemExit("not finite")
assert len(torch.zeros(3, device="cuda")[torch.isfinite(loss).expand(3)]) == 3
""")
    assert rows[0]["verdict"] == "yes" and "estimate" not in text and "flag" not in text
    text, rows = dryrun("--gpu", "1GiB", program="""
import torch
loss = (torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")).mean()
print(bool(loss > 100))
""")
    assert rows[0]["estimates_from"]["kind"] == "flag"
    text, rows = dryrun("--gpu", "1GiB", program="""
import torch
scores = torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")
print(scores.int().sum().item())
""")
    assert rows[0]["verdict"] == "yes" and rows[0]["estimates_from"]["kind"] == "integer"
    assert "an integer that nobody knows was read once in step 0 (train.py:4): if memory goes by it, peaks are estimates from here" in text


# Of 4,194,304 numbers, which are too many to compute.
FINITE = """
import torch
x = torch.randn(4096, 1024, device="cuda") @ torch.randn(1024, 1024, device="cuda")
assert not torch.isnan(x).any().item() and torch.isfinite(x).all().item() and not (x != x).any().item() and not torch.isinf(x).any().item()
assert (x == x).all().item() and (x.abs() < float("inf")).all().item() and not (x > float("inf")).any().item()
assert torch.isnan(x).sum().item() == 0 and torch.isfinite(x).sum().item() == x.numel()
assert torch.isfinite(x).sum(dim=1).tolist() == [1024] * 4096
assert torch.isfinite(x).reshape(-1).all().item() and torch.isfinite(x)[3:].all().item() and torch.isfinite(x).all(dim=1).all().item()
ok = torch.isfinite(x)
assert len(x[ok]) == x.numel() and len(x[~ok]) == 0 and len(x[ok.all(dim=1)]) == 4096
assert len(torch.zeros(3, 1, 1, device="cuda").masked_select(ok)) == 3 * x.numel()
assert ok.nonzero().shape == (x.numel(), 2) and (ok | ~ok).all().item() and not (ok & ~ok).any().item()
with torch.autograd.set_detect_anomaly(True):
    (x.requires_grad_() * 2).relu().sum().backward()
"""
NO_MORE = """
bad = torch.isnan(x)
bad |= x > 0
bool(bad.any())
"""


@pytest.mark.parametrize("more, line", [("", None), (NO_MORE, "train.py:18"), ("bool((x > 3).any())", "train.py:15")])
@pytest.mark.one_torch
def test_however_many_they_are(dryrun, more, line):
    _, (row,) = dryrun("--gpu", "2GiB", program=FINITE + more)
    assert row["verdict"] == "yes" and (row["estimates_from"] or {"line": None})["line"] == line


SCALED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 2048)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for step in range(2):
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.randn(512, 2048, device="cuda")).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item() ** 0.5 >= 0  # also where nobody knows it
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 65536 and len(optimizer.state) == 4
print(loss, f"{(loss > 0.5).sum()} {loss:.3f}", model[0].weight.grad)
"""


@pytest.mark.parametrize("unknown", ["zeros", "noise"])
@pytest.mark.thorough(but=1)
def test_no_gradient_is_infinite_for_a_scaler_and_no_text_is_steered_by(dryrun, unknown):
    text, rows = dryrun("--gpu", "2GiB", "--unknown", unknown, program=SCALED)
    assert rows[0]["fits"] is True and rows[0]["steps"] == 2, text
    assert rows[0]["estimates_from"]["kind"] == "number" and "estimates" not in text


COMPILED = """
import torch, warnings
warnings.simplefilter("error", UserWarning)
@torch.compile
def told(x):
    y = x * 2
    text = f"{y.sum()} {y[0, :2]}"
    assert (y[0] @ x[0]) > -1
    return y + 1, text
assert len(told(torch.ones(64, 64, device="cuda"))) == 2
"""


@pytest.mark.one_torch
def test_compiled_code_may_make_texts_and_assert(dryrun):
    _, rows = dryrun("--gpu", "1GiB", program=COMPILED)
    assert rows[0]["fits"] is True


def test_what_is_drawn_again_until_it_lies_between_bounds_ends(dryrun):
    """As trunc_normal_ of newer versions draws: of numbers that nobody knows, but which were drawn, it is known how
    large they are."""
    _, (row,) = dryrun("--gpu", "1GiB", program="""
import torch
w = torch.empty(512, 512, device="cuda")
for bounds in (0.06, 0.5, 100.0): torch.nn.init.trunc_normal_(w, std=0.02, a=-bounds, b=bounds)
torch.nn.init.trunc_normal_(w, std=1, a=5, b=6)
w.normal_(0, 0.02)
while ((w < -0.06) | (w > 0.06)).any(): w.normal_(0, 0.02)
while not (w.uniform_(-0.1, 0.1) < 0.2).all(): pass
assert ((w + 1) > 0.3).all().item() and (w.add_(1) > 0.3).all().item()  # as of any unknown number
""")
    assert row["verdict"] == "yes", row


# The backward pass of masked_scatter is a masked_select of gradients, which nobody knows.
MASKED = """
import torch
mask = torch.tensor([True, False, True, True]).cuda()
unknown = torch.randn(4, 4, device="cuda") @ torch.randn(4, 4, device="cuda")
assert len(torch.masked_select(unknown[0], mask)) == 3
assert len(unknown.masked_select(mask)) == len(unknown.masked_select(mask[:, None])) == 12  # broadcast
kept = torch.randn(3, device="cuda", requires_grad=True)
(torch.zeros(4, device="cuda").masked_scatter(mask, kept) * unknown[0]).sum().backward()
assert len(torch.bincount(mask.long(), weights=unknown[0])) == 2
"""


def test_a_size_follows_from_the_mask_whatever_it_is_applied_to(dryrun):
    text, rows = dryrun("--gpu", "1GiB", program=MASKED)
    assert rows[0]["verdict"] == "yes" and "estimate" not in text


# As torchmetrics counts what was taken for what.
TOLD = """
import torch
scores = torch.randn(4096, 1024, device="cuda") @ torch.randn(1024, 1024, device="cuda")
classes = scores.argmax(-1) % 10
assert len(torch.bincount(classes * 10 + classes, minlength=100)) == 100
assert len(torch.bincount(scores[:8].long().flatten(), minlength=100)) == 100
assert len(scores.repeat_interleave(classes, dim=0, output_size=9999)) == 9999
"""


def test_what_a_program_tells_of_sizes_itself_is_known(dryrun):
    text, (row,) = dryrun("--gpu", "2GiB", program=TOLD)
    assert row["verdict"] == "yes" and "estimate" not in text, text
    for more in ("torch.bincount(classes)", "torch.bincount(classes, minlength=3)", "scores.repeat_interleave(classes, dim=0)"):
        _, (row,) = dryrun("--gpu", "2GiB", program=TOLD + more)
        assert (row["estimates_from"]["kind"], row["estimates_from"]["line"]) == ("size", "train.py:8")


MOST = SELECTS + """
scores = (logits @ logits.t())[0]
kept = scores > 0.9
assert len(logits[kept]) == len(logits[~kept]) == 4
assert len(scores.masked_select(kept)) == len(scores.unique()) == 4 and len(torch.ones(3, 1).cuda().masked_select(kept)) == 12
assert len(scores.view(2, 2).unique(dim=1)[0]) == 2 and len(scores.view(2, 2).unique_consecutive()) == 4
"""
READ = MOST + """
assert kept.nonzero().tolist() == [[0], [1], [2], [3]] and int(kept.sum()) == 3
assert (scores.view(2, 2) > 0.9).nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
assert (scores.view(2, 2) > 0.9).sum(1).tolist() == [0, 0]
"""


@pytest.mark.one_torch
def test_as_many_are_chosen_as_there_can_be(dryrun):
    """So what fits then fits whatever the numbers are; what does not may fit all the same."""
    text, (row,) = dryrun("--gpu", "2GiB", "--unknown", "most", program=MOST)
    assert (row["fits"], row["verdict"], row["unknown"]) == (True, "yes, at the most", "most")
    assert row["estimates_from"]["kind"] == "bound" and row["estimates_from"]["line"] == "train.py:14"
    assert "each is as large as it can be (--unknown most)" in text

    grows = MOST + "many = torch.cat([logits[kept]] * 40)\n"
    text, (row,) = dryrun("--gpu", "500MiB", "--context", "0", "--unknown", "most", status=1, program=grows)
    assert (row["fits"], row["verdict"]) == (None, "not known")
    assert "with as many chosen, by masks and the like, as there can be (--unknown most) it does not fit: 640.00" in text
    text, (row,) = dryrun("--gpu", "2GiB", "--unknown", "most", program=MOST + "logits.repeat_interleave(scores.long(), dim=0)\n")
    assert (row["fits"], row["estimates_from"]["kind"]) == (None, "size")  # these have no most


@pytest.mark.parametrize("more, kind", [("", "bound"), ("if kept.any(): pass", "flag")])
@pytest.mark.thorough(but=1)
def test_what_steers_by_numbers_may_do_more(dryrun, more, kind):
    """A text that is taken to end at its first word is the shortest there is: what the host reads may mean less work."""
    text, (row,) = dryrun("--gpu", "2GiB", "--unknown", "most", program=READ + more)
    assert (row["fits"], row["estimates_from"]["kind"]) == (None, kind) and row["estimates_from"]["steered"] >= 4
    assert "integers or flags that nobody knows were read back" in text
    _, (row,) = dryrun("--gpu", "2GiB", "--unknown", "most", "--estimates", program=READ + more)
    assert (row["fits"], row["verdict"]) == (True, "yes, by estimates")


EXPERTS = """
import torch
router = torch.nn.Linear(64, 8, device="cuda")
hidden = torch.randn(1024, 64, device="cuda")
chosen = router(hidden).topk(2, dim=-1).indices
loads = [len(torch.where(chosen == expert)[0]) for expert in range(8)]
open("loads.json", "w").write(str(loads))
"""


@pytest.mark.one_torch
def test_experts_are_chosen_in_turn_or_with_a_skew_or_by_chance(dryrun, tmp_path):
    loads = {}
    for words in ((), ("--skew", "0.5"), ("--unknown", "noise")):
        text, rows = dryrun("--gpu", "1GiB", "--estimates", *words, program=EXPERTS)
        assert (rows[0]["fits"], rows[0]["verdict"]) == (True, "yes, by estimates") and "peaks are estimates" in text
        loads[words] = json.loads((tmp_path / "loads.json").read_text())
        assert sum(loads[words]) == 2048
        assert rows[0]["estimates_from"]["kind"] == "size" and rows[0]["estimates_from"]["line"] == "train.py:6"
    balanced, skewed, random = loads.values()
    assert balanced == [256] * 8
    assert skewed[0] == 384 and max(skewed[1:]) - min(skewed[1:]) <= 1
    assert len(set(random)) > 1 and all(150 < load < 400 for load in random)


STEP = """
import sys, torch
from torch import nn
torch.manual_seed(1)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = nn.Sequential(nn.Embedding(200, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 200)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.randint(0, 200, (8, 32)).cuda()
    labels = ids.masked_fill(ids > 150, -100)
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print("host:", torch.rand(4).tolist())
stats = torch.cuda.memory_stats()
print("memory:", [stats[f"{name}.all.{what}"] for name in ("allocated_bytes", "allocation", "requested_bytes")
                  for what in ("peak", "allocated")])
print("numbers:", torch.arange(3, device="cuda").tolist())
"""


@pytest.mark.one_torch
@pytest.mark.thorough
def test_memory_is_the_same_where_numbers_are_not_computed(simulate, tmp_path):
    """The libraries in another folder, without the one that computes numbers."""
    from conftest import LIBRARIES
    for library in LIBRARIES.glob("*.so*"):
        (tmp_path / library.name).symlink_to(library)
    computed = simulate(STEP).values()
    elsewhere = ":".join(str(path) for path in sorted(tmp_path.glob("*.so*")))
    without = simulate(STEP, LD_PRELOAD=elsewhere).values()
    assert computed.pop("numbers") == "[0, 1, 2]" and without.pop("numbers") == "[0, 0, 0]"
    assert computed == without and "memory" in computed


def test_what_a_kernel_of_triton_only_reads_stays_known(dryrun):
    """And what it wrote does not. A scheduler that looked a step up among those of a compiled model was "not known"."""
    _, (row,) = dryrun("--gpu", "1GiB", program="""
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count) + 1, mask=at < count)

@torch.compile
def triple(x, y):
    y.mul_(3)
    return x + 1

def is_known(x):
    return x.tolist()[:3] == [0, 1, 2]

x, y, z = (torch.arange(100).cuda() for _ in range(3))
triple(x, y)
assert [is_known(x), is_known(y), is_known(z)] == [True, False, True]
add[(1,)](x, z, 100, BLOCK=128)
assert [is_known(x), is_known(z)] == [True, False]
""")
    assert row["fits"] is True


@pytest.mark.parametrize("program", ["generate.py", "experts.py"])
@pytest.mark.thorough(but=1)
def test_models_that_steer_by_numbers_run_to_their_end(simulate, program):
    values = simulate(f"import runpy; runpy.run_path({str(PROGRAMS / program)!r})").values()
    assert values and {name: value for name, value in values.items() if value != "ok"} == {}


def run_extension(simulate, folder, *images):
    """What extension.py prints, with the extension built for these architectures."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    library = folder / "extension.so"
    subprocess.run(["nvcc", *images, "-cudart", "shared", "-shared", "-Xcompiler", "-fPIC", "-o", library,
                    PROGRAMS / "extension.cu"], check=True)
    return simulate(f"import runpy, sys; sys.argv[1:] = [{str(library)!r}]\n"
                    f"runpy.run_path({str(PROGRAMS / 'extension.py')!r})").values()


@pytest.mark.one_torch
@pytest.mark.parametrize("more", ([], ["-Xfatbin", "-compress-all"]))
def test_what_an_extensions_machine_code_may_have_written_is_not_known_any_more(simulate, tmp_path, more):
    values = run_extension(simulate, tmp_path, "-gencode", "arch=compute_80,code=sm_80", *more)
    assert values == {"by_pointers": "[2, 0]",  # the first is const
                      "by_structure": "[0, 0]", "by_plain_name": "[0, 0]",
                      "captured": "[2, 2]", "replayed": "[2, 0]", "unknown": "[0, 0]"}


@pytest.mark.one_torch
def test_an_extensions_kernels_are_run_where_they_come_as_ptx(simulate, tmp_path):
    assert run_extension(simulate, tmp_path, "-arch=sm_75") == {
        "by_pointers": "[2, 2, [0, 1, 2, 1]]", "by_structure": "[2, 2, [0, 2, 2, 2]]", "by_plain_name": "[2, 2, [0, 1, 1, 1]]",
        "captured": "[2, 2]", "replayed": "[2, 2, [0, 2, 4, 2]]", "unknown": "[0, 0]"}


def test_what_is_compiled_at_run_time_is_run(simulate):
    """By the real NVRTC, where there is one: torch's jiterator, and kernels in a program's own text."""
    if not pathlib.Path("/usr/local/cuda/lib64/libnvrtc.so.13").exists():
        pytest.skip("no NVRTC")
    result = simulate("""
        import torch
        x = torch.arange(5, device="cuda").float()
        triple = torch.cuda.jiterator._create_jit_fn("template <typename T> T triple(T x, T y) { return 3 * x + y; }")
        print("jiterator:", triple(x, x).tolist())
        source = 'extern "C" __global__ void root(const float* a, float* b) { b[threadIdx.x] = sqrtf(a[threadIdx.x]); }'
        y = torch.zeros(5, device="cuda")
        torch.cuda._compile_kernel(source, "root")(grid=(1, 1, 1), block=(5, 1, 1), args=[x * x, y])
        print("root:", y.tolist())
        try:
            torch.cuda._compile_kernel('extern "C" __global__ void bad() { not_there(); }', "bad")
        except RuntimeError as error:
            print("error:", 'identifier "not_there" is undefined' in str(error))
        """)
    assert result.values() == {"jiterator": "[0.0, 4.0, 8.0, 12.0, 16.0]", "root": "[0.0, 1.0, 2.0, 3.0, 4.0]", "error": "True"}
    assert "CUDA runtime linked into it" not in result.err
