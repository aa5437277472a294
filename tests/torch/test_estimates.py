"""What a model takes, and what fits, asked from Python."""
import json
import os
import subprocess
import sys

import pytest

from conftest import PACKAGE

pytestmark = pytest.mark.one_torch

NET = """
import json, sys
import torch, gapless
from torch import nn

class Net(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(6)])
        self.head = nn.Linear(width, width)
        self.head.weight = self.layers[0].weight  # tied
        self.register_buffer("order", torch.arange(width - 1, -1, -1))
    def forward(self, x):
        assert self.order[:3].tolist() == [x.shape[-1] - 1, x.shape[-1] - 2, x.shape[-1] - 3]
        return self.head(self.layers(x[..., self.order]).relu())

def tell(value): print("told: " + json.dumps(value))
"""


@pytest.fixture
def script(simulate, tmp_path, monkeypatch):
    """script(code): what it told, run as a file in front of a simulated GPU (without which this torch is not imported)."""
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))

    def run(code: str, check: bool = True, before: str = NET, guarded: bool = True, **more):
        body = "".join(f"    {line}\n" for line in code.strip().splitlines())
        (tmp_path / "script.py").write_text(before + ('if __name__ == "__main__":\n' + body if guarded else code))
        result = simulate("", words=[str(tmp_path / "script.py")], check=check, timeout=300, **more)
        told = [json.loads(line.removeprefix("told: ")) for line in result.out.splitlines() if line.startswith("told: ")]
        return told if check else result

    return run


def test_an_estimate_is_what_the_steps_take(script):
    """Those of a program without gapless's help, to the byte."""
    estimate, peak, sizes = script("""
inputs = torch.zeros(3, 700, 512)
tell(gapless.estimate_memory_usage(Net(), 48, inputs=inputs))
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2):
    x = torch.zeros(48, 700, 512).cuda()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
tell([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])
tell(sum(p.nbytes for p in model.parameters()))
""")
    assert [estimate["gpus"][0]["peak_allocated_bytes"], estimate["gpus"][0]["peak_reserved_bytes"]] == peak
    assert estimate["model_params"] == estimate["gradient_memory"] == sizes / 2**30
    assert estimate["optimizer_memory"] == 2 * sizes / 2**30  # the counts of steps stay on the host
    assert estimate["input_memory"] == 48 * 700 * 512 * 4 / 2**30
    parts = sum(estimate[name] for name in ("model_params", "gradient_memory", "optimizer_memory", "input_memory", "activation_memory"))
    assert parts + 512 * 8 / 2**30 == pytest.approx(estimate["allocated_per_gpu"], rel=1e-9)
    assert estimate["total_per_gpu"] > estimate["reserved_per_gpu"] >= estimate["allocated_per_gpu"]
    assert (estimate["method"], estimate["is_exact"], estimate["allocator"], estimate["fits"]) == ("dry run", True, "native", None)


@pytest.mark.thorough
def test_what_is_suggested_fits_and_no_more_does(script):
    batch, fits, more = script("""
inputs = torch.zeros(1, 700, 512)
batch = gapless.suggest_batch_size(Net(), target_memory_gb=1, inputs=inputs, max_batch_size=256)
tell(batch)
for size in (batch, batch + 1):
    tell(gapless.estimate_memory_usage(Net(), size, inputs=inputs, gpu="1024MiB"))
""")
    assert 1 < batch < 256
    assert (fits["fits"], more["fits"]) == (True, False)
    assert more["verdict"] == "no" and " asked in step " in more["reason"]


@pytest.mark.thorough
def test_programs_that_ask_as_the_guides_do(script):
    """By position, with the keys that their own functions have; models of transformers need no inputs."""
    est, alone, per_gpu = script("""
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_positions=128, vocab_size=1000))
tell(gapless.estimate_memory_usage(model, 8, 2))
tell(gapless.estimate_memory_usage(model, 8))
tell(gapless.get_optimal_batch_size(num_gpus=8, base_batch_size=2048))
""", gpus="16GiB,16GiB")
    for key in ("model_params", "gradient_memory", "optimizer_memory", "activation_memory", "total_per_gpu", "total_all_gpus"):
        assert est[key] > 0
    assert len(est["gpus"]) == 2 and len(alone["gpus"]) == 1
    assert est["total_all_gpus"] > est["total_per_gpu"]
    assert est["activation_memory"] < alone["activation_memory"]  # each has half of the batch
    assert per_gpu == 256


@pytest.mark.thorough
def test_more_ways_to_ask(script):
    forward, half, loss, images = script("""
net = Net()
inputs = torch.zeros(4, 700, 512)
tell(gapless.estimate_memory_usage(net, 16, inputs=inputs, training=False))
tell(gapless.estimate_memory_usage(net, 16, inputs=inputs, precision="bf16", optimizer="SGD", allocator="expandable"))
tell(gapless.estimate_memory_usage(net, 16, inputs=make, loss=summed, optimizer=torch.optim.Adagrad, allocator="gapless"))
from transformers import ViTConfig, ViTForImageClassification
vit = ViTForImageClassification(ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32))
tell(gapless.estimate_memory_usage(vit, 4))
""", before=NET + """
def make(batch): return {"x": torch.zeros(batch, 700, 512)}
def summed(output, inputs):
    assert inputs["x"].shape == output.shape
    return output.sum()
""")
    assert forward["gradient_memory"] == forward["optimizer_memory"] == 0 and forward["fits"] is None
    assert half["optimizer_memory"] == 0 and half["allocator"] == "expandable"
    assert half["activation_memory"] < loss["activation_memory"]
    assert loss["optimizer_memory"] == loss["model_params"] and loss["allocator"] == "gapless"
    assert images["input_memory"] == (4 * 3 * 32 * 32 * 4 + 4 * 8) / 2**30


def test_a_closed_form_is_marked(script):
    (told,) = script('tell(gapless.estimate_memory_usage(Net(), 8, 2, method="closed form"))')
    assert told["method"] == "closed form" and told["is_exact"] is False and "takes more" in told["note"]
    assert told["activation_memory"] is None
    assert told["total_all_gpus"] == 2 * told["total_per_gpu"] == 8 * told["model_params"]


WRONG = (
    ("estimate_memory_usage(Net(), 8)", "nobody knows what Net takes: inputs=..."),
    ("estimate_memory_usage(Net(), 8, 3, inputs=x)", "a batch of 8 cannot be shared evenly by 3 GPUs"),
    ("estimate_memory_usage(Net(), 8, 0, inputs=x)", "0 GPUs: expected at least one"),
    ("estimate_memory_usage(Net(), 8, inputs=(x, x))", "takes 2 positional arguments but 3 were given"),
    ("estimate_memory_usage(Net(), 8, inputs=x, optimizer='Adamm')", 'there is no optimiser "Adamm" in torch.optim'),
    ("estimate_memory_usage(Net(), 8, inputs=x, precision='int3')", 'precision "int3": expected fp32, bf16 or fp16'),
    ("estimate_memory_usage(Net(), 8, inputs=x, gpu='RTX 9999')", "--gpu: "),
    ("estimate_memory_usage(Net(), 8, inputs=x, method='guess')", 'method "guess": expected "dry run" or "closed form"'),
    ("suggest_batch_size(Net(), target_memory_gb=0.6, inputs=torch.zeros(1, 100000, 512))", "not one sample fits on 614MiB: "),
    ("suggest_batch_size(Net(), inputs=x, max_batch_size=0)", "max_batch_size 0: expected at least one"))


@pytest.mark.thorough
def test_what_cannot_be_asked_is_told(script):
    told = script(f"""
x = torch.zeros(1, 16, 512)
for call in {[call for call, _ in WRONG]!r}:
    try:
        eval("gapless." + call)
        tell("")
    except gapless.GaplessError as error:
        tell(str(error))
""", before=NET.replace("assert", "0 and"))
    for (call, expected), answer in zip(WRONG, told, strict=True):
        assert expected in answer, call


def test_a_script_without_a_guard_is_told(script):
    result = script("gapless.estimate_memory_usage(Net(), 8, inputs=torch.zeros(1, 16, 512))", check=False, guarded=False)
    assert result.status != 0
    assert 'begin it under if __name__ == "__main__": (or install cloudpickle)' in result.err


def test_what_no_other_process_can_be_told(script):
    result = script("gapless.estimate_memory_usage(Net(), 8, inputs=lambda batch: torch.zeros(batch, 16, 512))", check=False)
    assert result.status != 0 and "GaplessError: the model cannot be told to another process" in result.err


@pytest.mark.thorough
def test_the_allocator_is_the_one_that_serves_this_process(script):
    (gapless_here,) = script("""
gapless.install()
torch.zeros(1, device="cuda")
tell(gapless.estimate_memory_usage(Net(), 8, inputs=torch.zeros(1, 16, 512))["allocator"])
""")
    (expandable,) = script('tell(gapless.estimate_memory_usage(Net(), 8, inputs=torch.zeros(1, 16, 512))["allocator"])',
                           PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert (gapless_here, expandable) == ("gapless", "expandable")


# --- check_gpu_memory -------------------------------------------------------------------------------------------

def test_every_gpu_and_whose_memory_it_is(simulate, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    result = simulate("""
import ctypes, json, torch, gapless
x = torch.empty(3 << 30, dtype=torch.uint8, device="cuda:1")
y = torch.empty(13 << 30, dtype=torch.uint8, device="cuda:2")
found = gapless.check_gpu_memory()
print("found:", json.dumps(found))
z = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:2")
print("then:", gapless.check_gpu_memory(verbose=False)[2]["status"])
""", gpus="A100,RTX 4090,16GiB", SIMGPU_CONTEXT="500MiB")
    found = json.loads(result.values()["found"])
    assert [found[i]["name"] for i in "012"] == ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "simulated GPU"]
    assert [found[i]["status"] for i in "012"] == ["safe", "safe", "safe"]
    assert result.values()["then"] == "danger"
    one = found["1"]
    assert one["allocated"] == one["reserved"] == 3
    assert one["used_bytes"] == one["by_this_process_bytes"] == (3 << 30) + (500 << 20) and one["by_others"] == 0
    assert one["total_bytes"] - one["free_bytes"] == one["used_bytes"]
    assert one["usage_percent"] == pytest.approx(100 * one["used"] / one["total"])
    assert found["0"]["used_bytes"] == 0  # nothing was made there to look
    assert "GPU 1 (NVIDIA GeForce RTX 4090): 3.49 GiB of " in result.out


def test_gpus_that_cuda_does_not_see_are_left_out(simulate, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    result = simulate("""
import sys
sys.modules["torch"] = None  # it is not needed
import gapless
print("sizes:", [round(gpu["total"]) for gpu in gapless.check_gpu_memory(verbose=False).values()])
""", gpus="4GiB,8GiB,16GiB", CUDA_VISIBLE_DEVICES="2,0", warm=False)
    assert result.values()["sizes"] == "[16, 4]"


def test_without_a_gpu():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['torch'] = None; import gapless; print(gapless.check_gpu_memory())"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False)
    assert done.stdout == "no GPU: there is none here, or none that this process may use\n{}\n", done.stderr


def test_statuses(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE))
    from gapless._gpu_memory import status_of
    assert [status_of(percent) for percent in (0, 84.9, 85, 90, 90.1, 100)] == ["safe", "safe", "edge", "edge", "danger", "danger"]


def test_a_batch_is_shared(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE))
    import gapless
    assert gapless.get_optimal_batch_size(8, 2048) == 256
    assert gapless.get_optimal_batch_size(1, 2048) == 2048
    with pytest.warns(UserWarning, match="3 GPUs with 682 each are a batch of 2046, not of 2048"):
        assert gapless.get_optimal_batch_size(3, 2048) == 682
    with pytest.warns(UserWarning, match="of 256, not of 64"):
        assert gapless.get_optimal_batch_size(8, 64, min_batch_size=32) == 32
    with pytest.raises(gapless.GaplessError, match="0 GPUs"):
        gapless.get_optimal_batch_size(0, 64)


# --- oom_advice -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("installed", [False, True])
def test_an_out_of_memory_is_explained_and_what_it_held_is_freed(simulate, monkeypatch, installed):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    result = simulate(f"""
import torch, gapless
if {installed}: gapless.install()
kept = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
def step():
    held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(8)]
    torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
said = []
for advice in (gapless.oom_advice(say=said.append), gapless.oom_advice()):
    try:
        with advice:
            step()
    except torch.OutOfMemoryError as error:
        print("noted:", getattr(error, "__notes__", [""])[0].count("gapless: out of memory: "))
        print("left:", torch.cuda.memory_allocated() >> 30, torch.cuda.memory_reserved() >> 30)
print("said:", "|".join(said[0].splitlines()))
""", gpus="16GiB")
    values = result.values()
    assert values["left"] == "2 2" and (values["noted"] == "1" or sys.version_info < (3, 11))
    assert "gapless: out of memory: " in values["said"] and "freed 8.00 GiB of what was no longer in use" in values["said"]
    assert "GPU 0: 16.00 GiB in all; PyTorch has 10.00 GiB in use" in values["said"]
    assert "gapless: out of memory: " in result.err
    assert ("would help: " in values["said"]) == installed


def test_it_is_tried_again_with_a_smaller_batch_of_the_same_whole(simulate, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    result = simulate("""
import torch, gapless
tried = []
@gapless.oom_advice(retry=True, say=lambda text: None)
def train(name, batch_size=48, accumulation_steps=1):
    tried.append((batch_size, accumulation_steps))
    for _ in range(accumulation_steps):
        torch.empty(batch_size << 30, dtype=torch.uint8, device="cuda")
    return name
print("did:", train("this"), tried, train.__name__)
tried.clear()
print("did:", train("that", 7, accumulation_steps=3), tried)
tried.clear()
@gapless.oom_advice(retry=True, batch="b", accumulation="steps", say=lambda text: None)
def never(b, steps):
    tried.append((b, steps))
    torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
try:
    never(6, 1)
except torch.OutOfMemoryError:
    print("never:", tried)
@gapless.oom_advice(say=print)
def wrong(): raise ValueError("its own")
try:
    wrong()
except ValueError as error:
    print("passed:", error, getattr(error, "__notes__", None))
""", gpus="16GiB")
    assert "did: this [(48, 1), (24, 2), (12, 4)] train\n" in result.out
    assert "did: that [(7, 3)]\n" in result.out
    assert "never: [(6, 1), (3, 2), (1, 6)]\n" in result.out
    assert "passed: its own None\n" in result.out


def test_what_it_cannot_advise_on_is_an_error_at_once(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE))
    import gapless
    with pytest.raises(TypeError, match="train has no parameter accumulation_steps"):
        @gapless.oom_advice(retry=True)
        def train(batch_size): ...
    with pytest.raises(TypeError, match="returns before it has run"):
        @gapless.oom_advice()
        async def later(): ...
    with pytest.raises(TypeError, match="is a decorator"):
        with gapless.oom_advice(retry=True):
            pass
