"""Rows named native and expandable are what they say, whatever PYTORCH_CUDA_ALLOC_CONF the shell or the program sets."""
import json
import os
import subprocess
import sys

import pytest

from conftest import GAPLESS

# Five segments of 30 MiB, freed, and 150 MiB asked for: segments that expand take it up.
PROGRAM = """
import os, sys
if len(sys.argv) > 1:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = sys.argv[1]
import torch
blocks = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
del blocks
block = torch.empty(150 << 20, dtype=torch.uint8, device="cuda")
print("max_split_size:", torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"])
"""
RESERVED = {"native": 300 << 20, "expandable": 160 << 20}


def rows_of(tmp_path, words, program=(), **variables):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run([GAPLESS, *words, "--gpu", "1GiB", "--allocator", "native,expandable", "--json", "rows.json", "--",
                           sys.executable, "train.py", *program],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True, env={**os.environ, **variables})
    said = " ".join((done.stderr + done.stdout).split())
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["allocator"]: row["peak_reserved_bytes"] for row in rows} == RESERVED, said
    return said, rows


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.thorough(but=1)
def test_set_in_the_shell(tmp_path, name):
    said, rows = rows_of(tmp_path, ["dryrun"], **{name: "max_split_size_mb:512,expandable_segments:True"})
    assert f"with native, expandable_segments:True of {name} is left out" in said
    assert said.count(f"max_split_size: {512 << 20}") == 2, said  # what else is set stays
    assert [row["replaced_settings"] for row in rows] == [None, None]


def test_set_by_the_program(tmp_path):
    said, rows = rows_of(tmp_path, ["dryrun"], ["expandable_segments:True"])
    assert [row["replaced_settings"] for row in rows] == ["expandable_segments:True", None]
    assert "the program sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True itself" in said
    # Many set this one alone, and would take segments that expand for ones that do not.
    said, rows = rows_of(tmp_path, ["fits", "--show-output"], ["max_split_size_mb:512"])
    assert [row["replaced_settings"] for row in rows] == [None, "max_split_size_mb:512"]
    assert "went by the allocator that was asked for (expandable)" in said
    assert said.count(f"max_split_size: {512 << 20}") == 2, said


@pytest.mark.one_torch
def test_without_an_allocator(tmp_path):
    said, _ = rows_of(tmp_path, ["fits"], PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING is left out: torch has no allocator with it" in said


@pytest.mark.one_torch
def test_gpus_that_are_hidden_are_told(tmp_path):
    done = subprocess.run([GAPLESS, "fits", "--gpu", "1GiB", "--allocator", "native", "--", sys.executable, "-c",
                           "import torch; torch.ones(1).cuda()"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": "3"})
    assert done.returncode == 1
    assert "CUDA_VISIBLE_DEVICES=3 is set here, and holds for simulated GPUs, too" in " ".join(done.stdout.split())
