"""Programs of transformers and torch.compile."""
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
