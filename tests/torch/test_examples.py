"""The programs in examples/ run, small, and take the memory they should. Those that need more libraries than torch are
in test_libraries.py."""
import importlib.metadata

import pytest

from conftest import ROOT


# Each program with sizes that take a few seconds.
SMALL = [
    ("qwen_lora.py", ("--layers", 2, "--steps", 3, "--tokens", 256)),
    ("t5_small.py", ("--steps", 3, "--batch", 4)),
    ("serve_kv.py", ("--steps", 50, "--layers", 2, "--prompt", 200)),
    ("gpt2_multi_gpu.py", ("--steps", 3, "--layers", 2, "--tokens", 256)),
    ("zero3.py", ("--steps", 3, "--layers", 4, "--width", 512, "--heads", 8)),
    ("vision_multiscale.py", ("--steps", 10, "--batch", 1, "--most", 480)),
    ("graphs.py", ("--steps", 50, "--layers", 2, "--width", 512)),
]


@pytest.fixture
def example(simulate):
    """example(name, *words, gpus=...): the Result of an example program."""

    def run(name, *words, gpus="16GiB", before="", **options):
        code = (f"import runpy, sys; {before}sys.argv = {[name, *map(str, words)]!r}; "
                f"runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')")
        return simulate(code, gpus=gpus, **options)

    return run


@pytest.mark.one_torch
def test_qwen_lora_fails_where_it_should(example):
    # The full sizes: PyTorch's default allocator runs out of memory with 2 GiB reserved and unused.
    result = example("qwen_lora.py", "--steps", 3, check=False)
    assert result.status == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.24 GiB." in result.err
    assert "GiB is reserved by PyTorch but unallocated" in result.err
    result = example("qwen_lora.py", "--steps", 3, gpus="A100")
    assert result.out.count("step ") == 3


@pytest.mark.one_torch
@pytest.mark.parametrize("name, words", SMALL)
@pytest.mark.thorough(but=2)
def test_small_ones_run(example, name, words):
    for settings in ("", "expandable_segments:True"):
        result = example(name, *words, gpus="16GiB,16GiB", PYTORCH_CUDA_ALLOC_CONF=settings)
        assert "peak allocated" in result.out


@pytest.mark.parametrize("name, words", [
    ("gpt2_multi_gpu.py", ("--layers", 2, "--tokens", 256)),
    ("zero3.py", ("--layers", 4, "--width", 512, "--heads", 8)),
])
@pytest.mark.thorough(but=1)
def test_under_torchrun(simulate, name, words):
    argv = ["torchrun", "--standalone", "--nproc-per-node", "2", str(ROOT / "examples" / name), "--steps", "2", *map(str, words)]
    result = simulate(f"""
        import runpy, sys
        sys.argv = {argv!r}
        runpy.run_module("torch.distributed.run", run_name="__main__")
        """, gpus="16GiB,16GiB", OMP_NUM_THREADS="1")
    assert result.out.count("step 1: peak allocated") == 2


@pytest.mark.one_torch
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_each_has_help(example, path):
    assert "gapless dryrun" in example(path.name, "--help").out


@pytest.mark.one_torch
@pytest.mark.parametrize("name, library", [("qwen_zero.py", "deepspeed"), ("qwen_qlora.py", "bitsandbytes"),
                                           ("chatlm_t5.py", "accelerate"), ("gpt2_recommender.py", "transformers")])
def test_what_is_missing_is_named(example, name, library):
    result = example(name, check=False, before=f"sys.modules[{library!r}] = None; ")
    assert result.status == 2 and f"{name}: {library} is not installed: pip install" in result.err


@pytest.mark.parametrize("name, words", SMALL)
@pytest.mark.thorough(but=3)
def test_small_ones_run_with_gapless(example, name, words):
    result = example(name, *words, gpus="16GiB,16GiB", gapless=True)
    assert "peak allocated" in result.out


def test_qwen_lora_fits_with_gapless(example):
    result = example("qwen_lora.py", "--steps", 3, gapless=True)
    assert result.out.count("step ") == 3


@pytest.mark.thorough
def test_qwen_lora_needs_no_float32_logits(example):
    """The same steps with each of the losses; torch's own where it has one."""
    peaks = {}
    has_own = int(importlib.metadata.version("torch").split(".")[1]) >= 13
    for loss in ("float32", "logits", "pieces", *(["torch"] if has_own else [])):
        result = example("qwen_lora.py", "--layers", 1, "--width", 512, "--heads", 8, "--inner", 1024, "--steps", 2, "--fixed",
                         "--loss", loss, warm=False, PYTHONPATH=str(ROOT / "torch_plugin" / "python"))
        peaks[loss] = float(result.out.split("peak allocated ")[-1].split()[0])
    assert peaks["float32"] > 6.5 and all(peak < 2.2 for loss, peak in peaks.items() if loss != "float32"), peaks
