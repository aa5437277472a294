"""Programs of transformers, torch.compile and Triton."""
import re

import pytest

from conftest import ROOT

PROGRAM = ROOT / "tests" / "torch" / "programs" / "models.py"
NAMES = re.findall(r"^@case\ndef (\w+)", PROGRAM.read_text(), re.M)
_results = {}


@pytest.mark.parametrize("name", NAMES)
def test_transformers(simulate, name):
    pytest.importorskip("transformers")
    if not _results:
        _results.update(simulate(f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')",
                                 gpus="A100", timeout=300).values())
    assert _results.get(name) == "ok"


@pytest.mark.thorough
def test_torch_compile(simulate):
    pytest.importorskip("triton")
    # In one process: importing the compiler takes longer than compiling.
    values = simulate("""
        import torch, torch.nn as nn
        for mode in ("default", "reduce-overhead", "max-autotune"):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)).cuda()
            compiled = torch.compile(model, mode=mode)
            rows = torch.randn(8, 64, device="cuda")
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                compiled(rows).sum().backward()
                compiled.zero_grad(set_to_none=True)
            print(mode + ":", torch._dynamo.utils.counters["stats"]["unique_graphs"])
        """, gpus="A100", timeout=300, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1").values()
    assert list(values) == ["default", "reduce-overhead", "max-autotune"]
    assert all(int(graphs) >= 1 for graphs in values.values())


def test_of_a_kernel_s_configurations_the_first_that_compiles_is_tried(dryrun):
    """And what is compiled is not kept where programs on a real GPU look."""
    text, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", program="""
import importlib.util
import os
import torch
x = torch.ones(1 << 20, device="cuda")
assert importlib.util.find_spec("triton.runtime.autotuner") is not None  # who asks need not import it
import triton
import triton.language as tl
@triton.autotune([triton.Config({"BLOCK": block}) for block in (32, 64, 128, 256)], key=["count"])
@triton.jit
def double(x, count, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 32)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)
for count in (1 << 20, 1 << 19):
    double[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, count)
    times = {config.kwargs["BLOCK"]: times[0] for config, times in double.configs_timings.items()}
    assert double.best_config.kwargs["BLOCK"] == 64 and [block for block in times if times[block] < float("inf")] == [64], times
assert "simulated" in os.environ["TRITON_CACHE_DIR"] and "simulated" in os.environ["TORCHINDUCTOR_CACHE_DIR"]
""")
    assert row["peak_allocated_bytes"] >= 260 << 20  # with the buffer that the trial clears
