"""gapless search, as a user runs it."""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

# Without PyTorch, so that a probe takes a tenth of a second: 100 MiB for each of the batch, and 100 more.
PLAIN = """
import ctypes, os, sys
batch = int(sys.argv[1])
with open(os.environ.get("RUNS", "/dev/null"), "a") as runs: runs.write(f"{batch}\\n")
driver, address = ctypes.CDLL(None), ctypes.c_void_p()
def allocate(bytes): return driver.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0
def step(batch): return all(allocate(100 << 20) for _ in range(batch + 1))
"""
MUST_FIT = PLAIN + "\nsys.exit(0 if step(batch) else 1)\n"

# The sizes differ from step to step, as those of batches of sentences do, and some of each outlive the step.
VARYING = """
import sys, torch
batch = int(sys.argv[1])
kept = []
for length in (900, 1100, 700, 1000, 1300, 800, 1200):
    held = [torch.empty(batch, length, 512, device="cuda") for _ in range(6)]
    kept = held[::3]
    del held
"""


@pytest.fixture
def search(tmp_path):
    """search(*words, program=..., command=..., status=0): (standard error and output, what JSON says)."""

    def run(*words, program=MUST_FIT, command=("{batch}",), status=0, gpu="1GiB", **environment):
        (tmp_path / "train.py").write_text(program)
        found = tmp_path / "found.json"
        found.unlink(missing_ok=True)
        done = subprocess.run(
            [GAPLESS, "search", "--gpu", gpu, "--context", "0", "--json", found, *words, "--", sys.executable,
             "train.py", *command],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment})
        assert done.returncode == status, done.stderr + done.stdout
        return done.stderr + done.stdout, json.loads(found.read_text()) if found.exists() else None

    return run


TRAINS_FOR_DAYS = """
import sys, torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.zeros(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


def runs(path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.thorough
def test_a_program_that_trains_for_days(search):
    """As it is: --steps ends each probe, and the answer says of which steps it is."""
    text, found = search("--steps", "2", "--allocator", "native,expandable", "--vary", "batch=16384,24576",
                         program=TRAINS_FOR_DAYS, gpu="256MiB")
    for answer in found["allocators"].values():
        assert answer["proven"] and answer["fails_at"] == answer["batch"] + 8192 == 24576
        assert {row["stopped_after_steps"] for probe in answer["probes"] if probe["verdict"] == "yes"
                for row in probe["rows"]} == {2}
    assert text.count("warning: native, expandable: stopped after 2 steps, as asked (--steps)") == 1


def test_the_answer_is_that_of_trying_all(search, tmp_path):
    allocators = ["native", "gapless"]
    text, found = search("--allocator", ",".join(allocators), "--vary", "batch=51:54", program=VARYING)
    everything = {}

    def try_one(batch):
        rows = tmp_path / f"rows{batch}.json"
        done = subprocess.run(
            [GAPLESS, "dryrun", "--gpu", "1GiB", "--context", "0", "--allocator", ",".join(allocators), "--json", rows,
             "--", sys.executable, "train.py", str(batch)],
            cwd=tmp_path, capture_output=True, timeout=120, check=False)
        assert done.returncode in (0, 3), done.stderr
        for row in json.loads(rows.read_text()):
            everything[row["allocator"], batch] = row

    with concurrent.futures.ThreadPoolExecutor(2) as at_once:
        list(at_once.map(try_one, range(51, 55)))
    for allocator in allocators:
        answer = found["allocators"][allocator]
        fits = [batch for batch in range(51, 55) if everything[allocator, batch]["fits"]]
        assert answer["batch"] == max(fits) and answer["proven"] is True
        assert answer["fails_at"] == answer["batch"] + 1
        row = everything[allocator, answer["batch"]]
        for name in ("peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes", "total_bytes"):
            assert answer[name] == row[name]
        assert all(probe["host_bytes"] > 100 << 20 and probe["seconds"] > 0.5 for probe in answer["probes"])
        assert f"{allocator}, batch {answer['fails_at']}: no: " in text and "(train.py:6)" in answer["reason"]
    answers = [found["allocators"][allocator]["batch"] for allocator in allocators]
    assert answers[0] < answers[1]  # or this program would not tell one allocator from another


def test_what_is_found_where_it_is_known(search, tmp_path):
    text, found = search("--allocator", "native", "--jobs", "1", "--vary", "batch=1:64")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["top_fits"], answer["proven"]) == (9, 10, False, True)
    assert answer["monotone"] is True and answer["warnings"] == [] and answer["verdict"] == "yes"
    assert answer["peak_used_bytes"] == 1000 << 20 and answer["total_bytes"] == 1 << 30
    assert "native         9        10" in text
    assert "native, batch 10: no: 100.00 MiB asked, with 1000.00 MiB in use on GPU 0" in text
    probes = {probe["setting"]["batch"]: probe["fits"] for probe in answer["probes"]}
    assert all(fits == (batch <= 9) for batch, fits in probes.items()) and len(probes) <= 6
    assert found["vary"] == {"batch": "1:64"} and found["command"][-1] == "{batch}"
    assert max(len(line) for line in text.splitlines() if line.startswith(("allocator", "native  "))) <= 80


def test_json_on_standard_output_is_alone(tmp_path):
    (tmp_path / "train.py").write_text(MUST_FIT)
    done = subprocess.run([GAPLESS, "search", "--gpu", "1GiB", "--context", "0", "--allocator", "native", "--vary", "batch=8,9,16",
                           "--json",
                           "--", sys.executable, "train.py", "{batch}"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"]) == (9, 16)
    assert "allocator" in done.stderr


def test_the_top_of_the_range_fits(search):
    text, found = search("--allocator", "native", "--vary", "batch=1:7")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["top_fits"]) == (7, None, True)
    assert "native, batch 7: it fits, and no larger one was asked for" in text


def test_nothing_fits(search):
    text, found = search("--allocator", "native", "--vary", "batch=20:40", status=3)
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["proven"]) == (None, 20, True)
    assert "native      none        20" in text


def test_caught_out_of_memory_is_no_plain_yes(search):
    text, found = search("--allocator", "native", "--vary", "batch=1:32", program=PLAIN + "step(batch)\nallocate(1)\n")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"]) == (9, 10)
    assert "native, batch 10: yes, after 1 out of memory: out of memory once, which the program caught" in text


LENGTHS = """
import sys, torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
data = [[1] * (512 if i == 2000 else 64) for i in range(4000)]
def padded(items):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(item) for item in items], batch_first=True)
for seen, ids in enumerate(DataLoader(data, int(sys.argv[1]), shuffle=True, collate_fn=padded)):
    x = torch.empty(ids.numel() << 14, dtype=torch.uint8, device="cuda")
    if seen == 3: break
"""


@pytest.mark.thorough
def test_longest_batches_are_warned_of_and_fed_where_that_is_asked_for(search):
    """1 MiB an item, and 8 MiB where the longest is among them."""
    words = ("--allocator", "native", "--vary", "batch=24,32,64")
    text, found = search(*words, program=LENGTHS, gpu="250MiB")
    assert found["allocators"]["native"]["batch"] == 64
    warning = "warning: native: data: list: 4 of 63 batches were fed; the longest were not among those that came after a GPU was used: 64 of 512 (--worst-case feeds them)"
    assert warning in " ".join(text.split())
    text, found = search("--worst-case", *words, program=LENGTHS, gpu="250MiB")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"]) == (24, 32) and "data:" not in text


CHOOSES = """
import sys, torch
x = torch.empty(int(sys.argv[1]) << 20, device="cuda")
scores = torch.rand(99, device="cuda")
chosen = len(scores[scores > 0.5])
"""


def test_sizes_that_nobody_knows_are_tried_at_their_most(search):
    words = ("--allocator", "native", "--vary", "batch=192,256")
    text, found = search(*words, program=CHOOSES)
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["verdict"]) == (192, 256, "yes, at the most")
    assert "warning: native: sizes that nobody knows are as large as they can be (--unknown most)" in text
    # Where something is read by which the program may do more, they are taken as they come if that is all one.
    text, found = search(*words, program=CHOOSES + "int((scores > 0.5).sum())\n")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["verdict"]) == (192, 256, "yes, by estimates")
    assert "with sizes that nobody knows as large as they can be (--unknown most) batch 192 takes as much" in " ".join(text.split())


@pytest.mark.thorough
def test_estimates_are_searched_where_that_is_asked_for(search):
    program = CHOOSES + "y = torch.empty(chosen << 18, device='cuda')\nint((scores > 0.5).sum())\nprint('said at its end')\n"
    text, _ = search("--allocator", "native", "--vary", "batch=192,256", program=program, status=2)
    assert "it is not known whether it fits: peaks are estimates from here" in text and "; --estimates takes" in text
    assert "; with as many as there can be it is not known: " in text
    assert "\nthe program's last words:\n" in text and "\n  said at its end" in text and "\\n" not in text
    text, found = search("--allocator", "native", "--estimates", "--vary", "batch=192,256", program=program)
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["verdict"]) == (192, 256, "yes, by estimates")
    assert "warning: native: peaks are estimates from here" in text


# 4 MiB for each of the batch, and as much again for a number that the host reads: 0, or another one.
READS = """
import sys, torch
x = torch.empty(int(sys.argv[1]) << 20, device="cuda")
number = int((torch.rand(1024, 1024, device="cuda") @ torch.rand(1024, 1024, device="cuda"))[0].int().sum() % 7)
y = torch.empty(int(sys.argv[1]) * {more} + 1 << 20, device="cuda")
"""


@pytest.mark.thorough
def test_what_was_found_is_tried_with_other_numbers(search, tmp_path):
    words = ("--allocator", "native,expandable", "--vary", "batch=240,256", "--resume", tmp_path / "kept.json")
    text, found = search(*words, program=READS.format(more="0"))
    assert [(answer["batch"], answer["proven"]) for answer in found["allocators"].values()] == [(240, True), (240, True)]
    said = " ".join(text.split())
    assert ("warning: native, expandable: the host read integers or flags that nobody knows once (train.py:4); with "
            "other numbers in their place (--unknown noise) it takes as much") in said
    _, again = search(*words, program=READS.format(more="0"))
    assert again["probes_run"] == 0 and again["allocators"]["native"]["batch"] == 240
    # The memory goes by them: what was found is no answer.
    text, found = search("--vary", "batch=240,256", "--allocator", "native", program=READS.format(more="number"), status=3)
    for answer in found["allocators"].values():
        assert (answer["batch"], answer["by_estimates"], answer["verdict"], answer["proven"]) == (None, 240, "not known", False)
        assert "with other numbers in their place (--unknown noise)" in answer["reason"]
    said = " ".join(text.split())
    assert "warning: native: batch 240: not known: the host read integers" in said
    assert "not known" in next(line for line in text.splitlines() if line.startswith("native "))


@pytest.mark.parametrize("program, told", [
    ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
    ("import argparse; argparse.ArgumentParser().parse_args()", "unrecognized arguments: 1"),
    ("print('hello')", "the program used no GPU"),
    (PLAIN + "step(0); raise ValueError('of its own')", "ValueError: of its own")])
def test_a_program_that_fails_for_another_reason_is_told_at_once(search, program, told):
    text, found = search("--vary", "batch=1:64", program=program, status=2)
    assert told in text and "with batch 1 (native) it is not known whether it fits" in text
    assert found is None


def test_a_program_that_cannot_be_started(tmp_path):
    done = subprocess.run([GAPLESS, "search", "--vary", "b=1:2", "--", "/no/such/program", "{b}"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "/no/such/program: cannot be run: No such file or directory" in done.stderr


def test_a_setting_that_fails_for_another_reason_is_left_out(search):
    text, found = search("--allocator", "native", "--vary", "batch=1:16", status=3,
                         program=PLAIN + "assert batch != 10, 'not ten'\n" + "sys.exit(0 if step(batch) else 1)\n")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["proven"]) == (9, 11, False)
    assert "warning: native: batch 10: not known, and left out: " in text


# Of 200 MiB for each of the batch, half are free where the garbage collector has come.
GARBAGE = """
import gc, sys, torch
gc.disable()
first = [torch.empty(int(sys.argv[1]) * 100 << 20, dtype=torch.uint8, device="cuda")]
first.append(first)
del first
gc.enable()
made = [[] for _ in range(2000)]  # as many as make it come
gc.disable()
second = torch.empty(int(sys.argv[1]) * 100 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.thorough
def test_an_answer_is_below_what_the_garbage_collector_decides(search):
    text, found = search("--allocator", "native", "--vary", "batch=2:5", program=GARBAGE, status=3)
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["in_doubt_at"]) == (3, 4)  # twice as much again, for what may lie elsewhere
    assert (answer["fails_at"], answer["proven"], answer["warnings"]) == (None, False, [])
    assert f"native, batch {answer['in_doubt_at']}: not known: Python's garbage collector freed " in text


def test_a_setting_that_changes_nothing_is_told(search):
    text, found = search("--allocator", "native", "--vary", "batch=1:64", program=PLAIN + "step(4)\n")
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"]) == (64, None)
    assert "warning: native: batch 1 and 64 take the same memory, to the byte: does the program go by that setting?" in " ".join(text.split())


def test_memory_that_is_not_monotone_is_told(search):
    # Odd batches are padded to twice as much.
    text, found = search("--allocator", "native", "--vary", "batch=1:64",
                         program=PLAIN + "sys.exit(0 if step(2 * batch if batch % 2 else batch) else 1)\n")
    answer = found["allocators"]["native"]
    assert answer["monotone"] is False
    assert (answer["batch"], answer["fails_at"]) == (8, 9)
    assert "warning: native: memory is not monotone in batch" in text


def test_a_larger_setting_that_takes_less_is_told(search):
    program = """
import sys, torch
torch.empty((700 if sys.argv[1] == "1" else 100) << 20, dtype=torch.uint8, device="cuda")
"""
    text, found = search("--allocator", "native", "--vary", "batch=1:3", program=program)
    assert found["allocators"]["native"]["monotone"] is False
    (warning,) = found["allocators"]["native"]["warnings"]
    assert "batch 2 takes less than 1 (100.00 MiB and 700.00 MiB allocated)" in warning
    assert f"warning: native: {warning[:40]}" in text


def test_a_probe_that_does_not_end_is_ended(search, tmp_path):
    program = PLAIN + """
import subprocess, time
if batch > 3:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open("children", "a") as file: file.write(f"{child.pid}\\n")
    time.sleep(1000)
step(batch)
"""
    text, found = search("--allocator", "native", "--vary", "batch=1:4", "--timeout", "2", program=program, status=3)
    answer = found["allocators"]["native"]
    assert (answer["batch"], answer["fails_at"], answer["proven"], answer["top_fits"]) == (3, None, False, False)
    assert "batch 4: not known, and left out: it did not end within 2 s (--timeout)" in text
    for child in (tmp_path / "children").read_text().split():
        stat = pathlib.Path("/proc", child, "stat")
        assert not stat.exists() or stat.read_text().split(")")[1].split()[0] == "Z"  # nobody has fetched it


def test_values_that_do_not_ascend_are_all_tried(search):
    _, found = search("--allocator", "native", "--vary", "batch=12,3,9", status=3)
    rows = found["allocators"]["native"]["frontier"]
    assert [(row["batch"], row["fits"]) for row in rows] == [(12, False), (3, True), (9, True)]


def test_several_are_a_frontier(search):
    text, found = search(
        "--allocator", "native", "--vary", "kind=wide,narrow", "--vary", "batch=1:16", command=("{batch}", "--{kind}"),
        program=PLAIN + "sys.exit(0 if step(2 * batch if '--wide' in sys.argv else batch) else 1)\n")
    rows = found["allocators"]["native"]["frontier"]
    assert [(row["kind"], row["batch"], row["fails_at"]) for row in rows] == [("wide", 4, 5), ("narrow", 9, 10)]
    assert "native, kind wide, batch 5: no" in text


@pytest.mark.parametrize("name, text, read", [
    ("train.yaml", "# mine\ntrainer: {name: x}\ndata:\n  batch_size: 2  # per GPU\n",
     "int(open(sys.argv[2]).read().split('batch_size:')[1].split()[0])"),
    ("train.json", '{"data": {"batch_size": "auto"}, "lr": 1e-4}',
     "__import__('json').load(open(sys.argv[2]))['data']['batch_size']")])
def test_a_value_in_a_file_is_varied_in_a_copy(search, tmp_path, name, text, read):
    config = tmp_path / name
    config.write_text(text)
    _, found = search("--allocator", "native", "--vary", f"{name}:data.batch_size=1:32", command=("0", name),
                      program=PLAIN + f"""
assert sys.argv[2].endswith({name!r}) and os.path.isabs(sys.argv[2])
sys.exit(0 if step({read}) else 1)
""")
    answer = found["allocators"]["native"]
    assert (answer[f"{name}:data.batch_size"], answer["fails_at"]) == (9, 10)
    assert config.read_text() == text


@pytest.mark.parametrize("words, told", [
    (["--vary", "batch=9:1"], "from 9 to 1 there is nothing"),
    (["--vary", "batch=1:9", "--vary", "length=1:2"], "the command has no {length}"),
    (["--vary", "length=1:9"], "the command has {batch}, and nothing varies it"),
    (["--vary", "nowhere.yaml:a=1:9", "--vary", "batch=1:9"], "nowhere.yaml"),
    (["--vary", "batch=1:9", "--gpu", "RTX"], "--gpu: "),
    (["--vary", "batch=1:9", "--allocator", "native,native"], "native is there twice"),
    (["--vary", "batch=1:9", "--resume", "/no/where"], "--resume"),
    (["--vary", "batch=1:9", "--resume", "train.py"], "train.py"),
    ([], "--vary is required")])
def test_a_wrong_command_line(search, words, told):
    text, found = search(*words, status=2)
    assert told in text and found is None


def test_a_search_goes_on_where_it_was_broken_off(search, tmp_path):
    (tmp_path / "train.py").write_text(MUST_FIT.replace("sys.exit", "import time; time.sleep(8 if batch == 9 else 0); sys.exit"))
    words = [GAPLESS, "search", "--gpu", "1GiB", "--context", "0", "--allocator", "native", "--vary", "batch=1:64",
             "--resume", "kept.json", "--", sys.executable, "train.py", "{batch}"]
    environment = {**os.environ, "RUNS": str(tmp_path / "runs")}
    # In a group of its own, as a shell starts it: the terminal's ^C goes to all of it.
    broken = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        if (tmp_path / "runs").exists() and 9 in runs(tmp_path / "runs"):
            break
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(broken.pid, signal.SIGINT)
    text = broken.communicate(timeout=20)[1]
    assert broken.returncode == 130 and "the same command goes on from here" in text
    before = runs(tmp_path / "runs")
    kept = json.loads((tmp_path / "kept.json").read_text())["probes"]
    assert {int(probe["of"]["values"]["batch"]) for probe in kept} == set(before) - {9}

    # The same program: only what was not known is run.
    (tmp_path / "runs").unlink()
    done = subprocess.run(words, cwd=tmp_path, env={**environment, "PYTHONUNBUFFERED": "1"}, capture_output=True, text=True,
                          timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert set(runs(tmp_path / "runs")).isdisjoint(set(before) - {9})
    assert "known from before" in done.stderr
    # Another program is another question.
    (tmp_path / "runs").unlink()
    _, found = search("--allocator", "native", "--vary", "batch=1:64", "--resume", "kept.json", RUNS=str(tmp_path / "runs"))
    assert found["allocators"]["native"]["batch"] == 9 and 1 in runs(tmp_path / "runs")
    # And that one is known now, to the end.
    (tmp_path / "runs").unlink()
    _, found = search("--allocator", "native", "--vary", "batch=1:64", "--resume", "kept.json", RUNS=str(tmp_path / "runs"))
    assert found["allocators"]["native"]["batch"] == 9 and not (tmp_path / "runs").exists()
    assert found["probes_run"] == 0
    # With other settings of torch's allocator it is another again.
    words = ("--allocator", "native", "--vary", "batch=1,9", "--resume", "kept.json")
    for settings, probes_run in (({}, 0), ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:512"}, 2)):
        _, found = search(*words, **settings)
        assert found["probes_run"] == probes_run


def test_nothing_is_left_behind(search, tmp_path):
    (tmp_path / "temporary").mkdir()
    search("--allocator", "native", "--vary", "batch=1:64", TMPDIR=str(tmp_path / "temporary"))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_ranks_meet_at_one_port_so_their_probes_run_one_at_a_time(search, tmp_path):
    program = PLAIN + """
import socket, time
os.environ["RANK"]
meeting = socket.create_server(("127.0.0.1", int(os.environ["MEETING"])))
time.sleep(0.3)
sys.exit(0 if step(batch) else 1)
"""
    with __import__("socket").create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _, found = search("--allocator", "native,expandable", "--vary", "batch=1:16", program=program, RANK="0", MEETING=str(port))
    assert [found["allocators"][name]["batch"] for name in ("native", "expandable")] == [9, 9]
