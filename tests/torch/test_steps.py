"""--steps: a program is stopped after so many steps of training, which are one of each optimizer."""
import pytest

MiB = 1 << 20


def test_the_first_steps_may_be_enough(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", "--steps", "4", program="""
import torch
weight = torch.nn.Parameter(torch.zeros(1000, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=1)
for step in range(10 ** 9):
    weight.grad = torch.zeros_like(weight)
    try: optimizer.step()
    except Exception: raise SystemExit(7)
""")
    assert row["fits"] is True and row["steps"] == row["stopped_after_steps"] == 4
    assert "stopped after 4 steps, as asked (--steps)" in text


# A GAN whose generator comes every third time, and optimizers that step in the backward pass: of 40 MiB each.
PROGRAMS = {"gan": """
import torch
critic, generator = (torch.nn.Parameter(torch.zeros(5 << 20, device="cuda")) for _ in range(2))
optimizers = [torch.optim.Adam([one]) for one in (critic, generator)]
for step in range(8):
    for one, optimizer in zip((critic, generator), optimizers):
        if one is critic or step % 3 == 2:
            one.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
""", "backward": """
import torch
weights = [torch.nn.Parameter(torch.zeros(1 << 20, device="cuda")) for _ in range(10)]
optimizers = {weight: torch.optim.Adam([weight]) for weight in weights}
def step(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()
for weight in weights: weight.register_post_accumulate_grad_hook(step)
for step in range(8): sum(weight.square().sum() for weight in weights).backward()
"""}


def test_optimizers_that_are_compared_are_told_apart(dryrun):
    """What has an __eq__ of its own has no hash."""
    _, (row,) = dryrun("--gpu", "1GiB", "--steps", "3", program="""
import torch
class Compared(torch.optim.SGD):
    def __eq__(self, other): return len(self.param_groups) == len(other.param_groups)
weights = [torch.nn.Parameter(torch.zeros(1000, device="cuda")) for _ in range(2)]
optimizers = [Compared([weight], lr=1) for weight in weights]
for step in range(8):
    for weight, optimizer in zip(weights, optimizers):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
""")
    assert row["verdict"] == "yes" and row["steps"] == row["stopped_after_steps"] == 3


ONE_STEP = """
import sys
import torch
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.zeros(5 << 20, device="cuda"))  # 20 MiB
optimizer = getattr(torch.optim, sys.argv[1])([weight], lr=.1)
for step in range(int(sys.argv[2])):
    held = [weight.square().sum()] + [torch.zeros(5 << 20, device="cuda") for _ in range(9)]
    held.pop(0).backward()
    del held
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("command", ["dryrun", "fits"])
def test_what_a_second_step_has_beside_the_first_is_told(command, dryrun, fits):
    def said(*arguments):
        if command == "fits":
            found = fits(ONE_STEP, "--gpu", "1GiB", arguments=arguments)
            return found.text, found.row
        text, (row,) = dryrun("--gpu", "1GiB", program=ONE_STEP, arguments=arguments)
        return " ".join(text.split()), row
    text, first = said("Adam", "1")
    assert first["state_bytes_of_first_step"] == 40 * MiB  # its steps are counted on the host
    assert "it took one step, at whose end the optimizer made its states of 40.00 MiB" in text
    text, second = said("Adam", "2")
    assert "it took one step" not in text
    assert second["peak_allocated_bytes"] == first["peak_allocated_bytes"] + 40 * MiB
    text, _ = said("SGD", "1")
    assert "it took one step" not in text, "which keeps nothing"


@pytest.mark.one_torch
@pytest.mark.parametrize("name, steps, has_states", [("gan", 2, False), ("gan", 3, True), ("backward", 1, True)])
@pytest.mark.thorough(but=2)
def test_a_step_is_one_of_each_optimizer(dryrun, name, steps, has_states):
    """Stopped before one of them has its states, it says nothing of what the program needs."""
    _, (row,) = dryrun("--gpu", "1GiB", "--steps", str(steps), program=PROGRAMS[name])
    assert row["steps"] == row["stopped_after_steps"] == steps
    if has_states:
        assert row["verdict"] == "yes" and row["peak_allocated_bytes"] >= (40 + 80) * MiB
    else:
        assert row["fits"] is None
        assert "it was stopped (--steps) before an optimizer had made a step" in row["reason"]


# A loss that is added up with its graph, 4 MiB a step, beside batches of any size.
KEEPS = """
import sys
import torch
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.zeros(1024, 2048, device="cuda"))
optimizer = torch.optim.Adam([weight])
total = 0.
for step in range(int(sys.argv[1])):
    rows = 100 * (7 * step % 5 + 1)
    loss = (torch.zeros(rows, 1024, device="cuda") @ weight).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept = (torch.zeros(1024, 1024, device="cuda") @ weight).mean() if sys.argv[2] == "keeps" else loss
    total += kept if sys.argv[2] == "keeps" else kept.detach()
    del loss, kept
"""


@pytest.mark.parametrize("command", ["dryrun", "fits"])
def test_what_grows_from_step_to_step_is_told(command, dryrun, fits):
    def said(*words, arguments, status=0):
        if command == "fits":
            found = fits(KEEPS, "--gpu", "1GiB", *words, arguments=arguments, status=status)
            return found.text, found.row
        text, (row,) = dryrun("--gpu", "1GiB", *words, program=KEEPS, arguments=arguments)
        return " ".join(text.split()), row
    text, row = said(arguments=("14", "keeps"))
    assert row["fits"] is True and "what was allocated grew over the last 12 steps, by " in text
    assert "`gapless dryrun --record run.pickle`, then `gapless inspect run.*.pickle`)" in text
    steps = row["growth"]["steps"]
    assert abs(row["growth"]["bytes"] / steps - (4 * MiB + 520)) < 4 * MiB / steps
    _, stopped = said("--steps", "12", arguments=("100", "keeps"), status=3)
    assert stopped["verdict"] == "not known"
    assert stopped["reason"].startswith("it was stopped (--steps) while what was allocated grew over")
    if command == "dryrun":
        _, (row,) = dryrun("--gpu", "1GiB", arguments=("14", "keeps"),
                           program="import torch; torch.cuda.set_per_process_memory_fraction(0.5)\n" + KEEPS)
        assert row["growth"]["left_bytes"] == (512 << 20) - row["peak_reserved_bytes"]
    text, row = said("--steps", "12", arguments=("100", "adds"))
    assert row["verdict"] == "yes" and row["growth"] is None, text


# Batches of any length, as a program makes them that has no loader.
ANY_LENGTH = """
import sys
import torch
weight = torch.nn.Parameter(torch.zeros(1024, 1024, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=.1)
for step in range(12):
    rows = 1000 * (1 + 7 * step % int(sys.argv[1]))
    (torch.zeros(rows, 1024, device="cuda") @ weight).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("command", ["dryrun", "fits"])
def test_steps_that_differ_may_be_larger_still(command, dryrun, fits):
    def said(gpu, program=ANY_LENGTH, arguments=("11",)):
        if command == "fits":
            found = fits(program, "--gpu", gpu, arguments=arguments)
            return found.text, found.row
        text, (row,) = dryrun("--gpu", gpu, program=program, arguments=arguments)
        return " ".join(text.split()), row
    text, row = said("1GiB")
    peaks = row["step_peaks"]
    assert (peaks["steps"], peaks["times_most"], peaks["differ"]) == (10, 1, True)
    assert peaks["most_bytes"] == row["peak_allocated_bytes"] and peaks["least_bytes"] < 40 * MiB
    assert "steps differ" not in text, "of 11,000 rows: as much again has room"
    tight = "280MiB" if command == "fits" else "600MiB"  # beside contexts of 100 and 424 MiB
    text, _ = said(tight)
    assert "steps differ: 10 of them took" in text
    text, row = said(tight, arguments=("3",))
    assert "steps differ" not in text and row["step_peaks"]["times_most"] > 1, "of 3,000 rows, again and again"


def test_what_watches_is_not_compiled(fits):
    """torch.compile met the functions that PyTorch calls in steps and copies, and looked for modules of their names. A T4
    has no bfloat16 for it: it leaves such a function to PyTorch, and what that calls is compiled by itself."""
    said = fits("""
import torch
layer = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
@torch.compile
def loss(x):
    with torch.autocast("cuda", torch.bfloat16):
        return layer(x).float().square().mean()
step = torch.compile(optimizer.step)
for _ in range(3):
    loss(torch.ones(512, 512, device="cuda")).backward()
    step()
    optimizer.zero_grad()
""", "--gpu", "T4")
    assert said.row["fits"] is True and said.row["steps"] == 3, said.text
