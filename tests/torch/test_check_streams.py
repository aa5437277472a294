"""gapless.check_streams(): what it tells, what it leaves alone, and that it leaves nothing behind."""
import functools
import re

import pytest

from conftest import PACKAGE, ROOT

PROGRAM = ROOT / "tests" / "torch" / "programs" / "stream_uses.py"
# Told, where `after` does not order the streams: lines 5, 7 and 8.
FORGOTTEN = """
import gapless, sys, torch
side = torch.cuda.Stream()
def allocate():
    return torch.empty(1 << 20, device="cuda")
def use(x):
    return x * 2
def train(after=lambda x: None, times=1):
    for _ in range(times):
        x = allocate()
        with torch.cuda.stream(side):
            y = use(x)
        after(x)
        del x
        torch.empty(3, device="cuda")
"""


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.one_torch), "gapless"])
def run(request, simulate):
    """simulate(), with each allocator."""
    return functools.partial(simulate, gapless=request.param == "gapless", gpus="16GiB,16GiB", PYTHONPATH=str(PACKAGE))


@pytest.mark.parametrize("group, least", [("streams", 50), ("backward", 4), ("training", 9)])
@pytest.mark.thorough(but=2)
def test_uses(run, group, least):
    values = run(f"import runpy, sys; sys.argv = ['', '{group}']; runpy.run_path({str(PROGRAM)!r})").values()
    assert len(values) >= least
    assert {name: said for name, said in values.items() if said != "ok"} == {}


def test_each_place_is_told_once_with_its_lines(run):
    result = run(FORGOTTEN + """
with gapless.check_streams() as found:
    train(times=3)
    train(lambda x: x.record_stream(side))
    train(lambda x: torch.cuda.current_stream().wait_stream(side))
mistake, = found.mistakes
print("mistake:", mistake.bytes, mistake.device, mistake.allocated_on, mistake.used_on == side.cuda_stream, mistake.operator,
      mistake.writes, mistake.times)
print("places:", mistake.allocated_at, mistake.used_at, mistake.freed_at)
""")
    assert result.values() == {"mistake": "4194304 0 0 True aten.mul.Tensor False 3",
                               "places": "<string>:5 (allocate) <string>:7 (use) <string>:14 (train)"}
    assert re.fullmatch(
        r"gapless: 4\.00 MiB on cuda:0, allocated on the default stream at <string>:5 \(allocate\), were freed at <string>:14 "
        r"\(train\) while stream 0x[0-9a-f]+ may still read them \(aten\.mul\.Tensor at <string>:7 \(use\)\), and the default "
        r"stream is given them again before that is done: call tensor\.record_stream\(stream\) after the last use on that "
        r"stream, or have the default stream wait for it \(wait_stream\) before the tensor goes", result.err.strip())


def test_the_backward_pass_has_its_node_and_the_line_that_waits_for_it(run):
    values = run(FORGOTTEN + """
weight = torch.nn.Parameter(torch.ones(1 << 20, device="cuda"))
def backward(loss):
    loss.backward()
with gapless.check_streams(say=lambda sentence: print("said:", sentence.startswith("4.00 MiB"))) as found:
    x = allocate()
    with torch.cuda.stream(side):
        loss = (weight * x).sum()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.stream(side):
        backward(loss)
    del x, loss
    torch.empty(3, device="cuda")
print("used:", found.mistakes[0].used_at)
""").values()
    assert values == {"said": "True", "used": "<string>:19 (backward), MulBackward0 of the backward pass"}


def test_errors(run):
    values = run(FORGOTTEN + """
def ends(name, check, *work):
    try:
        with check:
            for each in work:
                each()
        print(f"{name}: nothing")
    except BaseException as error:
        print(f"{name}: {type(error).__name__}", len(getattr(error, "mistakes", ())))
def raises():
    raise KeyError("its own")
check = gapless.check_streams(error=True, say=lambda sentence: None)
ends("mistake", check, train)
ends("none", check)
ends("its own", check, train, raises)
ends("ended well", check, train, lambda: sys.exit(0))
ends("ended badly", check, lambda: sys.exit(3))
ends("two", check, check.enable)
check.enable()
train()
try:
    check.disable()
except gapless.GaplessError as error:
    print("disabled:", str(error).split(" it: ")[0])
try:
    check.disable()
except gapless.GaplessError as error:
    print("twice:", error)
""").values()
    assert values == {"mistake": "StreamMistakes 1", "none": "nothing", "its own": "KeyError 0", "ended well": "StreamMistakes 1",
                      "ended badly": "SystemExit 0", "two": "GaplessError 0", "twice": "check_streams is not on",
                      "disabled": "at 1 place a tensor went while another stream still used"}


@pytest.mark.parametrize("error, after, status", [(True, "lambda x: None", 1), (True, "lambda x: x.record_stream(side)", 0),
                                                  (False, "lambda x: None", 0)])
@pytest.mark.thorough(but=2)
def test_a_program_that_ends_with_the_check_on(run, error, after, status):
    result = run(FORGOTTEN + f"""
gapless.check_streams(error={error}).enable()
train({after})
kept, last = allocate(), allocate()
with torch.cuda.stream(side):
    use(kept), use(last)
del last  # no memory is given out any more, and what the interpreter frees at its end is no mistake
print("end: reached")
""", check=False)
    assert (result.status, result.values()) == (status, {"end": "reached"}), result.err
    assert result.err.count("gapless: ") == ("None" in after)


def test_nothing_is_left_behind(run):
    values = run(FORGOTTEN + """
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes
import torch.cuda._gpu_trace as told
calls = []
told.register_callback_for_memory_allocation(calls.append)
watched = [(torch.Tensor, "record_stream"), (torch.cuda.Event, "query"), (torch.cuda.Stream, "query"), (torch.cuda.Event, "elapsed_time")]
def state():
    return [getattr(owner, name) for owner, name in watched], [name in vars(owner) for owner, name in watched], modes()
before = state()
with gapless.check_streams():
    print("watches:", state() != before, len(modes()))
    allocate()
print("restored:", state() == before)
print("told:", len(calls), calls.clear())
allocate()
print("then:", len(calls))
""").values()
    assert values == {"watches": "True 1", "restored": "True", "told": "1 None", "then": "0"}


@pytest.mark.thorough(but=1)
def test_addresses_stay_what_they_are(run):
    training = """
import contextlib, torch, gapless
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
with CHECK:
    for size in (8, 300, 17, 300):
        x = torch.randn(size, 512, device="cuda")
        with torch.cuda.stream(side):
            y = x * 2
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        print(f"{size}:", x.data_ptr(), y.data_ptr(), loss.data_ptr(), *(p.grad.data_ptr() for p in model.parameters()))
        optimizer.zero_grad()
"""
    without, within = (run(training.replace("CHECK", check)) for check in ("contextlib.nullcontext()", "gapless.check_streams()"))
    assert within.out == without.out and "mul.Tensor" in within.err


def test_programs_of_several_streams_and_processes(run):
    code = f"""
import runpy, sys, gapless
for words in (["graphs.py", "--steps", "20", "--layers", "2", "--width", "256"],
              ["zero3.py", "--steps", "2", "--layers", "2", "--width", "256", "--heads", "4"]):
    sys.argv = words
    with gapless.check_streams() as found:
        runpy.run_path({str(ROOT / "examples")!r} + "/" + words[0], run_name="__main__")
    print(words[0] + ":", len(found.mistakes))
"""
    result = run(code)
    assert {name: told for name, told in result.values().items() if name.endswith(".py")} == {"graphs.py": "0", "zero3.py": "0"}


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.thorough(but=2)
def test_data_parallel_training(run, backend):
    values = run(f"""
import torch, torch.distributed as dist, gapless
from torch.distributed.fsdp import fully_shard
dist.init_process_group("{backend}", store=dist.HashStore(), rank=0, world_size=1)
def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
def layers():
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
side = torch.cuda.Stream()
with gapless.check_streams() as found:
    train(torch.nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.3))
    with torch.cuda.stream(side):
        train(torch.nn.parallel.DistributedDataParallel(layers(), gradient_as_bucket_view=True))
    if "{backend}" == "nccl":
        model = layers()
        for layer in model:
            fully_shard(layer)
        train(fully_shard(model))
print("mistakes:", found.mistakes)
dist.destroy_process_group()
""").values()
    assert values["mistakes"] == "[]"


def test_what_it_needs(simulate):
    values = simulate("""
import sys, torch, gapless
sys.modules["torch.cuda._gpu_trace"] = None
try:
    gapless.check_streams().enable()
except gapless.GaplessError as error:
    print("no callbacks:", error)
""", warm=False, PYTHONPATH=str(PACKAGE)).values()
    assert re.match(r"torch 2\.\d+\.\S+ does not tell what its streams do: ", values["no callbacks"])


def test_another_allocator(simulate):
    values = simulate("""
import gapless
try:
    gapless.check_streams().enable()
except gapless.GaplessError as error:
    print("refused:", error)
""", PYTHONPATH=str(PACKAGE), PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync").values()
    assert values == {"refused": "check_streams knows PyTorch's own allocator and gapless, not cudaMallocAsync"}


@pytest.mark.one_torch
def test_python_m_gapless(simulate, tmp_path):
    script = tmp_path / "train.py"
    for after, status in (("", 1), ("lambda x: x.record_stream(side)", 0)):
        script.write_text(FORGOTTEN + f"train({after})\nprint('allocator:', torch.cuda.get_allocator_backend())\n")
        result = simulate("", words=["-m", "gapless", "--check-streams", str(script)], check=False, PYTHONPATH=str(PACKAGE))
        assert (result.status, result.values()) == (status, {"allocator": "gapless"}), result.err
        assert f"{script}:7 (use)" in result.err or status == 0
