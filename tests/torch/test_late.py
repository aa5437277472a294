"""gapless installed when CUDA is in use: what the allocator before it made, its pools and graphs, goes back to it."""
import functools
import subprocess

import pytest

from conftest import PACKAGE

HEAD = """
import gc, threading
import torch
import gapless
MiB = 1 << 20
def block(mib):
    return torch.empty(mib * MiB, dtype=torch.uint8, device="cuda")
def where(tensor):
    "the pool of the segment a tensor lies in"
    at = tensor.data_ptr()
    for segment in torch.cuda.memory_snapshot():
        if segment["address"] <= at < segment["address"] + segment["total_size"]:
            return segment["segment_pool_id"]
def ours(tensor):
    "whether it is gapless's"
    home = gapless.report().as_dict()
    return any(b["address"] == tensor.data_ptr() and b.get("kind", "live") == "live"
               for b in home["home"] + home["window_blocks"])
"""


@pytest.fixture(params=["", "expandable_segments:True"], ids=["native", "expandable"])
def program(request, simulate):
    """What a program prints; it may fail nowhere, its end included."""
    return functools.partial(_run, simulate, request.param)


def _run(simulate, settings, text, **more):
    return simulate(HEAD + text, PYTHONPATH=str(PACKAGE), PYTORCH_CUDA_ALLOC_CONF=settings, **more).values()


@pytest.mark.parametrize("order", ["del tensor, pool", "del pool, tensor", "del pool\ngc.collect()\ntensor.add_(1)\ndel tensor",
                                   "del tensor\ntorch.cuda.empty_cache()\ndel pool", "pass"])
def test_a_pool_outlives_the_installation(program, order):
    values = program(f"""
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    tensor = block(8)
gapless.install()
print("users:", pool.use_count(), len(pool.snapshot()))
{order}
gc.collect()
torch.cuda.empty_cache()
other = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(other):
    more = block(8)
print("gapless:", torch.cuda.get_allocator_backend(), where(more) == other.id)
del more, other
""")
    assert values == {"users": "1 1", "gapless": "gapless True"}


def test_a_pool_is_used_again(program):
    values = program("""
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    first = block(8)
gapless.install()
reserved = gapless.memory_stats()["gapless.home_growths"]
with torch.cuda.use_mem_pool(pool):
    print("inside:", where(torch.empty(4 * MiB, device="cuda")) == pool.id, pool.use_count())
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        inner = block(4)
    outer = block(4)
outside = block(4)
side = torch.cuda.Stream()
outer.record_stream(side)
print("pools:", where(inner) == own.id, where(outer) == pool.id, where(outside))
print("ours:", *map(ours, (inner, outer, outside)))
print("users:", pool.use_count(), own.use_count())
del first, inner, outer, outside, own, pool
gc.collect()
torch.cuda.synchronize()
torch.cuda.empty_cache()
print("left:", torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
""")
    assert values == {"inside": "True 2", "pools": "True True (0, 0)", "ours": "True False True", "users": "1 1", "left": "0 0"}


@pytest.mark.parametrize("end", ["graph.reset()", "del graph", "graph.reset()\ndel graph", "graph.replay()", "pass"])
def test_a_graph_outlives_the_installation(program, end):
    values = program(f"""
x = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x + 1
gapless.install()
graph.replay()
# Another one in its pool; and one of gapless's own.
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    z = y + 1
print("shared:", where(z) == graph.pool() == where(y))
third = torch.cuda.CUDAGraph()
with torch.cuda.graph(third):
    w = z + 1
print("own:", where(w) == third.pool(), ours(w))
for one in (graph, second, third):
    one.replay()
{end}
gc.collect()
pools = [second.pool(), third.pool()]
second.reset()
third.reset()
del y, z, w
torch.cuda.empty_cache()
left = [segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()]
print("left:", [pools.index(pool) for pool in left if pool != (0, 0)])
""")
    alive = end in ("graph.replay()", "pass")
    assert values == {"shared": "True", "own": "True True", "left": "[0]" if alive else "[]"}


def test_a_pool_with_an_allocator_of_its_own(program, tmp_path):
    source = tmp_path / "own.c"
    source.write_text("""
#include <stddef.h>
#include <sys/types.h>
int cudaMalloc(void**, size_t);
int cudaFree(void*);
static int live, made;
void* own_alloc(ssize_t size, int device, void* stream) { void* p = 0; cudaMalloc(&p, size); ++live; ++made; return p; }
void own_free(void* p, ssize_t size, int device, void* stream) { --live; cudaFree(p); }
int own_live(void) { return live; }
int own_made(void) { return made; }
""")
    library = tmp_path / "own.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    values = program(f"""
import ctypes
own = ctypes.CDLL({str(library)!r})
allocator = torch.cuda.memory.CUDAPluggableAllocator({str(library)!r}, "own_alloc", "own_free")
pool = torch.cuda.MemPool(allocator.allocator())
with torch.cuda.use_mem_pool(pool):
    first = block(8)
gapless.install()
print("before:", own.own_live())
with torch.cuda.use_mem_pool(pool):
    second = block(40)
print("asked:", own.own_made(), where(second) == pool.id)
del first, second
del pool
gc.collect()
torch.cuda.empty_cache()
print("after:", own.own_live())
""")
    assert values == {"before": "1", "asked": "2 True", "after": "0"}


def test_pools_begun_before_and_ended_after(program):
    values = program("""
outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
kept = []
def elsewhere():
    kept.append(block(2))
first = block(1)
with torch.cuda.use_mem_pool(outer):
    with torch.cuda.use_mem_pool(inner):
        gapless.install()
        a = block(8)
        with torch.cuda.stream(torch.cuda.Stream()):
            b = block(8)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    c = block(8)
d = block(8)
print("pools:", where(a) == inner.id, where(b) == inner.id, where(c) == outer.id, where(d), where(kept[0]))
print("ours:", *map(ours, (a, b, c, d, kept[0])))
print("users:", outer.use_count(), inner.use_count())
del a, b, c, d, first, kept, outer, inner
gc.collect()
torch.cuda.empty_cache()
print("left:", torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
""")
    assert values == {"pools": "True True True (0, 0) (0, 0)",
                      "ours": "False False False True True", "users": "1 1", "left": "0 0"}


def test_pools_of_another_thread_are_ended_with_a_warning(simulate):
    result = simulate(HEAD + """
pool = torch.cuda.MemPool()
begun, installed = threading.Event(), threading.Event()
kept = []
def work():
    with torch.cuda.use_mem_pool(pool):
        kept.append(block(8))
        begun.set()
        installed.wait()
        kept.append(block(8))
thread = threading.Thread(target=work)
thread.start()
begun.wait()
gapless.install()
installed.set()
thread.join()
print("pools:", where(kept[0]) == pool.id, where(kept[1]), pool.use_count())
del kept, pool
gc.collect()
""", PYTHONPATH=str(PACKAGE))
    assert result.values()["pools"] == "True (0, 0) 1"
    assert "Warning: gapless was installed while pool (0, 1) was in use here" in result.err


def test_a_capture_is_not_interrupted(program):
    values = program("""
x = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x + 1
    try:
        gapless.install()
    except gapless.GaplessError as error:
        print("refused:", error)
    z = y + 1
graph.replay()
print("backend:", torch.cuda.get_allocator_backend(), where(z) == graph.pool())
print("then:", gapless.install(), torch.cuda.get_allocator_backend())
graph.replay()
graph.reset()
""")
    assert values == {"refused": "a CUDA graph is being captured: install gapless before its capture begins, or after it has ended",
                      "backend": "native True", "then": "True gapless"}


def test_a_capture_of_another_thread_gives_no_wrong_graph(program):
    values = program("""
x = torch.zeros(1000, device="cuda")
begun, installed = threading.Event(), threading.Event()
def work():
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            begun.set()
            installed.wait()
            z = y + 1
    except RuntimeError as error:
        print("refused:", str(error).split(":")[0])
        try:
            graph.replay()
        except RuntimeError as error:
            print("replay:", str(error).split("\\n")[0])
thread = threading.Thread(target=work)
thread.start()
begun.wait()
gapless.install()
installed.set()
thread.join()
""")
    assert values["refused"] == "gapless was installed while this graph was being captured by another thread"
    assert "replay" in values


def test_what_was_cached_before_serves_requests_that_would_fail(program):
    values = program("""
old = block(1000)
gapless.install()
del old                                         # the allocator before has it cached
print("cached:", torch.cuda.mem_get_info()[0] // MiB < 1000)
new = block(1500)
print("fits:", where(new))
""", gpus="2GiB", SIMGPU_CONTEXT="100MiB")
    assert values == {"cached": "True", "fits": "(0, 0)"}
