"""Every family of operators runs, on the GPUs whose choices differ: an A100, and an H100, where
attention goes to cuDNN."""
import re

import pytest

from conftest import ROOT

PROGRAM = ROOT / "tests" / "torch" / "programs" / "operators.py"
NAMES = re.findall(r"^@case\ndef (\w+)", PROGRAM.read_text(), re.M) + ["convolve"]
_results = {}


@pytest.mark.parametrize("gpu", ["A100", "H100"])
@pytest.mark.parametrize("name", NAMES)
def test_operator(simulate, gpu, name):
    if gpu not in _results:
        result = simulate(f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')", gpus=gpu)
        assert "is not simulated" not in result.err
        _results[gpu] = result.values()
    assert _results[gpu].get(name) == "ok"


@pytest.mark.one_torch
@pytest.mark.thorough(but=1)
@pytest.mark.parametrize("examples", [20, 2])
def test_what_is_known_of_every_operators_results_is_right(simulate, examples):
    """PyTorch's own examples of each, with known numbers and with some that nobody knows."""
    program = ROOT / "tests" / "torch" / "programs" / "every_operator.py"
    result = simulate("", words=[str(program), str(examples)], timeout=600)
    assert re.fullmatch(r"\d{4} operators, \d{5,} known results, \d{4,} of them in part\n", result.out)
