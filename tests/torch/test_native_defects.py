"""Where PyTorch's own allocators fail, on the simulated GPU: the programs that gapless is for.

Each program here has a test of the same name in tests/replay/native_defects_test.cc, which runs it
on gapless and holds. Numbers are issues of PyTorch.
"""
import importlib.metadata

import pytest

# What PyTorch has mended itself by 2.15, it still fails in 2.11.
MENDED = tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) >= (2, 15)

MEASURE = """
import torch
MiB = 1 << 20

def block(mib):
    return torch.empty(int(mib * MiB), dtype=torch.uint8, device="cuda")

def report(**values):
    for name, value in values.items():
        print(f"{name}: {value}")

def reserved():
    return torch.cuda.memory_reserved() // MiB

def fits(program):
    try:
        program()
        return True
    except torch.OutOfMemoryError:
        return False

def sleep(ms):  # work for the current stream
    torch.cuda._sleep(int(ms * 1e6))
"""

NATIVE = ""
EXPANDABLE = "expandable_segments:True"


@pytest.fixture
def run(simulate):
    def go(code, settings=NATIVE, gpus="1GiB"):
        extra = {"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else {}
        return simulate(MEASURE + code, gpus=gpus, **extra).values()
    return go


def test_memory_in_pieces_of_segments_is_not_joined(run):
    # Eight blocks of 16 MiB go, four of 32 MiB come: the same memory again.
    values = run("""
blocks = [block(16) for _ in range(8)]
blocks.clear()
blocks = [block(32) for _ in range(4)]
report(reserved=reserved())
""")
    assert int(values["reserved"]) == 256


def test_a_live_block_between_two_holes_keeps_them_apart(run):
    # live | free | live | free: not even expandable segments join what is free.
    code = """
blocks = [block(20) for _ in range(16)]
del blocks[::2]
wide = block(160)
report(reserved=reserved())
"""
    assert int(run(code)["reserved"]) == 480
    assert int(run(code, EXPANDABLE)["reserved"]) == 480


def test_small_and_large_requests_do_not_share_memory(run):
    # Above and below 1 MiB there are two pools.
    values = run("""
small = [block(0.5) for _ in range(256)]
small.clear()
large = [block(16) for _ in range(8)]
report(reserved=reserved())
""")
    assert int(values["reserved"]) == 256


def test_a_stream_used_once_strands_its_memory(run):
    # Megatron-LM 6885.
    values = run("""
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    once = block(400)
del once
torch.cuda.synchronize()
now = block(400)
report(reserved=reserved())
""", gpus="4GiB")
    assert int(values["reserved"]) == 800


def test_record_stream_holds_memory_back(run):
    # torchtitan 735, fairscale 972: the host runs ahead, and each step takes new memory.
    values = run("""
side = torch.cuda.Stream()
for step in range(6):
    x = block(100)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        sleep(50)
    x.record_stream(side)
    del x
report(reserved=reserved())
""")
    assert int(values["reserved"]) >= 500


def test_a_pools_request_does_not_get_what_is_free_outside(run):
    # 159674: with 600 MiB free, 300 MiB are not to be had.
    values = run("""
cache = block(600)
del cache
pool = torch.cuda.MemPool()
def program():
    with torch.cuda.use_mem_pool(pool):
        inside = block(300)
report(fits=fits(program))
""")
    assert values["fits"] == str(MENDED)


def test_max_split_size_leaves_halves_of_segments(run):
    # 123548, 119452: blocks above the limit are never split, and below it never joined again.
    values = run("""
for step in range(8):
    big = block(100 + 30 * step)
    del big
    torch.cuda.synchronize()
    rest = [block(30) for _ in range(6)]
    rest.clear()
report(reserved=reserved())
""", "max_split_size_mb:64", gpus="4GiB")
    assert int(values["reserved"]) > 600


def test_two_streams_in_one_graph_do_not_share(run):
    # 97419: what one branch of a capture freed is not had by another that comes after it.
    values = run("""
side = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    for _ in range(4):
        a = block(50)
        a.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        del a
        with torch.cuda.stream(side):
            b = block(50)
            b.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        del b
report(reserved=reserved())
""")
    assert int(values["reserved"]) >= 100


def test_expandable_segments_end_where_an_own_allocator_begins(run):
    # 147851, 196378: a pool grows segment by segment, and its pieces are not joined.
    values = run("""
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    for mib in (30, 40, 50, 60, 70):
        x = block(mib)
        del x
report(reserved=reserved())
""")
    assert int(values["reserved"]) == 250


def test_what_the_synchronisation_freed_is_not_found(run):
    # 189504: before it fails PyTorch's allocator waits for all events; what that frees inside a
    # segment that is in use it does not look for. The same request succeeds when made again.
    values = run("""
whole = block(600)
del whole
kept = block(300)
lent = block(300)
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    sleep(500)
lent.record_stream(side)
del lent
def program():
    return block(300)
report(first=fits(program), second=fits(program))
""")
    assert values["first"] == "False"
    assert values["second"] == "True"


def test_the_message_advises_what_is_set_already(run):
    # 173049.
    values = run("""
try:
    block(2000)
except torch.OutOfMemoryError as error:
    report(advises="expandable_segments:True" in str(error))
""", EXPANDABLE)
    assert values["advises"] == str(not MENDED)
