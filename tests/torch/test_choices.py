"""What a program chooses by numbers that nobody knows is tried the other way before it is said to fit."""
import json

import pytest

# Of 40 MiB of weights, 40 of gradients, and what the program does with a number that nobody knows.
PROGRAM = """
import copy, json, pickle, sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(3236, 3236, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(64, 3236, device="cuda")
def train():
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
kept, best, seen, total = [], float("inf"), 0, 0
for epoch in range(5):
    loss = train()
    CHOICE
"""
KEEPS_MORE = {
    "the best so far": "if loss.item() < best: best = loss.item(); state = copy.deepcopy(net.state_dict())",
    "a flag": "if epoch and loss < last: kept.append(net.weight.detach().clone())\n    last = loss",
    "converged": "kept.append(net.weight.detach().clone())\n    if epoch and abs(last - loss.item()) < 1e-7: break\n"
                 "    last = loss.item()",
    "a mean": "total += loss.item() * 64; seen += 64\n    if round(total / seen, 4) > 0.5: kept.append(net.weight.detach().clone())",
    "a choice behind another": "if loss < 0: break\n    if loss.item() > 7: kept.append(net.weight.detach().clone())",
    "item() of a flag": "if (loss > 7).item(): kept.append(net.weight.detach().clone())",
    "a list": "if torch.stack([loss, loss]).tolist()[1] > 7: kept.append(net.weight.detach().clone())",
}
KEEPS_NO_MORE = {
    "a file": "if loss.item() < best: best = loss.item(); torch.save(net.state_dict(), 'best.pt')",
    "patience": "seen = 0 if loss.item() < best else seen + 1\n    best = min(best, loss.item())\n    if seen >= 3: break",
    "a rate": "if loss.item() > 10: optimizer.param_groups[0]['lr'] *= 0.1",
    "an early end": "if epoch == 1: kept.append(net.weight.detach().clone())\n    if loss < 0: break",
}


def program(choice):
    return PROGRAM.replace("CHOICE", choice)


@pytest.mark.parametrize("choice", KEEPS_MORE.values(), ids=KEEPS_MORE)
def test_who_may_keep_more_is_not_known_to_fit(fits, choice):
    said = fits(program(choice), "--gpu", "2GiB", status=3)
    assert said.row["fits"] is None and "each choice made the other way" in said.row["reason"], said.text
    assert said.row["estimates_from"]["kind"] == "flag"


@pytest.mark.parametrize("choice", KEEPS_NO_MORE.values(), ids=KEEPS_NO_MORE)
def test_who_keeps_no_more_fits(fits, choice):
    said = fits(program(choice), "--gpu", "2GiB")
    assert said.row["fits"] is True and "each choice made the other way" in str(said.row["notes"]), said.text


def test_numbers_are_what_they_are_elsewhere(dryrun):
    """Nothing is told of those that are printed, kept, sent or given to a library."""
    _, (row,) = dryrun("--gpu", "1GiB", program="""
import copy, json, pickle, struct, numpy, torch
weight = torch.rand(3000, 3000, device="cuda")
loss = (weight @ weight).mean()
value = loss.item()
assert isinstance(value, float) and type(value).__name__ == "float" and f"{value:.2f} {value}" == "0.00 0.0"
assert json.dumps({"loss": value}) == '{"loss": 0.0}' and struct.pack("d", value) == bytes(8)
for other in pickle.loads(pickle.dumps(value)), copy.deepcopy([value])[0], float(value), numpy.float64(value):
    assert type(other) in (float, numpy.float64) and other == value
assert type(value + numpy.float64(1)) is numpy.float64 and type(numpy.mean([value, 1])) is numpy.float64
assert (value * torch.ones(2)).tolist() == [0, 0] and torch.tensor([value, value + 1]).dtype is torch.float32
assert max(value, 1.0, value) == 1 and sorted([1.0, value]) == [0, 1] and sum([value, value]) == 0 and round(value) == 0
assert -value == abs(value) == +value == value ** 2 == value / 3 == 2 * value and hash(value) == hash(0.0) and not value
assert torch.full((2,), value, device="cuda").add(value, alpha=value).shape == (2,)
@torch.compile(backend="eager")
def scaled(x, by): return x * by
assert scaled(torch.ones(2), value).tolist() == [0, 0]
""")
    assert row["fits"] is True and row["choices"] == {} and row["estimates_from"]["kind"] == "number", json.dumps(row)


def test_asserts_on_numbers_go_on(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", program="""
import torch
weight = torch.rand(3000, 3000, device="cuda")
value = (weight @ weight).mean().item()
assert value > 1
assert not value < 1, value
""")
    assert row["fits"] is True and row["choices"] == {} and row["estimates_from"]["kind"] == "number", text


def test_who_waits_for_numbers_is_not_known_to_need_more(fits):
    """Rejection sampling: with zeros none is ever taken."""
    said = fits("""
import torch
net = torch.nn.Linear(2, 32, device="cuda")
kept, count = [], 0
while count < 500_000:
    drawn = torch.rand(1_000_000, 2, device="cuda")
    scores = torch.sigmoid(net(drawn)).mean(1)
    kept.append((scores, drawn[scores > 0.5 * torch.rand_like(scores)]))
    count += len(kept[-1][1])
""", "--gpu", "1GiB", status=1)
    assert said.row["fits"] is None and "and with others (--unknown most) it does" in said.row["reason"], said.text
