"""What gapless dryrun says of each way in which a process can end."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch


def test_one_that_catches_it(dryrun):
    program = """
import torch
kept = [torch.empty(600 << 20, dtype=torch.uint8, device="cuda")]
for size in 900, 800, 300:
    try:
        kept.append(torch.empty(size << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print("caught")
"""
    text, (row,) = dryrun("--gpu", "2GiB", "--context", "800MiB", program=program)
    assert row["fits"] is True and row["verdict"] == "yes, after 2 out of memory"
    assert row["caught_out_of_memory"] == 2 and row["exit_status"] == 0
    assert row["out_of_memory"]["asked_bytes"] == 900 << 20  # the first
    assert row["peak_allocated_bytes"] == 900 << 20
    assert "out of memory twice, which the program caught and went on from; first 900.00 MiB asked" in text


# A child for each way in which a process can end; all but the first line of each is beside the point.
ENDS = {
    "returns": "",
    "exits with an error": "sys.exit(4)",
    "raises": "raise ValueError('no such column')",
    "leaves at once": "os._exit(0)",
    "leaves at once with an error": "os._exit(5)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "aborts": "os.abort()",
    "is replaced": "os.execv('/bin/false', ['false'])",
    "is interrupted": "raise KeyboardInterrupt",
    "runs out of memory": "ask(900)",
    "runs out of memory twice": "refused(900); ask(300); ask(900)",
    "wraps it": "try: ask(900)\nexcept RuntimeError as error: raise KeyError('batch') from error",
    "gives up after it": "refused(900); raise RuntimeError('no batch size fits')",
    "raises from another": "try: open('/no/such.csv')\nexcept OSError as error: raise ValueError('no data') from error",
    "raises from itself": "try: int('x')\nexcept ValueError as error: raise error from error",
    "loses a worker": "for _ in torch.utils.data.DataLoader(NoAudio(), num_workers=1): pass",
    "gives up by status": "refused(900); sys.exit(1)",
    "leaves after it": "refused(900); os._exit(1)",
    "fails later": "refused(900); ask(300); raise ValueError('no such file')",
    "exits with an error later": "refused(900); ask(300); sys.exit(7)",
    "goes on": "refused(900); ask(300)",
    "goes on and leaves at once": "refused(900); ask(300); os._exit(0)",
    "exits well after it": "refused(900); sys.exit(0)",
    "is killed after it": "refused(900); os.kill(os.getpid(), signal.SIGKILL)",
    "loses a thread": "t = threading.Thread(target=ask, args=(900,)); t.start(); t.join()",
    "is refused by CUDA itself": "raise RuntimeError('CUDA error: out of memory')",
}
FITS = {True: ["returns", "leaves at once", "goes on", "goes on and leaves at once", "exits well after it"],
        False: ["runs out of memory", "runs out of memory twice", "wraps it", "gives up after it", "gives up by status",
                "leaves after it", "loses a thread", "is refused by CUDA itself"],
        None: ["exits with an error", "raises", "raises from another", "raises from itself", "loses a worker",
               "leaves at once with an error", "is killed", "aborts", "is replaced", "is interrupted", "fails later", "exits with an error later", "is killed after it"]}


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """The row and the note of each of ENDS: {"returns": (row, note), ...}; PyTorch is imported once for all."""
    folder = tmp_path_factory.mktemp("ends")
    (folder / "train.py").write_text(f"""
import os, signal, sys, threading
import torch
kept = []
def ask(size): kept.append(torch.empty(size << 20, dtype=torch.uint8, device="cuda"))
def refused(size):
    try: ask(size)
    except torch.OutOfMemoryError: pass
class NoAudio(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, index): return {{}}["audio"]
for number, code in enumerate({list(ENDS.values())!r}):
    child = os.fork()
    if child == 0:
        ask(40 + 2 * number)
        exec(code)
        sys.exit(0)
    os.waitpid(child, 0)
""")
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", "1GiB", "--context", "200MiB", "--json", "rows.json", "--", sys.executable,
         "train.py"], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    rows = json.loads((folder / "rows.json").read_text())
    assert len(rows) == len(ENDS), done.stderr
    found = {}
    for row in rows:
        note = "\n".join(line for line in done.stderr.splitlines() if line.startswith(f"{row['pid']}: "))
        sizes = [40 + 2 * number for number in range(len(ENDS))]
        size = row["peak_reserved_bytes"] >> 20
        found[list(ENDS)[sizes.index(size if size in sizes else size - 300)]] = (row, note)
    found["status"] = done.returncode
    return found


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_verdict(ends, name):
    row, note = ends[name]
    fits = next(fits for fits, names in FITS.items() if name in names)
    assert row["fits"] is fits, row
    assert row["verdict"].startswith({True: "yes", False: "no", None: "not known"}[fits])
    assert (note == "") == (row["verdict"] == "yes")
    assert row["peak_allocated_bytes"] >= 40 << 20 and row["peak_used_bytes"] >= 240 << 20  # of the killed, too


def test_what_is_said_of_ends(ends):
    assert ends["status"] == 3  # some ended for lack of memory
    said = {name: f"{note} {row['end']} {row['caught_out_of_memory']}" for name, (row, note) in
            ((name, ends[name]) for name in ENDS)}
    for name, words in (
            ("raises", "not known: it ended with status 1 (ValueError: no such column) (<string>:1)"),
            ("raises from another", "(ValueError: no data, caused by FileNotFoundError: [Errno 2] No such file"),
            ("raises from itself", "(ValueError: invalid literal for int() with base 10: 'x') ("),
            ("loses a worker", "(KeyError: 'audio' (Caught KeyError in DataLoader worker process 0.)) (<string>:1)"),
            ("exits with an error", "it ended with status 4"),
            ("leaves at once with an error", "it ended with status 5"),
            ("is killed", "it left no word of its end: it was killed, most likely {'how': 'not known'}"),
            ("aborts", "it was ended by SIGABRT"),
            ("is replaced", "another program took its place, of whose end nothing is known {'how': 'replaced'}"),
            ("runs out of memory", "no: 900.00 MiB asked in step 0 (train.py:5), with"),
            ("runs out of memory twice", "; out of memory once before"),
            ("fails later", "(ValueError: no such file) (<string>:1); out of memory once before, first 900.00 MiB"),
            ("goes on", "yes, after 1 out of memory: out of memory once, which the program caught and went on from"),
            ("exits well after it", "which the program caught and asked for no more"),
            ("loses a thread", "it ended a thread")):
        assert words in said[name], said[name]


@pytest.mark.parametrize("killed", ["first", "last"])
def test_a_rank_that_is_killed_on_its_way_out(dryrun, killed):
    """A launcher that sees one rank fail ends the others, which may have failed too but are not quite gone."""
    program = f"""
import atexit, os, signal, sys
if "rank" in sys.argv:
    if "{killed}" == "last": atexit.register(os.kill, os.getpid(), signal.SIGKILL)
    import torch
    if "{killed}" == "first": atexit.register(os.kill, os.getpid(), signal.SIGKILL)
    torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
else:
    import subprocess
    subprocess.run([sys.executable, "train.py", "rank"])
    sys.exit(1)
"""
    text, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", program=program, status=3)
    assert row["fits"] is False and row["end"] == {"how": "not known"}
    assert f"{row['pid']}: no: 900.00 MiB asked in step 0 (train.py:7), with 0 bytes allocated" in text


def test_one_verdict_for_a_process_with_several_gpus(dryrun):
    text, rows = dryrun("--gpu", "2GiB,1GiB,2GiB", "--context", "200MiB", status=3, program="""
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.layer(x).repeat(1, (450 << 20) // 32) * 2
net = torch.nn.DataParallel(Net().cuda())
net(torch.zeros(3, 8, device="cuda"))
""")
    assert [(row["device"], row["fits"], row["verdict"]) for row in rows] == [(i, False, "no") for i in range(3)]
    oom = rows[0]["out_of_memory"]
    assert oom["device"] == 1 and oom["line"] == "train.py:8", oom
    assert text.count(f"{rows[0]['pid']}: no: ") == 1


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.thorough(but=1)
def test_children_of_multiprocessing_have_verdicts(dryrun, method):
    program = f"""
import sys, torch
import torch.multiprocessing as mp
def work(rank, size):
    import os
    os.environ["RANK"] = str(rank)
    x = torch.empty(size[rank] << 20, dtype=torch.uint8, device="cuda")
if __name__ == "__main__":
    processes = [mp.get_context("{method}").Process(target=work, args=(rank, (100, 900))) for rank in range(2)]
    for process in processes: process.start(); process.join()
    print([process.exitcode for process in processes])
"""
    text, rows = dryrun("--gpu", "1GiB", "--context", "200MiB", program=program, status=3)
    assert [(row["rank"], row["fits"], row["end"].get("status")) for row in rows] == [(0, True, 0), (1, False, 1)]
    assert "rank 1: no: 900.00 MiB asked in step 0 (train.py:7)" in text


STOPS = """
import signal, subprocess, sys, time
if len(sys.argv) > 1:
    import torch
    kept = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
    for size in sys.argv[2:]:
        if size == "raises": raise ValueError("no such column")
        if size == "handles": signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGSEGV)); continue
        if size == "leaves": signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); continue
        if size == "lingers":
            import ctypes  # holding Python's lock
            signal.signal(signal.SIGTERM, lambda *_: ctypes.PyDLL(None).sleep(100)); continue
        if size == "fails": signal.signal(signal.SIGTERM, lambda *_: kept.no_such_name); continue
        try: kept = torch.empty(int(size) << 20, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError: pass
    print("ready", flush=True)
    sys.stdin.read()
def server(*sizes):
    started = subprocess.Popen([sys.executable, "train.py", *map(str, sizes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started.stdout.readline()
    return started
def stop(started, by):
    started.send_signal(by)
    started.wait()
"""


@pytest.mark.parametrize(("program", "status", "fits", "words"), [
    ("stop(server(300), signal.SIGKILL)", 0, [True],
     "the program itself ended it, by SIGKILL: what it had still to do, it did not"),
    ("stop(server(300), signal.SIGTERM); sys.exit(4)", 4, [None], "the program itself ended it, by SIGTERM"),
    ("stop(server(300, 1900), signal.SIGKILL); sys.exit(4)", 3, [False], "no: 1.86 GiB asked in step 0 (train.py:14)"),
    ("stop(server(300, 'handles'), signal.SIGTERM)", 0, [None], "it left no word of its end"),
    # As Ray's workers do.
    ("stop(server(300, 'leaves'), signal.SIGTERM)", 0, [True],
     "the program itself ended it, by SIGTERM: what it had still to do, it did not"),
    ("stop(server(300, 'leaves'), signal.SIGTERM); sys.exit(4)", 4, [None], "the program itself ended it, by SIGTERM"),
    # It is at something when it is asked, and has no word for whoever loses patience.
    ("one = server(300, 'lingers'); one.send_signal(signal.SIGTERM); time.sleep(2); stop(one, signal.SIGKILL)", 0, [True],
     "the program itself ended it, by SIGKILL: what it had still to do, it did not"),
    ("stop(server(300, 'fails'), signal.SIGTERM)", 0, [None], "it ended with status 1 (AttributeError"),
    ("stop(server(300, 1900), signal.SIGKILL)", 0, [None], "the program itself ended it, by SIGKILL"),
    ("first = server(310); server(300, 'raises'); stop(first, signal.SIGTERM)", 0, [None, None],
     "the program itself ended it, by SIGTERM, when another had failed")])
@pytest.mark.thorough(but=5)
def test_a_server_that_the_program_ends(dryrun, program, status, fits, words):
    """What is ended by the program's own processes says its last words before; memory is all that is asked about."""
    text, rows = dryrun("--gpu", "2GiB", "--context", "200MiB", program=STOPS + program, arguments=(), status=status)
    assert [row["fits"] for row in rows] == fits, text
    assert words in text
    assert all(row["peak_requested_bytes"] in (300 << 20, 310 << 20) for row in rows)  # of its last words
    if fits == [True]:
        assert rows[0]["end"] in ({"how": "stopped", "signal": f"SIG{by}"} for by in ("KILL", "TERM"))


@pytest.mark.thorough
def test_a_worker_that_its_launcher_kills_is_not_known(dryrun):
    text, rows = dryrun("--gpu", "1GiB,1GiB", "--context", "200MiB", program="""
import os, subprocess, sys, time
import torch
if "RANK" not in os.environ:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    sys.exit(subprocess.run(words).returncode)
rank = int(os.environ["RANK"])
kept = torch.empty(300 << 20, dtype=torch.uint8, device=f"cuda:{rank}")
open(f"ready{rank}", "w").close()
while not (os.path.exists("ready0") and os.path.exists("ready1")): time.sleep(0.01)
if rank == 1: torch.empty(900 << 20, dtype=torch.uint8, device="cuda:1")
time.sleep(60)
""", status=3)
    assert [(row["rank"], row["fits"]) for row in rows] == [(0, None), (1, False)]
    assert [row["peak_allocated_bytes"] for row in rows] == [300 << 20] * 2
    assert "rank 0: not known: the program itself ended it, by SIGTERM" in text


def test_a_program_for_more_gpus_than_there_are(dryrun):
    """Of its first rank nobody else would know more than that the launcher ended it."""
    text, rows = dryrun("--gpu", "1GiB", "--context", "200MiB", status=1, program="""
import os, subprocess, sys
import torch
if "RANK" not in os.environ:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "train.py"]
    sys.exit(subprocess.run(words).returncode)
rank = int(os.environ["RANK"])
if rank != 0:
    while not os.path.exists("ready"): pass
torch.cuda.set_device(rank)
kept = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
open("ready", "w").close()
import time; time.sleep(60)
""")
    told = "and there is GPU 0 only: have as many as the program uses, by --gpu 3x1GiB"
    assert rows[0]["fits"] is None and told in rows[0]["reason"], text
    text, rows = dryrun("--gpu", "1GiB", program="import torch; torch.empty(1, device='cuda:1')", status=1)
    assert told.replace("3x", "2x") in text


@pytest.mark.parametrize("more, ended", [("", "the program used no GPU"), ("torch.ones(1, device='cuda')", "status 1")])
def test_a_program_for_one_gpu_of_several(dryrun, more, ended):
    """It goes on on the CPU, or ends with an error: either way it is not known, and why is in the program."""
    text, rows = dryrun("--gpu", "1GiB", status=1 if more else 0, program=f"""
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
import torch
print(torch.cuda.is_available())
{more}
""")
    assert not rows and ended in text
    assert "CUDA_VISIBLE_DEVICES=1 is set in the program, and there is GPU 0 only" in text and "--gpu 2x1GiB" in text


def test_ranks_that_have_the_same_gpu(dryrun):
    """NCCL has none of it (Duplicate GPU detected), so it is no program that runs."""
    text, rows = dryrun("--gpu", "1GiB", "--context", "200MiB", status=1, program="""
import os, subprocess, sys
import torch, torch.distributed as dist
if "RANK" not in os.environ:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    sys.exit(subprocess.run(words).returncode)
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
dist.all_reduce(torch.ones(8, device="cuda"))
""")
    assert rows and all(row["fits"] is None for row in rows), text
    assert "ranks 0 and 1 both have GPU 0, which NCCL refuses: have as many as the program uses, by --gpu 2x1GiB" in text
    assert "Duplicate GPU detected" in text


@pytest.mark.one_torch
def test_a_grid_that_no_gpu_takes(dryrun):
    """However much memory there is, attention ends with the 65,536th text of a batch. (2.15 asks several times.)"""
    program = """
import sys, torch
q = torch.randn(int(sys.argv[1]), 2, 16, 32, device="cuda", dtype=torch.half)
torch.nn.functional.scaled_dot_product_attention(q, q, q)
"""
    _, (row,) = dryrun("--gpu", "A100", program=program, arguments=("65535",))
    assert row["fits"] is True
    _, (row,) = dryrun("--gpu", "A100", program=program, arguments=("65536",), status=1)
    assert row["fits"] is None and "CUDA error: invalid configuration argument" in row["reason"]


def test_shared_memory_that_the_gpu_lacks(dryrun):
    """A block of an RTX 3090 has 99 KiB of it, one of an A100 163."""
    program = """
import sys, torch
x = torch.zeros(4, device="cuda")
source = 'extern "C" __global__ void f(float* x) { extern __shared__ float s[]; s[0] = 1; x[0] = s[0]; }'
kernel = torch.cuda._compile_kernel(source, "f")
kernel._max_shared_mem_bytes = 1 << 30  # PyTorch would ask the device
kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[x], shared_mem=int(sys.argv[1]) << 10)
"""
    _, (row,) = dryrun("--gpu", "RTX 3090", program=program, arguments=("99",))
    assert row["fits"] is True and row["shared_per_block_bytes"] == 99 << 10
    _, (row,) = dryrun("--gpu", "RTX 3090", program=program, arguments=("100",), status=1)
    assert row["fits"] is None and "CUDA_ERROR_INVALID_VALUE" in row["reason"]
    text, (row,) = dryrun("--gpu", "24GiB", program=program, arguments=("100",))
    assert row["fits"] is True and "100.00 KiB of shared memory a block, and L4" in text


def test_children_that_use_no_gpu_have_no_rows(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", status=128 + 9, program="""
import os, signal, subprocess, sys, torch
x = torch.zeros(1000, device="cuda")
for batch in torch.utils.data.DataLoader([1, 2, 3], num_workers=2): pass
subprocess.run(["true"]); subprocess.run(["true"], preexec_fn=lambda: None)
for leave in os._exit, sys.exit:
    if os.fork() == 0: leave(0)
    os.wait()
os.kill(os.getpid(), signal.SIGKILL)
""")
    assert row["fits"] is None and row["end"] == {"how": "signal", "signal": "SIGKILL"}
    assert f"{row['pid']}: not known: it was ended by SIGKILL" in text


@pytest.mark.parametrize("again, status, ends", [
    ("[sys.executable, 'train.py', '300']", 0, [("continued", True), ("exited", True)]),
    ("[sys.executable, 'train.py', '9000']", 3, [("continued", True), ("exited", False)]),
    ("['true']", 0, [("exited", True)]), ("['false']", 1, [("exited", None)])])
def test_one_that_puts_another_in_its_place(dryrun, again, status, ends):
    _, rows = dryrun("--gpu", "1GiB", arguments=(), status=status, program=f"""
import ctypes, os, sys
size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
error = ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size << 20))
if len(sys.argv) == 1: os.execvp({again}[0], {again})
sys.exit(error)
""")
    assert [(row["end"]["how"], row["fits"]) for row in rows] == ends
    assert len(set(row["pid"] for row in rows)) == 1


def test_one_that_outlives_the_command_is_not_known(dryrun):
    _, (row,) = dryrun(program="""
import ctypes, os, time
if os.fork() == 0:
    for descriptor in 0, 1, 2: os.dup2(os.open("/dev/null", os.O_RDWR), descriptor)
    ctypes.CDLL("libcudart.so.13").cudaSetDevice(0)
    open("ready", "w").close()
    while not os.path.exists("rows.json"): time.sleep(0.01)
else:
    while not os.path.exists("ready"): time.sleep(0.01)
""")
    assert row["fits"] is None and row["end"] == {"how": "running"}


# 400 MiB in a cycle, of which nobody knows when they are freed; it takes no more than that and 400 MiB at once where they
# are in time, and 800 MiB where they are not.
IN_A_CYCLE = """
import gc, sys, torch
gc.disable()
first = [torch.empty(400 << 20, dtype=torch.uint8, device="cuda")]
first.append(first)
del first
if sys.argv[1] == "in time":
    gc.enable()
    made = [[] for _ in range(2000)]  # as many as make it come
    gc.disable()
if sys.argv[1] == "asked for":
    gc.collect()
if sys.argv[1] == "as it prints":
    sys.excepthook = lambda *_: gc.collect()
second = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize(("when", "room", "fits", "words"), [
    ("in time", 1300, True, None),
    ("asked for", 700, True, None),
    ("in time", 700, None, "Python's garbage collector freed 400.00 MiB at once, which reference cycles held; in another run it "
                           "may come later"),
    ("late", 1200, True, None),
    ("late", 700, None, "it ran out of memory while 400.00 MiB were held by reference cycles that Python's garbage collector had "
                        "not come to"),
    # Python may come to it before it is looked for, too late for the request.
    ("as it prints", 700, None, "it ran out of memory while 400.00 MiB were held by reference cycles"),
])
@pytest.mark.thorough(but=3)
def test_what_waits_for_the_garbage_collector_is_told(dryrun, when, room, fits, words):
    status = 1 if when in ("late", "as it prints") and fits is None else 0
    text, (row,) = dryrun("--gpu", f"{room}MiB", "--context", "0MiB", program=IN_A_CYCLE, arguments=(when, "400"), status=status)
    assert row["fits"] is fits
    assert words is None and row["reason"] is None or words in row["reason"]


# 400 of 1,000 MiB are free, in pieces of 2, and lie where they do because the collector came before.
IN_PIECES = """
import gc, torch
knot = [torch.empty(400 << 20, dtype=torch.uint8, device="cuda")]
knot.append(knot)
del knot
made = [[] for _ in range(2000)]
pieces = [torch.empty(2 << 20, dtype=torch.uint8, device="cuda") for _ in range(400)]
del pieces[::2]
torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize("mebibytes", [400, 160, 100])
def test_pieces_that_lie_where_the_garbage_collector_left_them_are_no_no(dryrun, mebibytes):
    """It is one, where half of what was asked for is more than the collector ever freed."""
    program = IN_PIECES.replace("400 <<", f"{mebibytes} <<")
    _, (row,) = dryrun("--gpu", "1000MiB", "--context", "0MiB", program=program, status=3 if mebibytes == 100 else 1)
    if mebibytes == 100:
        assert row["fits"] is False
        return
    assert row["fits"] is None and "in pieces, and where those lie hangs on when Python's garbage collector comes" in row["reason"]
    program = IN_PIECES.replace("made = ", "gc.collect()  # ")
    _, (row,) = dryrun("--gpu", "1000MiB", "--context", "0MiB", program=program, status=3)
    assert row["fits"] is False


def test_what_a_request_mapped_before_it_failed_is_no_shortfall(dryrun):
    """Of 700 MiB expandable segments map 600, and give them back; 100 were short, and 400 in the cycle."""
    _, (row,) = dryrun("--gpu", "1000MiB", "--context", "0MiB", "--allocator", "expandable", program=IN_A_CYCLE,
                       arguments=("late", "700"), status=1)
    assert row["fits"] is None and "while 400.00 MiB were held by reference cycles" in row["reason"]
    _, (row,) = dryrun("--gpu", "650MiB", "--context", "0MiB", "--allocator", "expandable", program=IN_A_CYCLE,
                       arguments=("late", "700"), status=3)
    assert row["fits"] is False


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_one_that_takes_its_interruption_for_a_good_end_is_not_known_to_fit(tmp_path, by):
    """By ^C, which a terminal sends to all, or where whoever runs the command ends it. No other allocator is begun then."""
    (tmp_path / "train.py").write_text("""
import signal, sys, time, torch
x = torch.zeros(50 << 20, dtype=torch.uint8, device="cuda")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open("ready", "w").close()
try:
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    print("saving")
""")
    child = subprocess.Popen([GAPLESS, "dryrun", "--gpu", "1GiB", "--json", "rows.json", "--allocator", "native,expandable", "--",
                              sys.executable, "train.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while not (tmp_path / "ready").exists() and child.poll() is None:
            time.sleep(0.05)
        os.killpg(child.pid, by) if by == signal.SIGINT else child.send_signal(by)
        _, said = child.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert child.returncode == 0 and row["fits"] is None and row["verdict"] == "not known"
    assert row["reason"] == "it was interrupted; so far it was well" and "not known: it was interrupted" in said
