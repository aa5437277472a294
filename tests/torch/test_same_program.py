"""What is asked of several runs: that each allocator was given the same program."""
import json
import os
import subprocess
import sys

import pytest

from conftest import GAPLESS

# How large it gets follows from the seed. Without one, what is drawn is the number of the run, which no other has.
PROGRAM = """
import itertools, sys
import torch
def number_of_this_run():
    for number in itertools.count():
        try:
            open(f"run.{number}", "x").close()
            return number
        except FileExistsError:
            pass
seed = number_of_this_run() if sys.argv[1] == "none" else int(sys.argv[1])
for step in range(4):
    x = torch.empty(int(sys.argv[2]), 100 + 50 * seed + step, 1 << 20, dtype=torch.uint8, device="cuda")
    del x
"""

# Draws, and its size is that of the run where the generator was not seeded: two draws may be alike.
DRAWING = """
import random, sys
import torch
kind, seed = sys.argv[1].split(":")
if kind == "numpy" or kind == "generator":
    import numpy
if seed == "seeded":
    random.seed(1), torch.manual_seed(1)
    if kind == "numpy":
        numpy.random.seed(1)
if kind == "random":
    random.randint(1, 6)
elif kind == "numpy":
    numpy.random.rand(3)
elif kind == "generator":
    generator = numpy.random.default_rng(1 if seed == "seeded" else None)
    generator.random()
elif kind == "torch":
    torch.nn.Linear(2, 2)
sys.argv[1] = "1" if seed == "seeded" or kind == "nothing" else "none"
""" + PROGRAM

# Dies in pieces with native, in 330 MiB; in one with gapless, and what that takes is that of the run.
IN_PIECES = DRAWING.partition("for step in")[0] + """
pieces = [torch.empty(2 << 20, dtype=torch.uint8, device="cuda") for _ in range(100)]
del pieces[::2]
large = torch.empty(150 + 15 * seed << 20, dtype=torch.uint8, device="cuda")
"""

# Goes on from what an earlier run left, which had come to its end. Where it is asked to, it chooses by a mask that nobody knows.
RESUMING = """
import os, sys
import torch
torch.manual_seed(0)
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
last = os.path.join(*sys.argv[3:], "last.pt")
done = os.path.exists(last) and torch.load(last)["step"] or 0
for step in range(done, 2):
    out = model(torch.ones(int(sys.argv[2]) << 14, 1024, device="cuda"))
    if sys.argv[1] == "mask":
        torch.masked_select(out.detach(), out.detach() > 0.9).mean()
    out.sum().backward()
    optimizer.step()
torch.save({"step": 2, "model": model.state_dict()}, last)
"""

# A norm over rows, for which torch.compile tries several kernels out.
COMPILED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 256)).cuda()
torch.compile(model)(torch.ones(512, 256, device="cuda")).sum().backward()
"""


@pytest.fixture
def run(tmp_path):
    def run(*words, seed, program=PROGRAM, left_in=()):
        (tmp_path / "train.py").write_text(program)
        done = subprocess.run(
            [GAPLESS, words[0], *(() if "--gpu" in words else ("--gpu", "8GiB")), "--json", "found.json", *words[1:], "--", sys.executable, "train.py",
             seed, "{size}" if words[0] == "search" else "2", *left_in],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "kernels"), "TRITON_CACHE_DIR": str(tmp_path / "triton")})
        return " ".join((done.stderr + done.stdout).split()), json.loads((tmp_path / "found.json").read_text())
    return run


def test_one_program_asks_for_the_same_with_every_allocator(run):
    said, rows = run("fits", seed="7")
    assert [row["verdict"] for row in rows] == ["yes"] * 3, said
    assert len({row["requested_bytes"] for row in rows}) == 1 and rows[0]["requested_bytes"] > 8 << 20
    assert len({row["peak_requested_bytes"] for row in rows}) == 1
    assert "each run asked" not in said


@pytest.mark.one_torch
def test_one_that_draws_without_a_seed_is_not_known_to_fit(run):
    said, rows = run("fits", seed="none")
    assert [(row["fits"], row["verdict"]) for row in rows] == [(None, "not known")] * 3, said
    assert "each run asked for other memory (" in said and "draws numbers without a seed" in said
    said, rows = run("fits", "--allocator", "gapless,native", "--estimates", seed="none")
    assert [row["verdict"] for row in rows] == ["yes, by estimates"] * 2, said


@pytest.mark.one_torch
@pytest.mark.thorough
def test_a_search_of_one_that_draws_without_a_seed_finds_nothing(run):
    words = ("search", "--allocator", "gapless,native", "--vary", "size=1:2")
    said, found = run(*words, seed="none")
    for allocator in found["allocators"].values():
        assert allocator["size"] is None and "draws numbers without a seed" in allocator["reason"], said
    said, found = run(*words, seed="7")
    assert [allocator["size"] for allocator in found["allocators"].values()] == [2, 2], said


@pytest.mark.one_torch
def test_kernels_are_compiled_in_the_first_run(run):
    said, rows = run("dryrun", "--allocator", "gapless,native", seed="", program=COMPILED)
    assert [(row["verdict"], row["compiled"]) for row in rows] == [("yes", "made"), ("yes", "found")], said
    assert rows[0]["requested_bytes"] > rows[1]["requested_bytes"]
    assert "compiled kernels were found" not in said
    said, rows = run("fits", "--allocator", "native", seed="", program=COMPILED)
    assert rows[0]["compiled"] == "found" and "a run that finds none tries them out" in said


@pytest.mark.parametrize("kind", ["random", "torch"])
@pytest.mark.thorough(but=1)
def test_one_allocator_alone_is_given_another_run_where_numbers_are_drawn(run, kind):
    said, (row,) = run("fits", "--allocator", "gapless", seed=f"{kind}:unseeded", program=DRAWING)
    assert (row["fits"], row["drew_from"]) == (None, [kind]), said
    assert "each run asked for other memory (" in said and "draws numbers without a seed" in said
    said, (row,) = run("fits", "--allocator", "gapless", "--estimates", seed=f"{kind}:unseeded", program=DRAWING)
    assert row["verdict"] == "yes", said
    said, (row,) = run("fits", "--allocator", "gapless", seed=f"{kind}:seeded", program=DRAWING)
    assert row["verdict"] == "yes", said
    # Whether Python's own was seeded nobody sees; what was drawn is.
    assert ("numbers were drawn (random), and another run asked for as much" in said) == (kind == "random"), said


@pytest.mark.one_torch
@pytest.mark.parametrize("kind", ["numpy", "generator"])
@pytest.mark.thorough(but=1)
def test_numpy_s_generators_are_looked_at(run, kind):
    for seed, drew in (("unseeded", ["numpy.random"]), ("seeded", [])):
        _, (row,) = run("dryrun", "--allocator", "native", seed=f"{kind}:{seed}", program=DRAWING)
        assert row["drew_from"] == drew


@pytest.mark.one_torch
def test_dry_runs_are_compared_and_one_alone_is_told_of(run):
    said, rows = run("dryrun", "--allocator", "gapless,native", seed="none")
    assert [(row["fits"], row["verdict"]) for row in rows] == [(None, "not known")] * 2, said
    assert "each run asked for other memory (" in said
    said, (row,) = run("dryrun", "--allocator", "native", seed="torch:unseeded", program=DRAWING)
    assert row["verdict"] == "yes" and "numbers were drawn (torch): another run may ask for other memory" in said, said


@pytest.mark.one_torch
def test_advice_rests_on_another_run_where_numbers_are_drawn(run):
    said, told = run("advise", "--allocator", "gapless", seed="torch:unseeded", program=DRAWING)
    assert told["runs"][0]["fits"] is None and "draws numbers without a seed" in said, said


@pytest.mark.one_torch
@pytest.mark.thorough
def test_so_does_what_is_tried(run):
    said, told = run("advise", "--context", "100MiB", "--gpu", "430MiB", seed="torch:unseeded", program=IN_PIECES)
    assert told["fits"] is False and [row["asked_allocator"] for row in told["runs"][:2]] == ["native", "gapless"], said
    assert told["runs"][1]["fits"] is None and "each run asked for other memory (280.00 MiB with gapless, 295.00" in said, said
    assert told["remedies"][0]["tried"]["verdict"] == "not known"
    assert "the allocator helps" not in said


@pytest.mark.one_torch
def test_one_that_draws_nothing_is_run_once(run):
    said, (row,) = run("fits", "--allocator", "gapless", seed="nothing:unseeded", program=DRAWING)
    assert (row["verdict"], row["drew_from"]) == ("yes", []), said


@pytest.mark.one_torch
def test_another_run_that_does_not_fit_leaves_nothing_known(run):
    grows = DRAWING.replace("100 + 50 * seed", "10 ** (2 + 2 * seed)")
    said, (row,) = run("fits", "--allocator", "gapless", seed="torch:unseeded", program=grows)
    assert row["fits"] is None and "numbers were drawn (torch), and another run does not fit" in said, said


@pytest.mark.one_torch
@pytest.mark.thorough
def test_a_search_of_one_allocator_is_compared_with_another_run(run):
    words = ("search", "--allocator", "gapless", "--vary", "size=1:2")
    said, found = run(*words, seed="torch:unseeded", program=DRAWING)
    assert found["allocators"]["gapless"]["size"] is None and "draws numbers without a seed" in said, said
    said, found = run(*words, seed="torch:seeded", program=DRAWING)
    assert found["allocators"]["gapless"]["size"] == 2, said


@pytest.mark.one_torch
def test_one_that_goes_on_from_what_an_earlier_run_left_is_not_known(run, tmp_path):
    """The second run is made for its sizes, and takes a tenth of the first."""
    said, (row,) = run("fits", "--allocator", "native", seed="mask", program=RESUMING)
    assert (row["steps"], row["verdict"]) == (2, "not known") and "no optimizer took a step, and in an earlier" in said, said
    (tmp_path / "last.pt").unlink()
    said, found = run("search", "--allocator", "native", "--jobs", "1", "--vary", "size=1:64", seed="none", program=RESUMING)
    assert found["allocators"]["native"]["size"] == 1 and "size 15, 16, 17: not known" in said, said


@pytest.mark.one_torch
def test_each_run_may_have_a_folder_of_its_own(run, tmp_path):
    said, (row,) = run("fits", "--allocator", "native", seed="mask", program=RESUMING, left_in=["{folder}"])
    assert (row["steps"], row["verdict"]) == (2, "yes, at the most"), said
    words = ("search", "--allocator", "native", "--vary", "size=1:64")
    said, found = run(*words, seed="none", program=RESUMING, left_in=["{folder}"])
    assert 20 < found["allocators"]["native"]["size"] < 64, said
    assert not list(tmp_path.rglob("last.pt"))


@pytest.mark.one_torch
@pytest.mark.thorough
def test_so_it_is_with_other_allocators_and_remedies(run, tmp_path):
    said, rows = run("fits", "--allocator", "native,expandable", seed="none", program=RESUMING)
    assert [row["verdict"] for row in rows] == ["yes", "not known"] and "as a checkpoint" in said, said
    said, rows = run("dryrun", "--allocator", "native,expandable", seed="none", program=RESUMING)
    assert [(row["verdict"], row["steps"]) for row in rows] == [("yes", 0), ("yes", 0)]
    assert "an optimizer was made, and took no step" in said, said
    (tmp_path / "last.pt").unlink()
    words = ("advise", "--gpu", "300MiB", "--context", "100MiB")
    said, _ = run(*words, seed="none", program=RESUMING)
    assert "with native: no: " in said and "allocator nothing - not known the allocator gapless" in said, said
    said, _ = run(*words, seed="none", program=RESUMING, left_in=["{folder}"])
    assert "allocator nothing - not known" not in said and "with gapless: no: " in said, said
    said, rows = run("dryrun", "--allocator", "native,expandable", seed="none", program=RESUMING, left_in=["{folder}"])
    assert [row["steps"] for row in rows] == [2, 2], said
