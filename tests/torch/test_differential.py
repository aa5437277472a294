"""Random programs under PyTorch's allocators and under gapless: the statistics agree, in every field that
does not speak of segments, after every step."""
import json

import pytest

from conftest import ROOT

PROGRAM = ROOT / "tests" / "torch" / "programs" / "random_program.py"
STEPS = 300


def run(simulate, words, **options) -> list[dict]:
    result = simulate("", words=[str(PROGRAM), *map(str, words)], gpus="80GiB", timeout=300, **options)
    return [json.loads(line) for line in result.out.splitlines()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings, words", [("", ()), ("expandable_segments:True", ("any",))],
                         ids=["native", "expandable"])
@pytest.mark.thorough(but=2)
def test_statistics_agree(simulate, seed, settings, words):
    theirs = run(simulate, (seed, STEPS, *words), PYTORCH_CUDA_ALLOC_CONF=settings)
    ours = run(simulate, (seed, STEPS, *words), gapless=True)
    assert len(theirs) == len(ours) == STEPS
    for number, (native, gapless) in enumerate(zip(theirs, ours)):
        wrong = {name: (native[name], gapless.get(name)) for name in native if native[name] != gapless.get(name)}
        if wrong:
            pytest.fail(f"step {number} ({native['step']}), native and gapless: {wrong}", pytrace=False)
