"""gapless advise, as a user runs it: causes with their bytes and lines, what was tried and what only estimated."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch
MiB = 1 << 20


class Said:
    def __init__(self, done, told):
        self.out, self.err, self.told = done.stdout, done.stderr, told
        self.text = " ".join(done.stdout.split())

    def cause(self, name):
        return next((one for one in self.told["causes"] if one["cause"] == name), None)

    def remedy(self, name):
        return next((one for one in self.told["remedies"] if one["remedy"] == name), None)


@pytest.fixture
def advise(tmp_path):
    """advise(program, *words, arguments=(), status=3): what is said, and its JSON."""

    def run(program, *words, arguments=(), status=3):
        (tmp_path / "train.py").write_text(program)
        done = subprocess.run(
            [GAPLESS, "advise", "--context", "100MiB", "--json", "advice.json", *words, "--", sys.executable,
             "train.py", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return Said(done, json.loads((tmp_path / "advice.json").read_text()))

    return run


# A language model whose logits are most of what it takes: 16 x 128 x 32,000 numbers of 4 bytes, 250 MiB each time. With a seed,
# as with those below, or what fits would be run once more.
LANGUAGE_MODEL = """
import argparse, json, sys, torch; torch.manual_seed(0)
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulation-steps", type=int, default=1)
parser.add_argument("--config")
options = parser.parse_args()
size = json.load(open(options.config))["per_device_train_batch_size"] if options.config else options.batch_size
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(32000, 64), nn.Linear(64, 32000, bias=False)
    def forward(self, ids):
        return self.head(self.tokens(ids))
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    for part in range(options.accumulation_steps):
        ids = torch.randint(0, 32000, (size, 128)).cuda()
        nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOSS_LINE = "        nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()"


def test_logits_are_named_and_smaller_batches_tried(advise):
    said = advise(LANGUAGE_MODEL, "--gpu", "720MiB", "--try", "allocator,batch")
    assert said.told["fits"] is False and said.told["needed"]["complete"] and said.told["needed"]["with_room"]
    logits = said.cause("float32_logits")
    assert logits["bytes"] >= 3 * 250 * MiB and "16 x 128 x 32,000 x 4 bytes" in logits["what"]
    assert logits["line"] == f"train.py:{1 + LANGUAGE_MODEL.splitlines().index(LOSS_LINE)}"
    # They add up, but for what is less than a hundredth.
    peak = said.told["needed"]["peak_allocated_bytes"]
    assert 0.95 * peak < sum(one["bytes"] for one in said.told["causes"] if one["of_peak"]) <= peak
    assert "it dies with native, gapless, expandable" in said.text and "live at once at its peak" in said.text
    assert "no ZeRO stage helps" in said.text
    batch = said.remedy("batch")
    assert batch["tried"]["fits"] is True and batch["lost"] == "time"
    assert "--batch-size 16 -> 8; --accumulation-steps 1 -> 2" in batch["how"]
    assert abs(batch["estimate"]["peak_allocated_bytes"] / batch["tried"]["peak_allocated_bytes"] - 1) < 0.05
    # What was not tried is an estimate, and says so.
    loss = said.remedy("loss")
    assert loss["lost"] == "nothing" and loss["tried"] is None and loss["estimate"]["at_best"]
    assert all("fits" not in line for line in said.out.splitlines() if "at best" in line)
    assert [one["lost"] for one in said.told["remedies"]] == sorted(
        (one["lost"] for one in said.told["remedies"]), key=["nothing", "time", "quality"].index)


# Of what a forward pass makes a part does not shrink with the batch, which no estimate knows.
HALF_FIXED = """
import argparse, torch; torch.manual_seed(0)
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulation-steps", type=int, default=1)
options = parser.parse_args()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
    def forward(self, x):
        fixed = torch.zeros(160 << 18, device="cuda")
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x + fixed[0]
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.zeros(options.batch_size, 4096, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.thorough
def test_a_batch_that_is_not_enough_is_halved_again(advise):
    said = advise(HALF_FIXED, "--gpu", "376MiB", "--try", "batch")
    batch = said.remedy("batch")
    assert batch["tried"]["fits"] is True and "--batch-size 16 -> 2; --accumulation-steps 1 -> 8" in batch["how"]
    assert [(one["what"].split(",")[0], one["verdict"]) for one in batch["tried_before"]] == [
        ("batches of 8 in place of 16", "no"), ("batches of 4 in place of 16", "no")]
    assert "tried before: batches of 8 in place of 16" in said.text


def test_files_are_changed_in_copies(advise, tmp_path):
    config = tmp_path / "args.json"
    config.write_text('{"per_device_train_batch_size": 16}')
    words = ("--gpu", "720MiB", "--try", "batch", "--write", "changed")
    said = advise(LANGUAGE_MODEL, *words, arguments=["--config", "args.json"])
    assert said.remedy("batch")["tried"]["fits"] is True
    (file,) = [one for one in said.told["files"] if one["remedy"] == "batch"]
    changed = json.loads((tmp_path / file["written"]).read_text())
    assert changed == {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    assert json.loads(config.read_text()) == {"per_device_train_batch_size": 16}
    assert '+  "per_device_train_batch_size": 8,' in file["lines"]
    assert '  +  "per_device_train_batch_size": 8,' in said.out.splitlines()
    # Never over what is there.
    again = advise(LANGUAGE_MODEL, *words, arguments=["--config", "args.json"], status=2)
    assert "--write: changed: it is there already" in again.err


# As DeepSpeed does it: outside of a step the optimizer has tensors of nearly nothing.
FLAT = """
import torch
from torch import nn
model = nn.Linear(5000, 5000, bias=False).cuda()
flat = nn.Parameter(torch.zeros(10, device="cuda"))
optimizer = torch.optim.AdamW([flat])
for step in range(2):
    model(torch.ones(8, 5000, device="cuda")).sum().backward()
    flat.data = torch.zeros(25_000_000, device="cuda")
    flat.grad = torch.zeros_like(flat)
    optimizer.step()
    model.weight.grad = flat.grad = None
    flat.data = torch.zeros(10, device="cuda")
work = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.thorough
def test_states_are_not_told_by_numbers_that_the_optimizer_no_longer_has(advise):
    states = advise(FLAT, "--gpu", "450MiB", "--try", "none").cause("optimizer_states")
    assert states["what"] == "states of AdamW" and states["bytes"] >= 190 * MiB, states


def test_states_are_of_what_is_trained(advise):
    """Not of all that the optimizer was given, as it is by most programs that freeze a part."""
    states = advise("""
import torch; torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.Linear(1024, 5120, bias=False)).cuda()
model[0].requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    model(torch.ones(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""", "--gpu", "1GiB", "--try", "none", status=0).cause("optimizer_states")
    assert states["what"] == "states of AdamW: 8.0 bytes for each of 5.2 M parameters trained"


# Half of what is reserved is free, in pieces of 2 MiB between others; nothing larger fits into them.
IN_PIECES = """
import torch
pieces = [torch.empty(2 << 20, dtype=torch.uint8, device="cuda") for _ in range(200)]
del pieces[::2]
large = torch.empty(150 << 20, dtype=torch.uint8, device="cuda")
"""


def test_an_allocator_that_helps_is_said_to(advise):
    said = advise(IN_PIECES, "--gpu", "520MiB")
    assert said.told["runs"][0]["fits"] is False
    assert "the allocator helps, and nothing is lost: it fails with native" in said.text
    assert said.remedy("allocator")["what"] == "the allocator gapless"
    assert said.remedy("allocator")["tried"]["fits"] is True
    assert said.cause("fragmentation")["bytes"] == 200 * MiB
    assert said.told["needed"]["peak_allocated_bytes"] == 400 * MiB


# How much it takes follows from a number that nobody knows.
FOLLOWS = """
import torch
x = torch.rand(1024, 1024, device="cuda")
y = torch.empty(1 + int((x @ x)[0].int().sum() % 7) << 24, device="cuda")
"""


@pytest.mark.parametrize(("program", "status", "words"), [
    ("import torch\nx = torch.ones(100 << 20, device='cuda')\n", 0, "it fits as it is"),
    # Sizes that nobody knows, which are tried at their most; and where something is read beside that.
    ("import torch\nx = torch.rand(9, device='cuda')\nx[x > 0.5]\n", 0, "it fits as it is"),
    ("import torch\nx = torch.rand(9, device='cuda')\nx[x > 0.5]\nint((x > 0.5).sum())\n", 0, "it fits as it is"),
    ("import torch\nx = torch.ones(1, device='cuda')\nraise ValueError('odd')\n", 1, "nothing is advised before"),
    (FOLLOWS, 3, "were allocated instead of"),
    ("print('no GPU')\n", 3, "the program used no GPU"),
])
@pytest.mark.thorough(but=2)
def test_what_needs_no_advice_gets_none(advise, program, status, words):
    said = advise(program, "--gpu", "1GiB", status=status)
    assert words in said.text
    assert not any(one["tried"] for one in said.told["remedies"])


# Checkpointing is switched on in the process, where a model has it.
TRANSFORMER = """
import torch; torch.manual_seed(0)
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=128, n_head=4, vocab_size=256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    ids = torch.randint(0, 256, (32, 512)).cuda()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.thorough
def test_checkpointing_is_tried_in_the_process(advise):
    pytest.importorskip("transformers")
    said = advise(TRANSFORMER, "--gpu", "1536MiB", "--try", "checkpointing")
    checkpointing = said.remedy("checkpointing")
    assert checkpointing["tried"]["fits"] is True, said.out
    assert checkpointing["tried"]["peak_allocated_bytes"] >= checkpointing["estimate"]["peak_allocated_bytes"]
    assert said.cause("activations")["bytes"] > 500 * MiB
    assert "no checkpointing" in said.cause("activations")["what"]


# Logits are most of it, and the model has an output layer that gives them.
LARGE_VOCABULARY = TRANSFORMER.replace("vocab_size=256", "vocab_size=30000").replace("n_layer=12", "n_layer=1").replace(
    "randint(0, 256, (32, 512))", "randint(0, 30000, (4, 512))")


def test_a_loss_in_pieces_is_tried_in_the_process(advise):
    pytest.importorskip("transformers")
    said = advise(LARGE_VOCABULARY, "--gpu", "800MiB", "--try", "loss")
    loss = said.remedy("loss")
    assert loss["tried"]["fits"] is True, said.out
    assert loss["tried"]["peak_allocated_bytes"] < 500 * MiB
    assert "gapless.patch_loss(model)" in loss["how"]
    # A model without one is not changed, and nothing is said of it.
    said = advise(LANGUAGE_MODEL, "--gpu", "720MiB", "--try", "loss")
    assert said.remedy("loss")["tried"]["fits"] is None, said.out
