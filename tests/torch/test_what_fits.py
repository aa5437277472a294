"""A request fails only if it would not fit, and then before anything is taken from others."""
import json
import subprocess
import sys

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_memory_freed_on_a_capturing_stream_is_not_the_only_memory(simulate, mode):
    """No event can be recorded there, so it is not to be had; 14 GiB of the device are."""
    result = simulate(f"""
        import torch
        torch.cuda.init()
        capturing, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(other):
            small = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(capturing):
            freed = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode={mode!r})
            inside = torch.empty(1000, device="cuda")
            del freed
            with torch.cuda.stream(other):
                blocks = [torch.empty(900 << 20, dtype=torch.uint8, device="cuda") for _ in range(15)]
            inside.zero_()
            graph.capture_end()
        graph.replay()
        torch.cuda.synchronize()
        print("blocks:", len(blocks))
        del blocks, small
        with torch.cuda.stream(other):
            blocks = torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
        print("then:", blocks.nbytes >> 30)
        """, gapless=True)
    assert result.values() == {"blocks": "15", "then": "15"}


PROBES = """
import ctypes, sys, torch

probes, where = int(sys.argv[1]), sys.argv[2]
GiB = 1 << 30

def refuse(gibibytes):
    for _ in range(probes):
        try:
            torch.empty(gibibytes * GiB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            continue
        raise SystemExit("had what cannot be had")

torch.cuda.init()
live = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
if where == "empty":
    refuse(90)
elif where == "others":  # memory that is none of the allocator's
    address = ctypes.c_void_p()
    assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(60 * GiB)) == 0
    refuse(30)
elif where == "limit":
    torch.cuda.set_per_process_memory_fraction(0.25)
    refuse(30)
elif where == "streams":
    blocks = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            blocks += [torch.empty(GiB, dtype=torch.uint8, device="cuda") for _ in range(10)]
    del blocks[::2]
    refuse(70)
elif where == "pool":
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        blocks = [torch.empty(GiB, dtype=torch.uint8, device="cuda") for _ in range(40)]
        del blocks[::2]
        refuse(70)
    refuse(70)
elif where == "capture":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        block = torch.zeros(GiB, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            refuse(90)
"""


@pytest.mark.parametrize("where", ["empty", "others", "limit", "streams", "pool", "capture"])
@pytest.mark.thorough(but=2)
def test_what_cannot_be_had_is_known_before_it_is_tried(tmp_path, where):
    """Batch-size finders ask for it at every step, while other processes want their memory."""
    probes = 20
    (tmp_path / "probe.py").write_text(PROBES)

    def row(count):
        report = tmp_path / "rows.json"
        done = subprocess.run([GAPLESS, "dryrun", "--gpu", "80GiB", "--allocator", "gapless", "--json", report, "--",
                               sys.executable, "probe.py", str(count), where],
                              cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert report.exists(), done.stderr
        (found,) = json.loads(report.read_text())
        assert found["exit_status"] == 0, done.stderr
        return found

    without, probing = row(0), row(probes)
    refusals = probes * (2 if where == "pool" else 1)
    assert sum(probing["driver_calls"].values()) - sum(without["driver_calls"].values()) <= 10 * refusals
    assert probing["peak_used_bytes"] == without["peak_used_bytes"]
    assert probing["peak_reserved_bytes"] == without["peak_reserved_bytes"]
