"""Children forked from a process that uses CUDA: none hangs, none touches the parent's memory."""
import pytest

HEAD = """
import os, random, signal, sys, threading
import torch
def in_child(body):
    "How a child ends that runs body(): its status, or -SIGALRM where it hung."
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        body()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("history", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("gpus", ["16GiB", "8GiB,8GiB"], ids=["one", "two"])
@pytest.mark.thorough(but=2)
def test_no_child_hangs_in_a_free(simulate, history, gpus):
    values = simulate(HEAD + f"""
if {history}:
    torch.cuda.memory._record_memory_history("all", max_entries=1000)
x = torch.empty(1000, device="cuda")
stop = False
def work():
    while not stop:
        kept = [torch.empty(1 << random.randrange(5, 20), device="cuda") for _ in range(50)]
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
def free():
    global x
    del x
ends = [in_child(free) for _ in range(100)]
stop = True
for thread in threads:
    thread.join()
print("ends:", sorted(set(ends)), torch.cuda.get_allocator_backend())
x.add_(1)
del x
print("left:", torch.cuda.memory_allocated())
""", gapless=True, gpus=gpus).values()
    assert values == {"ends": "[0] gapless", "left": "0"}


def test_a_child_is_told_and_ends_well(simulate):
    # Whatever of torch's checks is passed by: nothing may hang or abort.
    result = simulate(HEAD + """
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    tensor = torch.empty(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tensor + 1
def body():
    global tensor, pool, graph, y
    def tried(name, function, *arguments):
        try:
            print(name, function(*arguments))
        except RuntimeError as error:
            print(name, str(error).split(",")[0])
    tried("alloc:", torch._C._cuda_cudaCachingAllocator_raw_alloc, 1000, 0)
    tried("stats:", torch._C._cuda_memoryStats, 0)
    tried("fraction:", torch._C._cuda_setMemoryFraction, 0.5, 0)
    tried("history:", torch.cuda.memory._record_memory_history)
    tried("empty_cache:", torch._C._cuda_emptyCache)
    tried("use_count:", pool.use_count)
    tried("allocated:", torch.cuda.memory_allocated)
    del tensor, y
    del graph, pool
    sys.stdout.flush()
status = in_child(body)
print("ends:", status, in_child(body))
child = os.fork()
if child == 0:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)
    sys.exit(7)
print("exit:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent:", torch.cuda.memory_allocated() > 0, pool.use_count())
graph.replay()
""", gapless=True)
    values = result.values()
    assert values["alloc"].startswith("gapless: this process was forked from one that uses CUDA")
    assert values["stats"].startswith("gapless: this process was forked")
    assert values["fraction"].startswith("gapless: this process was forked")
    assert values["ends"] == "0 0"
    assert values["exit"] == "7"
    assert values["parent"] == "True 1"


def test_fork_before_cuda_is_used(simulate):
    values = simulate(HEAD + """
def body():
    x = torch.empty(1000, device="cuda")
    print("child:", torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated(), flush=True)
print("ends:", in_child(body))
x = torch.empty(1000, device="cuda")
print("parent:", torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated())
""", gapless=True).values()
    assert values == {"child": "gapless 4096", "ends": "0", "parent": "gapless 4096"}


def test_children_of_multiprocessing(simulate, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("""
import multiprocessing, torch
def work(queue):
    queue.put(sum(range(10)))
if __name__ == "__main__":
    x = torch.empty(1000, device="cuda")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=work, args=(queue,)) for _ in range(4)]
    for child in children: child.start()
    for child in children: child.join()
    print("sum:", sum(queue.get() for _ in children), [child.exitcode for child in children])
""")
    assert simulate("", words=[str(script)], gapless=True, warm=False).values() == {"sum": "180 [0, 0, 0, 0]"}
