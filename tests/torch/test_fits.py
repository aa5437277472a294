"""gapless fits, as a user runs it: verdicts, and what held the memory."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

MiB = 1 << 20


def holders(row, moment="memory"):
    """What held the memory, where that was something; it adds up."""
    memory = row[moment]
    assert sum(memory["holders"].values()) == memory["allocated_bytes"]
    assert memory["fragmentation_bytes"] == memory["reserved_bytes"] - memory["allocated_bytes"]
    return {name: held for name, held in memory["holders"].items() if held}


# What holds memory at the peak is known: the spike comes when gradients and states are there. Each block is smaller
# than 1 MiB, where every allocator rounds to 512 bytes. With a seed, or it would be run once more.
KNOWN = """
import json, torch; torch.manual_seed(0)
def blocks(tensors): return sum(-(-t.untyped_storage().nbytes() // 512) * 512 for t in tensors if t.is_cuda)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(4)], torch.nn.BatchNorm1d(300))
    def forward(self, x):
        self.seen = self.layers(x)
        return self.seen.sum()
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
pinned = torch.zeros(8 << 20, dtype=torch.uint8).pin_memory()
for step in range(3):
    x = torch.ones(64, 300).cuda()
    loss = net(x)
    loss.backward()
    optimizer.step()
    spike = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
    del spike
    if step < 2: optimizer.zero_grad()
states = [s for state in optimizer.state.values() for s in state.values()]
json.dump({"parameters": blocks(net.parameters()), "gradients": blocks(p.grad for p in net.parameters()),
           "optimizer_states": blocks(states), "buffers": blocks(net.buffers()), "inputs": blocks([x]),
           "activations": blocks([net.seen, loss]), "peak": torch.cuda.max_memory_allocated()}, open("own.json", "w"))
"""


def test_what_holds_the_memory_is_what_the_program_says(fits, tmp_path):
    said = fits(KNOWN, "--gpu", "1GiB", "--allocator", "gapless,native,expandable")
    own = json.loads((tmp_path / "own.json").read_text())
    assert [row["allocator"] for row in said.rows] == ["gapless", "native", "expandable"]
    for row in said.rows:
        held = holders(row)
        assert row["memory"]["allocated_bytes"] == row["peak_allocated_bytes"] == own["peak"]
        for name in "parameters", "gradients", "optimizer_states", "buffers", "activations":
            assert held[name] == own[name], name
        assert own["inputs"] <= held["inputs"] <= own["inputs"] + 1024
        assert held["other"] >= 24 * MiB
        assert row["memory"]["at"] == "peak" and row["verdict"] == "yes" and row["steps"] == 3
        assert row["headroom_bytes"] == (1 << 30) - row["peak_used_bytes"]
        assert row["headroom_percent"] == pytest.approx(100 * row["headroom_bytes"] / (1 << 30))
        assert 8 * MiB <= row["host"]["peak_pinned_bytes"] < 9 * MiB
        assert row["host"]["peak_resident_bytes"] > 100 * MiB
        spike = next(place for place in row["memory"]["places"] if place["holder"] == "other")
        assert (spike["line"], spike["bytes"], spike["blocks"]) == ("train.py:19", 24 * MiB, 1)
    assert max(map(len, said.out.splitlines())) <= 80
    for text in ("optimizer states", "fragmentation", "train.py:19", "8.00 MiB pinned at its peak"):
        assert text in said.text


# 10 MiB of logits in 16 bits, 20 as float32, and 20 of what log_softmax makes of them.
LOGITS = """
import torch
head = torch.nn.Linear(64, 5120, bias=False, device="cuda", dtype=torch.bfloat16)
hidden = torch.zeros(1024, 64, device="cuda", dtype=torch.bfloat16)
labels = torch.zeros(1024, dtype=torch.long).cuda()
def entropy(values): return torch.nn.functional.cross_entropy(values, labels)
for step in range(2):
    logits = head(hidden)
    loss = entropy(logits.float())
    spike = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
    del spike
    if step: open("in_backward", "w").close()
    loss.backward()
torch.empty(1000 << 20, dtype=torch.uint8, device="cuda")
"""


def test_logits_are_what_a_loss_takes_and_makes(fits):
    program = LOGITS.replace("    loss.backward()\n", "    loss.backward(); del loss, logits\n")
    row = fits(program, "--gpu", "1GiB", status=3).row
    held = holders(row, "memory_at_peak")
    assert 30 * MiB <= held["logits_and_loss"] <= 30 * MiB + 4096  # the float32 ones went with the function
    assert held["parameters"] == 64 * 5120 * 2
    assert held["other"] >= 200 * MiB
    # In the backward pass their gradients are logits, too: as float32 twice, and once in 16 bits.
    row = fits(LOGITS.replace("    spike = ", "    #").replace("    del spike\n", ""), "--gpu", "1GiB", status=3).row
    held = holders(row, "memory_at_peak")
    assert held["logits_and_loss"] >= 60 * MiB and held.get("backward", 0) < MiB
    assert row["memory"]["at"] == "out of memory" and row["out_of_memory"]["asked_bytes"] == 1000 * MiB


def test_weights_that_are_replaced_before_anybody_looks_are_parameters(fits):
    """As quantisation replaces them; with a buffer beside them, and 64 MiB that it needs for itself."""
    row = fits("""
import torch; torch.manual_seed(0)
net = torch.nn.Linear(2048, 2048, bias=False).half()  # 8 MiB
net.register_buffer("mean", torch.zeros(1 << 20))  # 4 MiB
net.cuda()
for _ in range(1):
    spike = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    small = torch.ones(2048, 2048, dtype=torch.int8, device="cuda")
    net.weight = torch.nn.Parameter(small, requires_grad=False)
    del spike, small
""", "--gpu", "1GiB").row
    held = holders(row)
    assert held == {"parameters": 12 * MiB, "buffers": 4 * MiB, "other": 64 * MiB}


def test_copies_of_parameters_and_master_weights(fits):
    row = fits("""
import torch; torch.manual_seed(0)
net = torch.nn.Linear(512, 512, bias=False, device="cuda")  # 1 MiB
half = torch.nn.Linear(512, 256, bias=False, device="cuda", dtype=torch.bfloat16)
master = half.weight.detach().clone().float().requires_grad_()  # 512 KiB
optimizer = torch.optim.AdamW([master, net.weight])
for step in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = net(torch.ones(8, 512, device="cuda")).sum()
        spike = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")  # the cast of the weights is cached here
        del spike
    loss.backward()
    master.grad = torch.zeros_like(master)
    optimizer.step(); optimizer.zero_grad()
""", "--gpu", "1GiB").row
    held = holders(row)
    assert held["parameters"] == MiB + MiB // 4
    assert held["parameter_copies"] == MiB // 2
    assert held["optimizer_states"] == MiB // 2 + 2 * (MiB + MiB // 2)


TRAIN = """
import os, sys, torch
import torch.utils.checkpoint
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
net = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_embd=128, n_layer=3, n_head=4)).cuda()
if "checkpoints" in sys.argv: net.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(net.parameters())
for length in 60, 128, 90, 200:
    ids = torch.randint(0, 2000, (4, length)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1)
    optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.parametrize("kind", ["plain", "checkpoints"])
@pytest.mark.thorough
def test_watching_changes_nothing(fits, tmp_path, kind):
    """Peaks and calls are the dry run's, to the byte, and all memory of a plain program is accounted for. (What gapless
    reserves differs by a page between two dry runs, for torch 2.15 records events.)"""
    pytest.importorskip("transformers")
    rows = fits(TRAIN, "--gpu", "1GiB", "--allocator", "gapless,native", arguments=(kind,)).rows
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", "1GiB", "--context", "100MiB", "--allocator", "gapless,native", "--json",
         "dry.json", "--", sys.executable, "train.py", kind],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for row, dry in zip(rows, json.loads((tmp_path / "dry.json").read_text()), strict=True):
        exact = () if row["allocator"] == "gapless" else ("peak_reserved_bytes", "peak_used_bytes", "driver_calls")
        for name in "peak_allocated_bytes", "steps", *exact:
            assert row[name] == dry[name], name
        held = holders(row)
        assert held.get("other", 0) < 64 << 10
        assert {"parameters", "optimizer_states", "activations", "logits_and_loss"} <= held.keys()
        assert held["parameters"] == rows[0]["memory"]["holders"]["parameters"]


def test_an_allocator_that_does_not_tell(fits):
    said = fits("import torch\nx = torch.zeros(1 << 20, device='cuda')", "--gpu", "1GiB", "--allocator", "async")
    assert said.row["verdict"] == "yes" and said.row["peak_allocated_bytes"] == 4 * MiB and said.row["memory"] is None
    assert "what held the memory is not known: async does not tell what it gives out" in said.text


# Two tensors through the C interface to PyTorch's C++, which compiles in a moment.
def test_one_that_runs_out_of_memory(fits):
    said = fits("""
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(20)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
while True:
    for _ in range(5): kept.append(torch.empty(20 << 20, dtype=torch.uint8, device="cuda"))
    net(torch.ones(64, 1024).cuda()).sum().backward()
    optimizer.step()
""", "--gpu", "1GiB", "--picture", "memory.html", status=3)
    row = said.row
    assert row["fits"] is False and row["verdict"] == "no" and row["headroom_bytes"] is None
    assert (row["out_of_memory"]["line"], row["out_of_memory"]["asked_bytes"]) == ("train.py:7", 20 * MiB)
    assert row["memory"]["at"] == "out of memory"
    assert row["memory"]["allocated_bytes"] == row["out_of_memory"]["allocated_bytes"]
    held = holders(row)
    assert held["parameters"] == held["gradients"] == 20 * 4 * MiB
    assert "asked, and not had          20.00 MiB" in said.out
    assert f"{row['pid']} with native: no: 20.00 MiB asked in step {row['steps']} (train.py:7)" in said.text


def test_a_picture_is_one_file(fits, tmp_path):
    small = KNOWN.replace("range(3)", "range(1)").replace("if step < 2: ", "if False: ")
    fits(small, "--gpu", "1GiB", "--picture", "memory.svg")
    picture = (tmp_path / "memory.svg").read_text()
    assert picture.startswith("<svg xmlns") and picture.endswith("</svg>\n")
    for text in ("capacity 1.00 GiB", "<title>parameters</title>", "1 optimizer step<", "native, "):
        assert text in picture
    fits(small, "--gpu", "1GiB", "--picture", "memory.html")
    page = (tmp_path / "memory.html").read_text()
    assert page.startswith("<!doctype html>") and "what held the memory" in page and "<title>gradients</title>" in page


def test_an_exception_that_the_program_passes_over_is_told(fits):
    said = fits("""
import torch, traceback
torch.zeros(1 << 20, device="cuda")
try: raise ValueError("no such column")
except ValueError: traceback.print_exc()
""", "--gpu", "1GiB")
    assert said.row["verdict"] == "yes"
    assert "an exception was printed, and did not end the program: ValueError: no such column" in said.text


def test_wrong_words_are_named(tmp_path):
    def run(*words):
        return subprocess.run([GAPLESS, "fits", *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    (tmp_path / "train.py").write_text("")
    (tmp_path / "train.ipynb").write_text("{}")
    for words, message in ((("--", "train.py"), "train.py: cannot be run: it is no command; try: python train.py"),
                           (("--", "./train.ipynb"), "try: jupyter nbconvert --to notebook --execute ./train.ipynb"),
                           (("--picture", "a.png", "--", "true"), "its name is to end with .svg or .html"),
                           (("--gpu", "0xT4", "--", "true"), "1 to 128 GPUs"),
                           (("--gpu", "A1000", "--", "true"), '"A1000" is no GPU'),
                           (("--steps", "-1", "--", "true"), "less than 0"),
                           (("--allocator", "best", "--", "true"), "best not in"),
                           (("--json", "none/a.json", "--", "true"), "cannot be written"),
                           (("--", "CUDA_VISIBLE_DEVICES=0", "python", "train.py"),
                            "variables are set by env; try: env CUDA_VISIBLE_DEVICES=0 ..."),
                           (("--", "python train.py"), "it is one word; leave its quotes away, or try: sh -c 'python train.py'"),
                           (("--", "no-such-program"), "no-such-program: cannot be run")):
        done = run(*words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "gapless fits --gpu 3x19.58GiB" in run("--help").stdout


# --- ends ---------------------------------------------------------------------------------------------------

ENDS = [
    ("print('hello')", 3, None, "the program used no GPU"),
    ("import torch; torch.cuda.init(); torch.cuda.mem_get_info()", 0, True, "never asked for memory there"),
    ("import torch; torch.zeros(9).cuda(); raise ValueError('no such column')", 1, None,
     "it ended with status 1 (ValueError: no such column) (train.py:1)"),
    ("import argparse; p = argparse.ArgumentParser(); p.add_argument('data'); p.parse_args()", 2, None,
     "ended with status 2 before it used a GPU: train.py: error: the following arguments are required: data"),
    ("raise OSError(\"We couldn't connect to 'https://huggingface.co' to load the files\")", 1, None,
     "it seems to have wanted something from the network"),
    ("import socket, torch; x = torch.zeros(9).cuda(); socket.create_connection(('no-such-host.invalid', 80))", 1,
     None, "it seems to have wanted something from the network"),
    ("raise RuntimeError('Found no NVIDIA driver on your system.')", 1, None,
     "something took LD_PRELOAD away before it began"),
    ("import torch; input('which data? '); torch.zeros(9).cuda()", 1, None, "EOFError"),
    ("import torch, os; x = torch.zeros(9).cuda(); os.kill(os.getpid(), 9)", 128 + 9, None, "it was ended by SIGKILL"),
    ("import torch; x = torch.rand(99, device='cuda'); y = torch.empty(len(x[x > 0.5]) << 18, device='cuda'); int((x > 0.5).sum())", 3, None,
     "peaks are estimates from here: the size of a tensor followed from numbers that nobody knows"),
]


@pytest.mark.parametrize("program, status, verdict, words", ENDS)
def test_every_end_has_its_answer(fits, program, status, verdict, words):
    said = fits(program, "--gpu", "1GiB", status=status)
    assert said.row["fits"] is verdict
    assert words in said.text
    assert (said.row["reason"] is None) == (verdict is True)


def test_what_is_logged_beside_is_not_why_it_ended(fits):
    """A program's telemetry had no network, and "it seems to have wanted something from the network"."""
    said = fits("import sys, torch; torch.zeros(9).cuda(); print('Retrying: Name or service not known', file=sys.stderr); [][0]",
                "--gpu", "1GiB", status=1)
    assert said.row["reason"].endswith("(IndexError: list index out of range) (train.py:1)")


FOREVER = """
import time, torch
x = torch.zeros(50 << 20, dtype=torch.uint8, device="cuda")
open("ready", "w").close()
try:
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    print("saving")
"""


NOTEBOOK = """
import subprocess, sys
kernel = '''
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import torch")
shell.run_cell("x = torch.empty(9, device='cuda')" + chr(10) + "y = torch.empty(2 << 30, device='cuda')")
'''
subprocess.run([sys.executable, "-c", kernel], check=True)
sys.exit(int(sys.argv[1]))
"""


def test_a_notebook_that_is_executed_dies_in_its_cell(fits):
    """What runs it has the error; the kernel that met it ends well."""
    said = fits(NOTEBOOK, "--gpu", "1GiB", arguments=("1",), status=3)
    assert said.row["fits"] is False
    assert "no: 8.00 GiB asked in step 0 (In[1]:2), with 512 bytes allocated" in said.text
    said = fits(NOTEBOOK.replace("2 << 30", "-1"), "--gpu", "1GiB", arguments=("1",), status=1)
    assert said.row["verdict"] == "not known" and "it ended well, but the command ended with status 1" in said.text
    assert [place["line"] for place in said.row["memory"]["places"]] == ["In[1]:1"]
    said = fits(NOTEBOOK, "--gpu", "1GiB", arguments=("0",))
    assert said.row["verdict"] == "yes, but 1 stall in 1 retry and 1 out of memory caught"


@pytest.mark.parametrize("caught", [True, False])
@pytest.mark.thorough(but=1)
def test_one_that_is_stopped_is_not_known_to_fit(fits, tmp_path, caught):
    """Not even where it takes its interruption for a good end."""
    program = FOREVER if caught else FOREVER.replace("except KeyboardInterrupt", "except ZeroDivisionError")
    said = fits(program, "--gpu", "1GiB", "--time-limit", "8", "--allocator", "native,expandable", status=3)
    assert len(said.rows) == 2
    for row in said.rows:
        assert row["fits"] is None and "stopped at its time limit (--time-limit)" in row["reason"]
        assert row["peak_allocated_bytes"] == 50 * MiB and row["memory"]["allocated_bytes"] == 50 * MiB
    # By the user, in the first of two runs: the second is not begun.
    (tmp_path / "ready").unlink()
    child = subprocess.Popen([GAPLESS, "fits", "--gpu", "1GiB", "--json", "--allocator", "native,expandable", "--",
                              sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    (row,) = json.loads(out)
    assert child.returncode == 3 and row["fits"] is None and "it was interrupted" in row["reason"]


SIGNALS = """
import signal, sys, time, torch
class Late(Exception): pass
def late(*_): raise KeyboardInterrupt if count % 2 else Late
signal.signal(signal.SIGALRM, late)
x = torch.rand(1000, 1000, device="cuda")
lost = 0
for count in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002 + count * 3e-6)
        end = time.monotonic() + 5
        while time.monotonic() < end: (x @ x).relu().sum()  # asks for memory, and who asks is looked for
        lost += 1
    except (KeyboardInterrupt, Late): pass
sys.exit(f"lost {lost}")
"""


def test_what_a_signal_raises_is_the_programs_wherever_it_comes(fits):
    """Most come while an operator runs, and the next line of Python's is one of ours."""
    said = fits(SIGNALS, "--gpu", "1GiB", "--time-limit", "60", status=1)
    assert said.text.endswith("last words (with native): lost 0"), said.text


def test_one_that_will_not_stop_is_ended_with_all_it_started(tmp_path):
    (tmp_path / "stubborn.sh").write_text("""
trap '' INT TERM
sleep 1000 & echo $! > child
setsid sleep 1000 & echo $! > apart
touch ready
while true; do sleep 0.1; done
""")
    child = subprocess.Popen([GAPLESS, "fits", "--allocator", "native", "--", "sh", "stubborn.sh"], cwd=tmp_path,
                             stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)  # the second time it is meant
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 3 and "it had used no GPU when it was interrupted" in out
    for name in "child", "apart":
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / name).read_text()), 0)


def test_memory_that_was_found_late_is_a_but(fits):
    said = fits("""
import torch
x = torch.empty(500 << 20, dtype=torch.uint8, device="cuda"); del x
x = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
try: torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError: pass
torch.zeros(5, device="cuda")
""", "--gpu", "1GiB")
    assert said.row["fits"] is True and said.row["retries"] >= 1
    assert said.row["verdict"].startswith("yes, but ") and said.row["verdict"].endswith("and 1 out of memory caught")
    assert "yes, but" in said.out


def test_headroom_counts_all_processes_on_a_gpu(fits):
    rows = fits("""
import subprocess, sys, torch
x = torch.empty((300 if len(sys.argv) == 1 else 500) << 20, dtype=torch.uint8, device=f"cuda:{len(sys.argv) - 1}")
if len(sys.argv) == 1:
    y = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")
    subprocess.run([sys.executable, "train.py", "child"], check=True)
""", "--gpu", "2x1GiB").rows
    by_device = {(row["device"], row["peak_allocated_bytes"] >> 20): row["headroom_bytes"] >> 20 for row in rows}
    assert by_device == {(0, 300): 1024 - 400, (1, 100): 1024 - 200 - 600, (1, 500): 1024 - 200 - 600}


def test_headroom_is_not_told_of_processes_that_came_one_after_the_other(fits):
    said = fits("""
import subprocess, sys, torch
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "train.py", "child"], check=True)
x = torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
""", "--gpu", "1GiB")
    assert [(row["fits"], row["headroom_bytes"]) for row in said.rows] == [(True, None)] * 2
    assert "0.0 %" not in said.out


def test_what_uses_no_gpu_is_run_once(fits):
    said = fits("raise SystemExit('no config')", "--gpu", "1GiB", "--allocator", "all", status=1)
    assert [row["asked_allocator"] for row in said.rows] == ["gapless"]
    assert "not tried, as no GPU was used: native, expandable" in said.out


def test_nothing_is_printed_that_the_program_does_not_print(fits):
    """torch.distributed.reduce_op warns whoever asks it for its class, and the warning named our files."""
    said = fits("import torch, torch.distributed\ntorch.zeros(9).cuda()\nprint('all')", "--gpu", "1GiB", "--show-output")
    assert "all" in said.out + said.err
    assert "Warning" not in said.out + said.err and "watch_" not in said.out + said.err


def test_a_gpu_that_this_pytorch_has_no_kernels_for(dryrun, fits):
    """PyTorch for CUDA 13 has none for compute capability 7.0. (It says so itself, where its words are seen.)"""
    told = "has kernels for compute capability 7.5, 8.0, 8.6, 9.0, 10.0, 12.0, and none for 7.0"
    for gpu, verdict in (("V100", "yes, with another build of PyTorch"), ("T4", "yes")):
        program = "import torch; x = torch.ones(9, device='cuda')"
        error, rows = dryrun("--gpu", gpu, program=program)
        assert (rows[0]["fits"], rows[0]["verdict"]) == (True, verdict)
        assert (told in error) is (gpu == "V100")
        said = fits(program, "--gpu", gpu)
        assert said.row["verdict"] == verdict and ("another build" in said.out) is (gpu == "V100")


@pytest.mark.parametrize("ends, told", [("sys.exit('no data in ./data')", "it ended with status 1: no data in ./data"),
                                        ("print('x'); sys.exit(7)", "it ended with status 7: x"),
                                        ("raise ValueError('no data')", "it ended with status 1 (ValueError: no data) (train.py:5)")])
@pytest.mark.thorough(but=2)
def test_who_ends_by_itself_says_why(fits, ends, told):
    said = fits(f"""
import sys
import torch
x = torch.ones(9, device="cuda")
{ends}
""", "--gpu", "1GiB", status=7 if "7" in ends else 1)
    assert said.row["reason"] == told


def test_what_was_begun_for_a_refused_request_is_nobodys(fits):
    """Expandable segments map what there is before they find that it is not enough."""
    said = fits("""
import torch
kept = [torch.zeros(100 << 20, dtype=torch.uint8, device="cuda")]
try: torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError: pass
kept.append(torch.zeros(100 << 20, dtype=torch.uint8, device="cuda"))
""", "--gpu", "2GiB", "--allocator", "expandable")
    assert said.row["peak_used_bytes"] == 300 * MiB and said.row["headroom_bytes"] == (2048 - 300) * MiB, said.text
    assert "less is left than" not in said.text
    # Nor where the next request is served of what is there already, and what is freed tells of it.
    said = fits("""
import torch
kept = [torch.zeros(1000, device="cuda")]
try: torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError: pass
kept.append(torch.zeros(1000, device="cuda"))
kept.clear()
""", "--gpu", "2GiB", "--allocator", "gapless,native,expandable")
    for row in said.rows:
        assert row["peak_used_bytes"] == 100 * MiB + row["peak_reserved_bytes"] <= 104 * MiB
        assert not any("less is left than" in note for note in row["notes"])


@pytest.mark.parametrize("allocator", ["gapless", "native", "expandable"])
def test_a_fraction_of_the_gpu_that_a_program_allows_itself_is_told(fits, allocator):
    program = """
import sys, torch
torch.cuda.set_per_process_memory_fraction(0.5)
x = torch.zeros(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
"""
    said = fits(program, "--gpu", "2GiB", "--allocator", allocator, arguments=("1000",))
    assert said.row["limit_bytes"] == 1 << 30 and said.row["headroom_bytes"] == 24 * MiB, said.text
    assert "allows itself 1.00 GiB of the GPU's 2.00 GiB (memory fraction): 24.00 MiB of that are left" in said.text
    said = fits(program, "--gpu", "2GiB", "--allocator", allocator, arguments=("1100",), status=3)
    assert said.row["fits"] is False
    assert said.row["reason"].endswith("on GPU 0, of which the program allows itself 1.00 GiB (memory fraction)")
