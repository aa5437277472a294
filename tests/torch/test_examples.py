"""The programs in examples/ run, small, and take the memory they should."""
import subprocess
import sys

import pytest

from conftest import LIBRARIES, ROOT


@pytest.fixture
def example(simulate):
    """example(name, *words, gpus=...): the Result of an example program."""

    def run(name, *words, gpus="16GiB", **options):
        code = (f"import runpy, sys; sys.argv = {[name, *map(str, words)]!r}; "
                f"runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')")
        return simulate(code, gpus=gpus, **options)

    return run


def test_qwen_lora_fails_where_it_should(example):
    # The full sizes: PyTorch's default allocator runs out of memory with 2 GiB reserved and unused.
    result = example("qwen_lora.py", "--steps", 3, check=False)
    assert result.status == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.24 GiB." in result.err
    assert "GiB is reserved by PyTorch but unallocated" in result.err
    result = example("qwen_lora.py", "--steps", 3, gpus="A100")
    assert result.out.count("step ") == 3


@pytest.mark.parametrize("name, words", [
    ("qwen_lora.py", ("--layers", 2, "--steps", 3, "--tokens", 256)),
    ("t5_small.py", ("--steps", 3, "--batch", 4)),
    ("serve_kv.py", ("--steps", 50, "--layers", 2, "--prompt", 200)),
])
def test_small_ones_run(example, name, words):
    for settings in ("", "expandable_segments:True"):
        result = example(name, *words, PYTORCH_CUDA_ALLOC_CONF=settings)
        assert "peak allocated" in result.out


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_each_has_help(path):
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, check=True,
                          env={"LD_PRELOAD": ":".join(map(str, sorted(LIBRARIES.glob("*.so*"))))})
    assert "gapless dryrun" in done.stdout
