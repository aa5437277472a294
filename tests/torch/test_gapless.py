"""What gapless does inside PyTorch beside handing out memory."""
import importlib.metadata
import importlib.util
import pathlib
import pickle
import re
import subprocess

import pytest

from conftest import GAPLESS, PACKAGE, ROOT
from viewer import cannot_be_drawn

NEWER = tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) >= (2, 13)


def test_message_is_pytorchs_without_its_advice(simulate):
    program = """
        import torch
        keep = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(11 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            lines = str(error).split("\\n")
            print("first:", lines[0])
            print("more:", " ".join(lines[1:]))
        """
    native, gapless = simulate(program).values(), simulate(program, gapless=True).values()
    assert native["first"].startswith("CUDA out of memory. Tried to allocate 11.00 GiB. GPU 0 has a total capacity of")
    # Of segments, which gapless does not have.
    facts, advice = native["first"].split(" If reserved but unallocated memory is large")
    # In its place stands what would have made it fit.
    missing, = re.findall(r"short of: (\S+ \S+) for this request", gapless["more"])
    helps = f"keep {missing} less alive: a smaller batch, shorter sequences, checkpointing"
    assert gapless["first"] == f"{facts} It is {missing} short: {helps}."
    assert "expandable_segments" in advice and "expandable_segments" not in gapless["more"]
    assert gapless["more"].startswith("gapless: asked for 11.00 GiB")
    assert "live: 6.00 GiB in 1 blocks" in gapless["more"]


@pytest.mark.parametrize("gapless", [False, True], ids=["native", "gapless"])
def test_callbacks_hear_of_a_free_before_it(simulate, gapless):
    # After it another thread may have been given the address, and have told that.
    values = simulate("""
        import torch, torch.cuda._gpu_trace as callbacks
        torch._C._activate_gpu_trace()
        heard = []
        callbacks.register_callback_for_memory_deallocation(lambda address: heard.append((address, torch.cuda.memory_allocated())))
        for name, history in (("plain", None), ("recorded", "all")):
            torch.cuda.memory._record_memory_history(history)
            x = torch.empty(1 << 20, device="cuda")
            wanted = [(x.data_ptr(), 4 << 20)]
            del x
            print(f"{name}:", heard == wanted, torch.cuda.memory_allocated())
            heard.clear()
        """, gapless=gapless).values()
    assert values == {"plain": "True 0", "recorded": "True 0"}


def test_negative_sizes(simulate):
    program = """
        import torch
        torch.cuda.init()
        for ask in (-5, 1 << 62):
            try:
                torch._C._cuda_cudaCachingAllocator_raw_alloc(ask, 0)   # caching_allocator_alloc(), which 2.15 checks
            except BaseException as error:
                print("refused:", type(error).__name__, str(error).splitlines()[0])
        """
    refused = simulate(program, gapless=True).out.splitlines()
    too_much = "refused: OutOfMemoryError CUDA out of memory. Tried to allocate more than 1EB memory."
    assert refused[1] == too_much
    assert refused[0] == too_much or "requires a non-negative size" in refused[0]  # PyTorch's own, in 2.15


@pytest.mark.parametrize("gapless", [False, True], ids=["native", "gapless"])
def test_profiler_hears_of_memory(simulate, gapless):
    result = simulate("""
        import torch
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            tensor = torch.empty(1 << 20, device="cuda")
            del tensor
        found = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        print("bytes:", sorted(size for size in found if abs(size) >= 1 << 20))
        """, gapless=gapless)
    assert result.values()["bytes"] == str([-4 << 20, 4 << 20])


def test_pytorchs_viewer_can_go_back_through_a_history(simulate, tmp_path):
    """What one event had mapped was later of several segments, by pool or stream, and the viewer ended with an error."""
    simulate(f"""
        import torch, gapless
        gapless.install()
        torch.cuda.memory._record_memory_history()
        side = torch.cuda.Stream()
        pool = torch.cuda.MemPool()
        kept = []
        for step in range(12):
            blocks = [torch.empty((3 + step * i % 7) << 20, dtype=torch.uint8, device="cuda") for i in range(8)]
            with torch.cuda.stream(side):
                kept.append(torch.empty((step % 5 + 1) << 19, dtype=torch.uint8, device="cuda"))
            with torch.cuda.use_mem_pool(pool):
                in_pool = torch.empty((1 + step % 3) << 21, dtype=torch.uint8, device="cuda")
            del blocks[::2]
            window = torch.empty((9 + step) << 20, dtype=torch.uint8, device="cuda")
            window.record_stream(side)
            if step % 3 == 2:
                del kept[:2], in_pool
                torch.cuda.empty_cache()
        torch.cuda.memory._dump_snapshot({str(tmp_path / "run.pickle")!r})
        """, PYTHONPATH=str(PACKAGE))
    snapshot = pickle.loads((tmp_path / "run.pickle").read_bytes())
    assert {event["stream"] for event in snapshot["device_traces"][0]} > {0}
    assert len({segment["segment_pool_id"] for segment in snapshot["segments"]}) == 2
    assert cannot_be_drawn(snapshot) == []
    # The same of a recording that was written as a snapshot.
    convert = [str(GAPLESS), "convert"]
    subprocess.run([*convert, "run.pickle"], cwd=tmp_path, check=True)
    subprocess.run([*convert, "run.gtrace", "-o", "again.pickle"], cwd=tmp_path, check=True)
    assert cannot_be_drawn(pickle.loads((tmp_path / "again.pickle").read_bytes())) == []


def test_snapshots_open_in_memory_viz(simulate, tmp_path):
    result = simulate(f"""
        import gapless, pickle, torch
        from torch.cuda import _memory_viz as viz
        gapless.install()
        with gapless.trace({str(tmp_path / "run.pickle")!r}) as events:
            tensors = [torch.empty(700000 * i + 1, device="cuda") for i in range(12)]
            del tensors[::2]
            large = torch.empty(8 << 20, device="cuda")     # in pieces: a window
            with torch.cuda.stream(torch.cuda.Stream()):
                other = torch.empty(1000, device="cuda")
            del large
        with open({str(tmp_path / "run.pickle")!r}, "rb") as file:
            snapshot = pickle.load(file)
        total = sum(s["total_size"] for s in snapshot["segments"])
        print("adds up:", total == torch.cuda.memory_reserved())
        print("tiles:", all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]))
        actions = [e["action"] for e in events[0]]
        print("events:", {{"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap"}} <= set(actions))
        print("trace:", len(viz.trace(snapshot)) > 1000)
        print("segsum:", "B" in viz.segsum(snapshot))
        print("plots:", len(viz.trace_plot(snapshot)) > 1000, len(viz.segment_plot(snapshot)) > 1000)
        script = {str(tmp_path / "flamegraph.pl")!r}
        with open(script, "w") as file:
            file.write("#!/bin/sh\\ncat\\n")
        import os
        os.chmod(script, 0o755)
        lines = viz.segments(snapshot, lambda text: text), viz.memory(snapshot, lambda text: text)
        print("flames:", all("stream" in text for text in lines))
        print("compared:", "only_before" in viz.compare(snapshot["segments"], snapshot["segments"][1:], lambda text: text))
        """, PYTHONPATH=str(PACKAGE))
    values = result.values()
    assert cannot_be_drawn(pickle.loads((tmp_path / "run.pickle").read_bytes())) == []
    assert values["plots"] == "True True"
    assert {name for name, value in values.items() if value == "False"} == set()


def test_pool_sleeps_and_wakes(simulate):
    result = simulate("""
        import gapless, torch
        gapless.install()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            numbers = torch.tensor(list(range(1000))).cuda()
            weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        address, before = weights.data_ptr(), torch.cuda.mem_get_info()[0]
        gapless.sleep(pool, save=True)
        print("given back:", torch.cuda.mem_get_info()[0] - before >= 1 << 30)
        filler = torch.empty(torch.cuda.mem_get_info()[0] - (64 << 20), dtype=torch.uint8, device="cuda")
        try:
            gapless.wake(pool)
        except torch.OutOfMemoryError:
            print("no room: True")
        del filler
        gapless.trim()
        gapless.wake(pool)
        print("same:", weights.data_ptr() == address, numbers.tolist() == list(range(1000)))
        """, PYTHONPATH=str(PACKAGE), gpus="8GiB")
    assert result.values() == {"given back": "True", "no room": "True", "same": "True True"}


def test_peers_read_each_others_memory(simulate):
    result = simulate("""
        import torch
        here = torch.tensor(list(range(1000))).to("cuda:0")
        there = here.to("cuda:1")
        more = torch.empty(50 << 20, dtype=torch.uint8, device="cuda:0").to("cuda:1", non_blocking=True)
        print("numbers:", there.tolist() == list(range(1000)), torch.cuda.can_device_access_peer(0, 1))
        print("allocator:", torch.cuda.get_allocator_backend())
        """, gpus="4GiB,4GiB", gapless=True)
    assert result.values() == {"numbers": "True True", "allocator": "gapless"}


def test_report_reads_well(simulate):
    result = simulate("""
        import gapless, torch
        gapless.install()
        keep = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        report = gapless.report()
        print(report)
        print("html:", "<table>" in report._repr_html_() and "100.00 MiB" in report._repr_html_())
        print("live:", sum(b["bytes"] for b in report.as_dict()["home"] if b["kind"] == "live"))
        print("counters:", gapless.memory_stats()["gapless.home_growths"] >= 1)
        print("trimmed:", gapless.trim())
        """, PYTHONPATH=str(PACKAGE))
    assert "allocated                100.00 MiB in 1 blocks" in result.out
    values = result.values()
    assert values["html"] == values["counters"] == "True"
    assert int(values["live"]) == 100 << 20


def test_report_in_a_notebook(simulate):
    # A cell's last value, in the forms that IPython sends to a notebook.
    result = simulate("""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        def cell(code):
            done = shell.run_cell(code)
            assert done.success
            return shell.display_formatter.format(done.result)[0]
        cell("import gapless, torch; gapless.install()")
        cell("weights = torch.empty(100 << 20, dtype=torch.uint8, device='cuda')")
        shown = cell("gapless.report()")
        print("forms:", sorted(shown))
        print("table:", "<table>" in shown["text/html"] and "100.00 MiB in 1 blocks" in shown["text/html"])
        """, PYTHONPATH=str(PACKAGE))
    values = result.values()
    assert values["forms"] == "['text/html', 'text/plain']"
    assert values["table"] == "True"


SHOWS = """
import base64, gapless, re, torch
gapless.install()
def train():
    kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(6):
        parts = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
        del parts
def show():
    page = gapless.report()._repr_html_()
    return [base64.b64decode(image).decode() for image in re.findall("data:image/svg.xml;base64,([^']*)'", page)], page
"""


def test_report_shows_memory_over_time_as_replay_plots_it(simulate, tmp_path):
    file, shown, plot = tmp_path / "run.gtrace", tmp_path / "shown.svg", tmp_path / "run.svg"
    values = simulate(SHOWS + f"""
print("before:", show()[0], gapless.report().picture())
with gapless.record({str(file)!r}):
    train()
(picture,), page = show()
print("same:", picture == gapless.report().picture())
open({str(shown)!r}, "w").write(picture)
""", PYTHONPATH=str(PACKAGE)).values()
    assert values == {"before": "[] None", "same": "True"}
    subprocess.run([GAPLESS, "replay", file, "--plot", plot], check=True, capture_output=True)
    assert shown.read_text() == plot.read_text()


def test_report_says_why_it_cannot_show_memory_over_time(simulate, tmp_path):
    file = tmp_path / "run.gtrace"
    values = simulate(SHOWS + f"""
import os
with gapless.record({str(file)!r}):
    train()
os.remove({str(file)!r})
print("gone:", show()[0])
os.mkdir({str(file)!r})
pictures, page = show()
print("told:", pictures, "<table>" in page, re.findall("cannot be shown: [^<]*", page)[0])
try:
    gapless.report().picture()
except gapless.GaplessError as error:
    print("raises:", error)
""", PYTHONPATH=str(PACKAGE)).values()
    assert values["gone"] == "[]"
    assert values["told"].startswith("[] True cannot be shown: ") and "run.gtrace" in values["told"]
    assert "run.gtrace" in values["raises"]


def test_report_shows_pytorchs_history(simulate):
    values = simulate(SHOWS + """
torch.cuda.memory._record_memory_history("all", context=None)
print("empty:", show()[0])
train()
(picture,), page = show()
print("svg:", picture.startswith("<svg"), "220.00 MiB" in picture)
torch.cuda.memory._record_memory_history(None)
print("off:", show()[0])
""", PYTHONPATH=str(PACKAGE)).values()
    assert values == {"empty": "[]", "svg": "True True", "off": "[]"}


def test_message_names_call_sites(simulate):
    # In the program's own words, where PyTorch records stack traces.
    result = simulate("""
        import gapless, torch
        gapless.install()
        def weights():
            return torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        def ask():
            try:
                torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                return [line for line in str(error).splitlines() if "call site" in line]
        before = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")   # not recorded
        print("without:", ask())
        torch.cuda.memory._record_memory_history("all")
        keep = [weights(), weights(), torch.zeros(100, device="cuda").double()]
        print("message:", ask())
        print("first:", gapless.report().call_sites[0])
        print("row:", [row for row in gapless.report().rows() if row[0].startswith("at ")][0])
        """, PYTHONPATH=str(PACKAGE)).values()
    assert result["without"] == "[]"
    assert result["message"].startswith("['  live by call site: 4.00 GiB in 2 blocks at <string>:5 (weights); ")
    assert "(<module>)" in result["message"]
    assert "'function': 'weights', 'bytes': 4294967296, 'blocks': 2" in result["first"]
    assert "4.00 GiB in 2 blocks, weights" in result["row"]


LARGER = """
import torch
def logits(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
def other():
    return torch.empty(7 << 30, dtype=torch.uint8, device="cuda")
for mib in (1000, 3072, 2000):
    logits(mib)
other()
keep = torch.empty(13 << 30, dtype=torch.uint8, device="cuda")
try:
    logits(2816)
except torch.OutOfMemoryError as error:
    lines = str(error).splitlines()
    print("short:", [line for line in lines if line.startswith("short of")][0])
    print("sites:", [line for line in lines if "call site" in line][0])
"""


def test_message_tells_what_the_largest_such_request_would_miss(simulate):
    # The sequence that fails is not the longest there was: whoever makes room for it fails again.
    values = simulate("import torch\ntorch.cuda.memory._record_memory_history('all')" + LARGER, gapless=True,
                      SIMGPU_CONTEXT="424MiB").values()
    assert values["short"] == "short of: 168.00 MiB for this request, 424.00 MiB for the largest so far at " \
        "<string>:5 (logits), of 3.00 GiB"
    values = simulate("import torch\ntorch.cuda.memory._record_memory_history('state')" + LARGER, gapless=True,
                      SIMGPU_CONTEXT="424MiB").values()
    assert values["short"] == "short of: 168.00 MiB for this request"  # of those before nothing is known


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """Python that loads tests/torch/programs/extension.cc, compiled for this torch, as `extension`."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    cuda = pathlib.Path("/usr/local/cuda/include")
    if not (cuda / "cuda_runtime_api.h").exists():
        pytest.skip("no CUDA headers")
    made = tmp_path_factory.mktemp("extension") / "extension.so"
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-w", f"-isystem{torch}/include", f"-isystem{cuda}",
                    str(ROOT / "tests" / "torch" / "programs" / "extension.cc"), f"-L{torch}/lib", "-lc10_cuda", "-lc10",
                    "-Wl,--allow-shlib-undefined", "-o", str(made)], check=True)
    return f"""
import ctypes, torch
MiB = 1 << 20
extension = ctypes.CDLL({str(made)!r})
extension.allocate_at.restype = ctypes.c_void_p
extension.allocate_at.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
extension.free_at.argtypes = [ctypes.c_void_p]
reason = ctypes.create_string_buffer(200)
def allocate_at(bytes, address):
    return extension.allocate_at(bytes, address, reason, 200)
def block(mib):
    return torch.empty(mib * MiB, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize("gapless", [False, True], ids=["native", "gapless"])
def test_callbacks_free_memory_before_a_request_fails(simulate, extension, gapless):
    values = simulate(extension + """
keep, calls = [block(1000)], []
@ctypes.CFUNCTYPE(ctypes.c_bool)
def free_some():
    calls.append(len(keep))
    keep.clear()
    return calls[-1] != 0
extension.before_out_of_memory(free_some)
print("fits:", block(1200).numel() // MiB)
keep.append(torch.empty(1000, device="cuda"))
try:
    block(5000)
except torch.OutOfMemoryError:
    print("refused:", len(keep))
print("calls:", calls)
extension.before_out_of_memory(None)
""", gpus="2GiB", gapless=gapless).values()
    assert values["fits"] == "1200"
    assert values["refused"] == "0"
    # The native allocator also asks before it calls cudaMalloc.
    assert values["calls"] == ("[1, 1]" if gapless else "[1, 0, 1]")


@pytest.mark.skipif(not NEWER, reason="allocateWithAddress came with 2.13")
@pytest.mark.parametrize("gapless", [False, True], ids=["native", "gapless"])
def test_memory_at_an_exact_address(simulate, extension, gapless):
    values = simulate(extension + """
whole = block(20)
first = whole.data_ptr()
print("live:", allocate_at(20 * MiB, first), b"at exact address" in reason.value)
del whole
for name, size, offset in (("all", 20, 0), ("part", 4, 0), ("inner", 4, 6)):
    got = allocate_at(size * MiB, first + offset * MiB)
    print(f"{name}:", got == first + offset * MiB, torch.cuda.memory_allocated() // MiB)
    extension.free_at(got)
print("beyond:", allocate_at(16 * MiB, first + 8 * MiB), torch.cuda.memory_allocated())
print("elsewhere:", allocate_at(1000, 0x1234000), allocate_at(0, first))
print("misaligned:", allocate_at(1000, first + 5), b"aligned" in reason.value)
torch.cuda.memory._record_memory_history("all")
got = allocate_at(4 * MiB, first)
trace = torch.cuda.memory._snapshot()["device_traces"][0]
print("recorded:", [(e["action"], e["addr"] == first, e["size"] // MiB) for e in trace])
extension.free_at(got)
torch.cuda.memory._record_memory_history(None)
""", gpus="1GiB", gapless=gapless).values()
    assert values == {"live": "None True", "all": "True 20", "part": "True 4", "inner": "True 4", "beyond": "None 0",
                      "elsewhere": "None None", "misaligned": "None True", "recorded": "[('alloc', True, 4)]"}


@pytest.mark.skipif(not NEWER, reason="allocateWithAddress came with 2.13")
def test_memory_at_an_exact_address_in_a_window(simulate, extension):
    values = simulate(extension + """
pieces = [block(2) for _ in range(200)]
del pieces[::2]
joined = block(150)              # of pieces: a window
place = joined.data_ptr()
del joined
got = allocate_at(100 * MiB, place + 20 * MiB)
print("got:", got == place + 20 * MiB)
print("again:", allocate_at(100 * MiB, place + 30 * MiB))
reserved = torch.cuda.memory_reserved()
rest = block(20)
print("reserved:", torch.cuda.memory_reserved() == reserved)
extension.free_at(got)
""", gpus="1GiB", gapless=True).values()
    assert values == {"got": "True", "again": "None", "reserved": "True"}
