"""GAPLESS_CONF=check:nvtx: a tool that NVTX loads knows the memory of each tensor, and of none that is gone."""
import re

import pytest

from conftest import LIBRARIES

RECORDER = LIBRARIES.parent / "libnvtx_recorder.so"

# What the tool knows, asked in the program itself (tests/nvtx/recorder.h).
ASK = f"""
import ctypes, gc
import torch

class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("name", ctypes.c_char * 64)]

recorder = ctypes.CDLL({str(RECORDER)!r})
recorder.nvtx_recorder_mistakes.restype = ctypes.c_char_p
recorder.nvtx_recorder_calls.restype = ctypes.c_uint64

def ask(what):
    function = getattr(recorder, "nvtx_recorder_" + what)
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_size_t]
    ranges = (Range * function(None, 0))()
    function(ranges, len(ranges))
    return [(one.address, one.bytes, one.name.decode()) for one in ranges]

def known(address, size):
    return sum(max(0, min(address + size, begin + bytes) - max(address, begin)) for begin, bytes, _ in ask("regions"))

def tell(name, value):
    print(f"{{name}}: {{value}}")
"""

PROGRAM = ASK + """
tensor = torch.zeros(1000, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
address = tensor.data_ptr()
tell("bytes", [bytes for begin, bytes, _ in ask("regions") if begin == address])
tell("name", [name for begin, _, name in ask("regions") if begin == address])
tell("behind", known(address + 1000, 1))
del tensor
tell("freed", known(address, 1000))

# Some steps of training; every tensor that Python can see is known, to the byte.
model = torch.nn.Sequential(torch.nn.Linear(300, 3000), torch.nn.GELU(), torch.nn.Linear(3000, 7)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
unknown = 0
for step in range(4):
    data = torch.randn(500 + 100 * step, 300, device="cuda")
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor) and one.is_cuda and one.numel():
            storage = one.untyped_storage()
            unknown += known(storage.data_ptr(), storage.nbytes()) != storage.nbytes()
tell("unknown", unknown)

def adds_up():
    return sum(bytes for _, bytes, _ in ask("regions")) == torch.cuda.memory_stats()["requested_bytes.all.current"]

tell("all is mapped", sum(bytes for _, bytes, _ in ask("heaps")) >= torch.cuda.memory_reserved())
tell("no other is known", adds_up())

# What a graph uses is known as long as it may run.
static = torch.zeros(1 << 20, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    between = static * 2
    inner = between.data_ptr(), between.untyped_storage().nbytes()
    result = between + 1
    del between
graph.replay()
tell("of the graph", known(*inner) == inner[1])
del graph, result, static
gc.collect()
tell("of a graph that is gone", known(*inner))

del model, optimizer, data, loss, one, storage
gc.collect()
torch.cuda.empty_cache()
torch.cuda.synchronize()
tell("no other is left", adds_up())
tell("mistakes", recorder.nvtx_recorder_mistakes().decode().splitlines()[:3])
"""


@pytest.fixture
def run(simulate):
    if not RECORDER.exists():
        pytest.skip("built without NVTX: no nvtx3/nvToolsExtMem.h")

    def start(program: str, conf: str, attached: bool = True):
        environment = {"NVTX_INJECTION64_PATH": str(RECORDER)} if attached else {}
        return simulate(program, gapless=True, warm=False, GAPLESS_CONF=conf, **environment)
    return start


@pytest.mark.parametrize("conf", ["check:nvtx", "check:nvtx+poison+redzones"])
@pytest.mark.thorough(but=1)
@pytest.mark.one_torch
def test_a_tool_knows_what_tensors_there_are(run, conf):
    result = run(PROGRAM, conf)
    values = result.values()
    assert values["bytes"] == "[1000]" and values["behind"] == "0" and values["freed"] == "0"
    assert re.fullmatch(r"\['<string>:\d+ \(<module>\)'\]", values["name"]), values["name"]
    assert values["unknown"] == "0"
    assert values["all is mapped"] == "True" and values["no other is known"] == "True"
    assert values["of the graph"] == "True" and values["of a graph that is gone"] == "0"
    assert values["no other is left"] == "True"
    assert values["mistakes"] == "[]"
    assert "gapless: check:" not in result.err


@pytest.mark.one_torch
def test_nobody_is_told_unless_asked_for(run):
    values = run(ASK + "torch.zeros(1000, device='cuda')\ntell('calls', recorder.nvtx_recorder_calls())", "").values()
    assert values["calls"] == "0"


@pytest.mark.one_torch
def test_a_program_without_a_tool_is_told_so(run):
    result = run("import torch\nfor _ in range(3):\n    torch.zeros(1000, device='cuda')", "check:nvtx", attached=False)
    assert result.err.count("gapless: check: check:nvtx: no tool wants to know of blocks") == 1
