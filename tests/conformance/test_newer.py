"""What PyTorch's allocators have learnt since 2.6, tested: our own tests of the behaviours that tests of
the same names check in PyTorch 2.11's test_cuda.py, whose text is not at hand. run.py runs them.

They hold for the native allocator, on a GPU and on the simulated one, and must hold for gapless.
"""
import gc
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import torch

MIB = 1 << 20
# Where PyTorch's own way is one of several, its figures are asked of it alone.
torch.cuda.init()  # an allocator that is preloaded comes with it
NATIVE = torch.cuda.get_allocator_backend() == "native"


def tensor(mebibytes: float, **options) -> torch.Tensor:
    return torch.empty(int(mebibytes * MIB), dtype=torch.uint8, device="cuda", **options)


def segments(pool=None) -> list[dict]:
    found = torch.cuda.memory_snapshot()
    return [s for s in found if pool is None or s["segment_pool_id"] == tuple(pool)]


def child(code: str, **environment: str) -> str:
    """What a program prints, in a process of its own with those variables."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env={**os.environ, **environment},
                          capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


class Newer(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class TestStatistics(Newer):
    def test_memory_stats(self):
        before = torch.cuda.memory_stats()
        kept = tensor(30)
        now = torch.cuda.memory_stats()
        for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
            self.assertEqual(now[f"{name}.all.current"] - before[f"{name}.all.current"], 30 * MIB, name)
        self.assertEqual(now["allocation.large_pool.current"] - before["allocation.large_pool.current"], 1)
        self.assertGreaterEqual(now["reserved_bytes.all.current"], now["allocated_bytes.all.current"])
        del kept
        torch.cuda.reset_peak_memory_stats()
        after = torch.cuda.memory_stats()
        self.assertEqual(after["allocated_bytes.all.current"], before["allocated_bytes.all.current"])
        self.assertEqual(after["allocated_bytes.all.peak"], after["allocated_bytes.all.current"])
        self.assertEqual(after["allocated_bytes.all.freed"] - before["allocated_bytes.all.freed"], 30 * MIB)
        torch.cuda.reset_accumulated_memory_stats()
        self.assertEqual(torch.cuda.memory_stats()["allocated_bytes.all.allocated"], 0)

    def test_host_memory_stats(self):
        before = torch.cuda.host_memory_stats()
        pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
        now = torch.cuda.host_memory_stats()
        # Whole powers of two are handed out.
        self.assertEqual(now["allocated_bytes.current"] - before.get("allocated_bytes.current", 0), 4 * MIB)
        self.assertEqual(now["allocations.current"] - before.get("allocations.current", 0), 1)
        del pinned
        self.assertGreaterEqual(torch.cuda.host_memory_stats()["allocated_bytes.peak"], 4 * MIB)

    def test_pinned_memory_use_background_threads(self):
        code = "import torch; print(torch.empty(1 << 20).pin_memory().is_pinned())"
        self.assertEqual(child(code, PYTORCH_ALLOC_CONF="pinned_use_background_threads:True",
                               PYTORCH_CUDA_ALLOC_CONF="pinned_use_background_threads:True"), "True")


class TestSettings(Newer):
    def test_allocator_backend(self):
        code = "import torch; print(torch.cuda.get_allocator_backend())"
        self.assertEqual(child(code, PYTORCH_CUDA_ALLOC_CONF="backend:native"), "native")
        self.assertEqual(child(code, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"), "cudaMallocAsync")

    def test_allocator_settings(self):
        # Rounding to powers of two in eighths, set at run time.
        torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:8")
        try:
            kept = torch.empty(int(1.01 * MIB), dtype=torch.uint8, device="cuda")
            blocks = [b for s in segments() for b in s["blocks"] if b["address"] == kept.data_ptr()]
            self.assertEqual(blocks[0]["size"], int(1.125 * MIB))
            self.assertEqual(blocks[0]["requested_size"], int(1.01 * MIB))
        finally:
            torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:1")
        with self.assertRaises((RuntimeError, ValueError)):
            torch.cuda.memory._set_allocator_settings("no_such_setting:1")

    def test_allocator_memory_fraction_setting(self):
        code = """
import torch
total = torch.cuda.mem_get_info()[1]
try:
    torch.empty(int(total * 0.3), dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("refused")
print(torch.empty(int(total * 0.2), dtype=torch.uint8, device="cuda").numel() > 0)
"""
        self.assertEqual(child(code, PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.25").split(),
                         ["refused", "True"])


class TestHistory(Newer):
    def tearDown(self):
        torch.cuda.memory._record_memory_history(None)

    def history(self) -> list[dict]:
        return torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]

    def test_raises_oom(self):
        for size in (1 << 50, 1 << 62):
            with self.assertRaises((torch.OutOfMemoryError, RuntimeError)):
                torch.empty(size, dtype=torch.uint8, device="cuda")
        self.assertEqual(tensor(1).numel(), MIB)  # and goes on

    def test_memory_snapshot_skip_actions(self):
        torch.cuda.memory._record_memory_history(max_entries=1000, skip_actions=["free_requested"])
        kept = tensor(25)
        del kept
        actions = [event["action"] for event in self.history()]
        self.assertIn("alloc", actions)
        self.assertIn("free_completed", actions)
        self.assertNotIn("free_requested", actions)

    def test_memory_plots_metadata(self):
        torch.cuda.memory._record_memory_history(max_entries=1000)
        torch._C._cuda_setMemoryMetadata("step 1")
        kept = tensor(25)
        torch._C._cuda_setMemoryMetadata("")
        found = [event for event in self.history() if event["action"] == "alloc" and event["size"] == kept.nbytes]
        self.assertEqual(found[-1]["user_metadata"], "step 1")

    def test_snapshot_file(self):
        torch.cuda.memory._record_memory_history(max_entries=1000)
        kept = tensor(25)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "snapshot.pickle"
            torch.cuda.memory._dump_snapshot(str(path))
            snapshot = pickle.loads(path.read_bytes())
        self.assertTrue(any(b["address"] == kept.data_ptr() and b["state"] == "active_allocated"
                            for s in snapshot["segments"] for b in s["blocks"]))
        json.dumps(snapshot["allocator_settings"])


class TestGraphs(Newer):
    def test_cuda_graph_raw_graph_keep_graph_false(self):
        graph = torch.cuda.CUDAGraph(keep_graph=False)
        with torch.cuda.graph(graph):
            torch.zeros(10, device="cuda")
        with self.assertRaises(RuntimeError):
            graph.raw_cuda_graph()

    def check_pinned_in_capture(self, used: bool):
        graph = torch.cuda.CUDAGraph()
        target = torch.zeros(1024, dtype=torch.uint8, device="cuda")
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            pinned = torch.empty(1024, dtype=torch.uint8, pin_memory=True)
            if used:
                target.copy_(pinned, non_blocking=True)
        address = pinned.data_ptr()
        del pinned
        other = torch.empty(1024, dtype=torch.uint8, pin_memory=True)
        if used:  # a replay would read it: nobody else may have it
            self.assertNotEqual(other.data_ptr(), address)
        graph.replay()
        torch.cuda.synchronize()

    def test_pin_memory_no_use(self):
        self.check_pinned_in_capture(used=False)

    def test_pin_memory_use(self):
        self.check_pinned_in_capture(used=True)

    def test_two_graphs_with_pinned_memory(self):
        # Every order of using and dropping: what a graph reads of its own is nobody else's. (What was
        # pinned before capture is the program's to keep.)
        for first_uses in (False, True):
            for second_uses in (False, True):
                for drop_first in (False, True):
                    with self.subTest(first=first_uses, second=second_uses, drop=drop_first):
                        self.check_two_graphs((first_uses, second_uses), drop_first)

    def check_two_graphs(self, uses: tuple, drop_first: bool):
        graphs, kept = [], []
        target = torch.zeros(1024, dtype=torch.uint8, device="cuda")
        for use in uses:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                source = torch.empty(1024, dtype=torch.uint8, pin_memory=True)
                if use:
                    target.copy_(source, non_blocking=True)
            graphs.append(graph)
            if use:
                kept.append(source.data_ptr())
            del source, graph
        if drop_first:
            del graphs[0]
            kept = kept[1:] if uses[0] else kept
        gc.collect()
        others = [torch.empty(1024, dtype=torch.uint8, pin_memory=True) for _ in range(8)]
        self.assertFalse({t.data_ptr() for t in others} & set(kept))
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()

    def test_unpinned_memory_use_device_to_host(self):
        graph = torch.cuda.CUDAGraph()
        source = torch.zeros(1024, dtype=torch.uint8, device="cuda")
        target = torch.empty(1024, dtype=torch.uint8)
        with torch.cuda.graph(graph), self.assertRaises(RuntimeError):
            target.copy_(source, non_blocking=True)

    def test_unpinned_memory_use(self):
        graph = torch.cuda.CUDAGraph()
        host = torch.empty(1024, dtype=torch.uint8)
        target = torch.zeros(1024, dtype=torch.uint8, device="cuda")
        with torch.cuda.graph(graph), self.assertRaises(RuntimeError):
            target.copy_(host, non_blocking=True)

    def check_reclaim(self, streams: int):
        # What is freed while a graph is captured, on any of its streams, serves it again.
        graph = torch.cuda.CUDAGraph()
        main = torch.cuda.Stream()
        others = [torch.cuda.Stream() for _ in range(streams - 1)]
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(main):
            graph.capture_begin(pool=pool)
            for _ in range(8):
                for other in others:
                    other.wait_stream(main)
                    with torch.cuda.stream(other):
                        tensor(32)
                    main.wait_stream(other)
                tensor(32)
            graph.capture_end()
        reserved = sum(s["total_size"] for s in segments(pool))
        if NATIVE:
            self.assertEqual(reserved, streams * 32 * MIB)
        else:  # one stream's memory may be another's, where the graph's order allows it
            self.assertLessEqual(reserved, streams * 32 * MIB)

    def test_graph_capture_reclaim_2_streams(self):
        self.check_reclaim(2)

    def test_graph_capture_reclaim_4_streams(self):
        self.check_reclaim(4)

    def test_two_graphs_share_a_pool(self):
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            tensor(64)
        with torch.cuda.graph(second, pool=first.pool()):
            tensor(64)
        self.assertEqual(first.pool(), second.pool())
        self.assertEqual(sum(s["total_size"] for s in segments(first.pool())), 64 * MIB)


class TestMemPool(Newer):
    def test_mempool_id(self):
        one, other = torch.cuda.MemPool(), torch.cuda.MemPool()
        self.assertNotEqual(one.id, other.id)
        self.assertGreater(max(one.id), 0)

    def test_mempool_empty_cache(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = tensor(30)
        self.assertEqual(len(segments(pool.id)), 1)
        del kept
        del pool  # with the pool gone, its memory is anybody's to give back
        torch.cuda.empty_cache()
        self.assertEqual([s for s in segments() if max(s["segment_pool_id"]) > 0], [])

    def test_mempool_snapshot_of_one_pool(self):
        pool = torch.cuda.MemPool()
        outside = tensor(40)
        with torch.cuda.use_mem_pool(pool):
            inside = tensor(30)
        found = [b["address"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
        self.assertEqual(found, [inside.data_ptr()])
        self.assertNotIn(outside.data_ptr(), found)

    def test_nested_mempool(self):
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(outer):
            first = tensor(30)
            with torch.cuda.use_mem_pool(inner):
                second = tensor(40)
            third = tensor(50)
        fourth = tensor(60)
        owners = {b["address"]: s["segment_pool_id"] for s in segments() for b in s["blocks"]}
        self.assertEqual([owners[t.data_ptr()] for t in (first, second, third, fourth)],
                         [outer.id, inner.id, outer.id, (0, 0)])

    def test_mempool_expandable(self):
        code = """
import torch
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
found = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool.id]
print(len(found), all(s["is_expandable"] for s in found))
"""
        self.assertEqual(child(code, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "1 True")

    def run_threads(self, work, count=4):
        failures = []

        def guarded(index):
            try:
                work(index)
            except BaseException as error:  # told by the test
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_mempool_multithread(self):
        owners = {}

        def work(index):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                kept = [tensor(4) for _ in range(20)]
            owners[index] = (pool, kept)

        self.run_threads(work)
        by_address = {b["address"]: s["segment_pool_id"] for s in segments() for b in s["blocks"]}
        for pool, kept in owners.values():
            self.assertEqual({by_address[t.data_ptr()] for t in kept}, {pool.id})

    def test_mempool_ctx_multithread(self):
        # A pool in use in one thread is not another thread's.
        pool, go, done = torch.cuda.MemPool(), threading.Event(), threading.Event()
        made = []

        def other():
            go.wait()
            made.append(tensor(30))
            done.set()

        thread = threading.Thread(target=other)
        thread.start()
        with torch.cuda.use_mem_pool(pool):
            inside = tensor(40)
            go.set()
            done.wait()
        thread.join()
        owners = {b["address"]: s["segment_pool_id"] for s in segments() for b in s["blocks"]}
        self.assertEqual(owners[inside.data_ptr()], pool.id)
        self.assertEqual(owners[made[0].data_ptr()], (0, 0))

    def test_mempool_emptycache_multithread(self):
        # Together, and outside of pools: torch 2.11 itself ends where one thread releases a pool while
        # another is inside one.
        together = threading.Barrier(4)

        def work(_index):
            for _ in range(10):
                pool = torch.cuda.MemPool()
                with torch.cuda.use_mem_pool(pool):
                    tensor(4)
                together.wait()
                del pool
                torch.cuda.empty_cache()
                together.wait()

        self.run_threads(work)
        torch.cuda.empty_cache()
        self.assertEqual([s for s in segments() if max(s["segment_pool_id"]) > 0], [])

    def test_tensor_outlives_its_pool(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            kept = tensor(30)
        before = torch.cuda.memory_allocated()
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_allocated(), before)
        kept.zero_()
        del kept
        self.assertEqual(torch.cuda.memory_allocated(), before - 30 * MIB)

    ALLOCATOR = """
#include <dlfcn.h>
#include <stddef.h>
static int live, limit = 1 << 30;
int count(void) { return live; }
void set_limit(int n) { limit = n; }
void* take(ptrdiff_t size, int device, void* stream) {
  int (*allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc");
  void* found = 0;
  if (live >= limit || allocate(&found, size) != 0) return 0;
  ++live;
  return found;
}
void give(void* pointer, ptrdiff_t size, int device, void* stream) {
  int (*release)(void*) = (int (*)(void*))dlsym(RTLD_DEFAULT, "cudaFree");
  release(pointer);
  --live;
}
"""

    def own_allocator(self):
        """A user's allocator under a pool, and the library it is in."""
        import ctypes
        if shutil.which("gcc") is None:
            self.skipTest("there is no compiler")
        folder = tempfile.mkdtemp()
        source, library = pathlib.Path(folder, "own.c"), pathlib.Path(folder, "own.so")
        source.write_text(self.ALLOCATOR)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True,
                       env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
        # Its cudaMalloc is the process's: torch's runtime must be found by name.
        for name in ("libcudart.so.13", "libcudart.so.12"):
            try:
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
                break
            except OSError:
                continue
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "take", "give")
        return allocator, ctypes.CDLL(str(library))

    def test_mempool_with_own_allocator(self):
        allocator, library = self.own_allocator()
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = tensor(30)
        self.assertEqual(library.count(), 1)
        outside = tensor(30)
        self.assertEqual(library.count(), 1)
        del kept, outside, pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(library.count(), 0)

    def test_mempool_limited_memory_with_allocator(self):
        allocator, library = self.own_allocator()
        library.set_limit(1)
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = tensor(30)
            with self.assertRaises(torch.OutOfMemoryError):
                tensor(30)
        self.assertEqual(library.count(), 1)
        del kept

    def test_tensor_delete_after_allocator_delete(self):
        allocator, library = self.own_allocator()
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            kept = tensor(30)
        del pool, allocator
        gc.collect()
        kept.zero_()
        del kept
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(library.count(), 0)

    def test_mempool_empty_cache_inactive(self):
        # What is free in a pool that is not in use goes back with the pool.
        allocator, library = self.own_allocator()
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            one, other = tensor(30), tensor(40)
        del one
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(library.count(), 1)
        del other
        torch.cuda.empty_cache()
        self.assertEqual(library.count(), 0)

    def fill(self) -> list[torch.Tensor]:
        """Takes all memory but less than 64 MiB."""
        free = torch.cuda.mem_get_info()[0]
        return [tensor((free // MIB - 48) // 2 * 2)]

    def test_mempool_use_on_oom(self):
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            tensor(200)
        rest = self.fill()
        kept = tensor(100)  # nowhere else
        owners = {b["address"]: s["segment_pool_id"] for s in segments() for b in s["blocks"]}
        if NATIVE:  # the others let the pool's memory go
            self.assertEqual(owners[kept.data_ptr()], pool.id)
        del rest

    def test_mempool_not_used_on_oom_by_default(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            tensor(200)
        rest = self.fill()
        with self.assertRaises(torch.OutOfMemoryError):
            tensor(100)
        del rest

    def test_deleted_mempool_not_used_on_oom(self):
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            tensor(200)
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        rest = self.fill()
        with self.assertRaises(torch.OutOfMemoryError):
            tensor(100)
        del rest

    def test_mempool_no_split(self):
        pool = torch.cuda.MemPool(no_split=True)
        with torch.cuda.use_mem_pool(pool):
            tensor(200)
            kept, other = tensor(100), tensor(3)
        if not NATIVE:  # of several tensors none shares a page with another
            self.assertEqual([t.data_ptr() % (2 * MIB) for t in (kept, other)], [0, 0])
            return
        blocks = [b for s in segments(pool.id) for b in s["blocks"] if b["address"] == kept.data_ptr()]
        self.assertEqual(blocks[0]["size"], 200 * MIB)


if __name__ == "__main__":
    unittest.main()
