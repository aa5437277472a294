"""The simulated GPU as PyTorch sees it: devices, memory, time."""
import pytest


def test_devices_are_what_was_asked_for(simulate):
    values = simulate("""
        import torch
        print("count:", torch.cuda.device_count())
        for i in range(torch.cuda.device_count()):
            p = torch.cuda.get_device_properties(i)
            print(f"{i}:", p.name, p.total_memory, (p.major, p.minor), p.multi_processor_count)
    """, gpus="A100,T4:8GiB,12GiB").values()
    assert values["count"] == "3"
    assert values["0"] == "NVIDIA A100-SXM4-80GB 84986036224 (8, 0) 108"
    assert values["1"] == f"Tesla T4 {8 << 30} (7, 5) 40"
    assert values["2"].startswith(f"simulated GPU {12 << 30}")


def test_no_gpu_is_touched_before_it_is_asked_for(simulate):
    values = simulate("""
        import torch
        print("initialized:", torch.cuda.is_initialized())
        free, total = torch.cuda.mem_get_info(0)
        print("context:", total - free)
    """, SIMGPU_CONTEXT="100MiB").values()
    assert values["initialized"] == "False"
    assert int(values["context"]) == 100 << 20


def test_contexts_are_a_stack_of_each_thread(simulate):
    """Libraries beside PyTorch pop its context, and push it again."""
    simulate("""
        import ctypes, threading, torch
        driver = ctypes.CDLL("libcuda.so.1")
        INVALID_CONTEXT = 201
        def current():
            context = ctypes.c_void_p()
            assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
            return context.value
        def pop():
            context = ctypes.c_void_p()
            return driver.cuCtxPopCurrent_v2(ctypes.byref(context)), context.value
        assert current() is None and pop()[0] == INVALID_CONTEXT
        torch.zeros(1, device="cuda")
        first = current()
        assert first and pop() == (0, first) and current() is None and pop()[0] == INVALID_CONTEXT
        assert driver.cuCtxPushCurrent_v2(ctypes.c_void_p(first)) == 0 and current() == first
        torch.zeros(1, device="cuda:1")
        second = ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(second), 1) == 0
        assert driver.cuCtxPushCurrent_v2(second) == 0 and current() == second.value != first
        device = ctypes.c_int()
        assert driver.cuCtxGetDevice(ctypes.byref(device)) == 0 and device.value == 1
        assert driver.cuCtxGetDevice_v2(ctypes.byref(device), ctypes.c_void_p(first)) == 0 and device.value == 0
        assert pop() == (0, second.value) and current() == first
    """, gpus="2GiB,2GiB")


def test_out_of_memory_at_exact_capacity(simulate):
    # 64 MiB of context leave 16,320 MiB: 8,160 requests of 2 MiB, and not one more.
    values = simulate("""
        import torch
        def take(n): return [torch.empty(20 << 20, dtype=torch.uint8, device="cuda") for _ in range(n)]
        kept = take(816)
        print("free:", torch.cuda.mem_get_info()[0])
        try:
            take(1)
        except torch.OutOfMemoryError as error:
            print("error:", error)
        del kept[:1]
        kept += take(1)
        print("again: fits")
    """, SIMGPU_CONTEXT="64MiB").values()
    assert values["free"] == "0"
    assert values["again"] == "fits"
    assert values["error"].startswith(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 16.00 GiB "
        "of which 0 bytes is free.")


def test_expandable_segments_map_pages(simulate):
    values = simulate("""
        import torch
        x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        y = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        del x
        z = torch.empty(110 << 20, dtype=torch.uint8, device="cuda")
        print("reserved:", torch.cuda.memory_reserved() >> 20)
        print("segments:", len(torch.cuda.memory_snapshot()))
        print("expandable:", torch.cuda.memory_snapshot()[0]["is_expandable"])
    """, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True").values()
    assert values == {"reserved": "240", "segments": "1", "expandable": "True"}


def test_what_the_host_wrote_comes_back(simulate):
    values = simulate("""
        import torch
        x = torch.arange(100000, dtype=torch.int64)
        y = x.cuda()
        print("same:", torch.equal(y.cpu(), x))
        print("part:", torch.equal(y[5000:6000].cpu(), x[5000:6000]))
        print("copied:", torch.equal(y.clone().cpu(), x))
        print("item:", y[77].item())
        print("pinned:", torch.equal(x.pin_memory().cuda(non_blocking=True).cpu(), x))
    """).values()
    assert values == {"same": "True", "part": "True", "copied": "True", "item": "77",
                      "pinned": "True"}


def test_what_is_no_memory_is_refused(simulate):
    # Registering does not make host memory the runtime's to free; 4096 is no device address.
    values = simulate("""
        import ctypes, torch
        torch.cuda.init()
        runtime = ctypes.CDLL("libcudart.so.13")
        own = ctypes.create_string_buffer(8192)
        nowhere = ctypes.c_void_p(4096)
        print("register:", runtime.cudaHostRegister(own, 8192, 0))
        print("free:", runtime.cudaFreeHost(own))
        print("unregister:", runtime.cudaHostUnregister(own))
        print("fill:", runtime.cudaMemset(nowhere, 1, 8))
    """).values()
    assert values == {"register": "0", "free": "1", "unregister": "0", "fill": "1"}


def test_the_driver_knows_pinned_memory(simulate):
    """Triton asks it whether a kernel can reach what it is given: vLLM's tables are views of pinned memory."""
    values = simulate("""
        import ctypes, torch
        driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
        held = torch.ones(1000, dtype=torch.uint8, device="cuda")
        pinned = torch.ones(1 << 20, dtype=torch.uint8).pin_memory()
        plain = torch.ones(1 << 20, dtype=torch.uint8)
        def asked(attribute, address):
            value = ctypes.c_uint64()
            error = driver.cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(address))
            return error or value.value
        for name, one in ("device", held), ("pinned", pinned), ("plain", plain):
            at = one.data_ptr() + 100
            print(f"{name}:", asked(2, at), asked(3, at) == at, asked(4, at) == at, asked(8, at), asked(9, at))
        print("range:", asked(11, pinned.data_ptr() + 5) == pinned.data_ptr(), asked(12, pinned.data_ptr()))
        reached = ctypes.c_void_p()
        def reach(address): return runtime.cudaHostGetDevicePointer(ctypes.byref(reached), ctypes.c_void_p(address), 0)
        print("reached:", reach(pinned.data_ptr()), reached.value == pinned.data_ptr(), reach(plain.data_ptr()))
        host = ctypes.c_void_p()
        print("driver:", driver.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(4096), 0), asked(2, host.value),
              driver.cuMemFreeHost(host), asked(2, host.value), driver.cuMemFreeHost(host))
        own = ctypes.create_string_buffer(8192)
        print("registered:", driver.cuMemHostRegister_v2(own, ctypes.c_size_t(8192), 0), asked(2, ctypes.addressof(own)),
              driver.cuMemHostRegister_v2(own, ctypes.c_size_t(8192), 0), driver.cuMemFreeHost(own),
              driver.cuMemHostUnregister(own), driver.cuMemHostUnregister(own))
    """).values()
    assert values["device"] == "2 True False 0 0" and values["pinned"] == "1 True True 0 0"
    assert values["plain"] == "1 False False 1 1"
    assert values["range"].split()[0] == "True" and int(values["range"].split()[1]) >= 1 << 20
    assert values["reached"] == "0 True 1"
    assert values["driver"] == "0 1 0 1 1" and values["registered"] == "0 1 712 1 0 713"


def test_managed_memory_is_the_hosts_and_each_devices(simulate):
    values = simulate("""
        import ctypes, torch
        size = 1 << 20
        x = torch.arange(size // 8).cuda()
        runtime = ctypes.CDLL("libcudart.so.13")
        runtime.cudaFree.argtypes = [ctypes.c_void_p]
        class Location(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
        device = Location(1, 0)
        def prefetch(address, size):
            return runtime.cudaMemPrefetchAsync(ctypes.c_void_p(address), ctypes.c_size_t(size), device, 0, None)
        managed = ctypes.c_void_p()
        print("allocate:", runtime.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(size), 1))
        at = managed.value
        print("prefetch:", prefetch(at, size), prefetch(at + size // 2, size // 2))
        print("beyond:", prefetch(at + size // 2, size), prefetch(at, 0))
        print("advise:", runtime.cudaMemAdvise(managed, ctypes.c_size_t(size), 3, device))
        kind = (ctypes.c_int * 64)()
        runtime.cudaPointerGetAttributes(kind, managed)
        print("kind:", kind[0])
        print("copy:", runtime.cudaMemcpy(managed, ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(size), 4))
        print("last:", ctypes.cast(at, ctypes.POINTER(ctypes.c_int64))[size // 8 - 1])
        plain = x.data_ptr()
        print("free:", runtime.cudaFree(managed), prefetch(at, size), prefetch(plain, 8))
    """).values()
    assert values == {"allocate": "0", "prefetch": "0 0", "beyond": "1 1", "advise": "0", "kind": "3", "copy": "0",
                      "last": "131071", "free": "0 1 1"}


def test_two_devices_and_copies_between_them(simulate):
    values = simulate("""
        import torch
        x = torch.arange(1000).to("cuda:0")
        y = x.to("cuda:1")
        print("there:", torch.equal(y.cpu(), torch.arange(1000)))
        print("peer:", torch.cuda.can_device_access_peer(0, 1))
        print("allocated:", torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1))
    """, gpus="16GiB,8GiB").values()
    assert values == {"there": "True", "peer": "True", "allocated": "8192 8192"}


def test_streams_are_busy_as_long_as_they_sleep(simulate):
    values = simulate("""
        import torch
        side = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(side):
            begin.record()
            torch.cuda._sleep(200_000_000)
            end.record()
        print("done:", end.query(), side.query())
        torch.cuda.current_stream().wait_event(end)
        torch.cuda.synchronize()
        print("then:", end.query(), side.query())
        print("ms:", round(begin.elapsed_time(end)))
    """).values()
    assert values["done"] == "False False"
    assert values["then"] == "True True"
    assert 199 <= int(values["ms"]) <= 220


def test_graphs_record_and_replay(simulate):
    values = simulate("""
        import torch
        x = torch.arange(8).cuda()
        out = torch.zeros(8, dtype=torch.int64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
            out.copy_(x)
        print("before:", out.tolist())
        graph.replay()
        print("after:", out.tolist())
        free = torch.cuda.memory_allocated()
        del graph, y
        torch.cuda.empty_cache()
        print("freed:", torch.cuda.memory_allocated() < free)
    """).values()
    assert values["before"] == str([0] * 8)
    assert values["after"] == str(list(range(8)))
    assert values["freed"] == "True"


def test_bad_settings_are_named(simulate):
    for gpus, words in (("A1000", "is no GPU"), ("1MiB", "a context takes 424.00 MiB of it"), ("A100:huge", "is no GPU")):
        result = simulate("import torch; torch.cuda.init()", gpus=gpus, check=False)
        assert result.status == 2
        assert result.err.startswith(f'simgpu: SIMGPU_GPUS: "{gpus}"')
        assert words in result.err
    result = simulate("import torch; torch.cuda.init()", check=False, SIMGPU_CONTEXT="20GiB")
    assert result.status == 2
    assert 'SIMGPU_GPUS: "16GiB" is too small: a context takes 20.00 GiB of it' in result.err


SHARING = """
import sys
import torch
import torch.multiprocessing as mp

def child(questions, answers):
    tensor = questions.get()
    answers.put((tensor.tolist(), torch.cuda.memory_allocated()))
    tensor.fill_(9)
    torch.cuda.synchronize()
    answers.put(torch.cuda.mem_get_info()[0])
    questions.get()
    del tensor

if __name__ == "__main__":
    mp.set_start_method("spawn")
    questions, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=child, args=(questions, answers))
    process.start()
    tensor = torch.arange(6).cuda()
    rest = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    questions.put(tensor)
    print("seen:", answers.get())
    print("free there:", answers.get() - torch.cuda.mem_get_info()[0] >= 100 << 20)
    print("written there:", tensor.tolist())
    questions.put(None)
    process.join()
    print("status:", process.exitcode)
"""


@pytest.mark.parametrize("settings, gapless", [("", False), ("expandable_segments:True", False), ("", True)],
                         ids=["native", "expandable", "gapless"])
@pytest.mark.thorough(but=1)
def test_memory_is_shared_between_processes(simulate, tmp_path, settings, gapless):
    # Sent to another process, memory is seen and written there, and not charged a second time.
    program = tmp_path / "sharing.py"
    program.write_text(SHARING)
    values = simulate(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", gapless=gapless,
                      PYTORCH_CUDA_ALLOC_CONF=settings).values()
    assert values == {"seen": "([0, 1, 2, 3, 4, 5], 0)", "free there": "True",
                      "written there": "[9, 9, 9, 9, 9, 9]", "status": "0"}


def test_memory_nodes_of_graphs(simulate):
    # cudaMallocAsync during capture is the graph's own memory: charged as long as the graph lives, and
    # used again by what is allocated later in it.
    values = simulate("""
        import torch
        free = lambda: torch.cuda.mem_get_info()[0]
        torch.zeros(1, device="cuda")
        stream = torch.cuda.Stream()
        before = free()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(3):
                torch.empty(100 << 20, dtype=torch.uint8, device="cuda").zero_()
            kept = torch.empty(50 << 20, dtype=torch.uint8, device="cuda").zero_()
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        print("captured:", (before - free()) >> 20)
        del kept, graph
        torch.cuda.synchronize()
        print("after:", (before - free()) >> 20)
        """, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync").values()
    assert int(values["captured"]) in (100, 102)  # 2.11 keeps the generator's state there too
    assert values["after"] == "0"


def test_visible_devices(simulate):
    code = """
        import torch
        print("names:", [torch.cuda.get_device_properties(i).total_memory >> 30
                         for i in range(torch.cuda.device_count())])
        if torch.cuda.device_count():
            torch.zeros(1 << 28, device="cuda")
            print("free:", torch.cuda.mem_get_info()[1] >> 30)
        """
    for visible, names in (("1", "[8]"), ("2,0", "[12, 16]"), ("", "[]"), ("0,7", "[16]")):
        values = simulate(code, gpus="16GiB,8GiB,12GiB", CUDA_VISIBLE_DEVICES=visible).values()
        assert values["names"] == names


@pytest.mark.parametrize("mode, refused", [("global", True), ("thread_local", True), ("relaxed", False)])
def test_calls_that_could_wait_are_refused_in_a_capture(simulate, mode, refused):
    result = simulate(f"""
        import torch
        event = torch.cuda.Event()
        event.record()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="{mode}"):
                torch.ones(10, device="cuda").add_(1)
                event.query()
            print("captured: yes")
        except torch.AcceleratorError as error:
            print("captured: no,", str(error).splitlines()[0])
        """)
    assert result.values()["captured"].startswith("no, CUDA error: operation failed due to a previous error" if refused else "yes")


def test_cublas_copies_vectors_and_matrices(simulate):
    values = simulate("""
        import ctypes
        import torch
        cublas = ctypes.CDLL("libcublas.so.13")
        at = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        host = torch.arange(20.0)
        vector = torch.zeros(5, device="cuda")
        print("set:", cublas.cublasSetVector(5, 4, at(host), 2, at(vector), 1), vector.tolist())
        matrix = torch.zeros(2, 3, device="cuda")  # 3 rows, 2 columns
        print("set a part:", cublas.cublasSetMatrix(3, 2, 4, at(host), 10, at(matrix), 3), matrix.tolist())
        back = torch.zeros(8)
        print("get:", cublas.cublasGetMatrixAsync(3, 2, 4, at(matrix), 3, at(back), 4, None), back.tolist())
        print("too narrow:", cublas.cublasGetMatrix(3, 2, 4, at(matrix), 2, at(back), 4))
    """).values()
    assert values == {"set": "0 [0.0, 2.0, 4.0, 6.0, 8.0]", "set a part": "0 [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]",
                      "get": "0 [0.0, 1.0, 2.0, 0.0, 10.0, 11.0, 12.0, 0.0]", "too narrow": "7"}
