"""Torch's kernels and the driver's mappings: two addresses of one page, and mappings that change beside running work.

--simulated: on the simulated GPU, whose kernels compute at most 4,096 numbers and take no time.
"""
import argparse
import statistics
import threading
import time

import torch

from cuda_driver import MIB, Driver
from tell import tell

PAGE = 2 * MIB
UNIT = 128  # words of 512 B: what two aliases of a page are shared out in


class At:
    """Memory at an address, as torch takes it: int32."""

    def __init__(self, address: int, words: int):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (words,), "typestr": "<i4", "version": 3}


def tensor_at(address: int, words: int) -> torch.Tensor:
    made = torch.as_tensor(At(address, words), device="cuda")
    assert made.data_ptr() == address
    return made


wrong: "list[str]" = []


def check(good: bool, what: str) -> None:
    if not good:
        wrong.append(what)
        tell(wrong=wrong)


def two_addresses(gpu: Driver, words: int, rounds: int) -> None:
    """Kernels that write through one address and read through another, in the order of streams and events."""
    handle = gpu.create(PAGE)
    a, b = (tensor_at(gpu.mapped([handle]), words) for _ in range(2))
    side = torch.cuda.Stream()
    here = torch.cuda.current_stream()
    bad = 0
    for i in range(rounds):
        a.fill_(i)
        b.add_(1)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            a.mul_(2)
        here.wait_stream(side)
        bad += not bool((b == 2 * (i + 1)).all())
    check(bad == 0, f"kernels through two addresses of a page: {bad} of {rounds} rounds read something else")
    tell(two_addresses=rounds)


def two_addresses_at_once(gpu: Driver, words: int, rounds: int) -> None:
    """Two streams write every other 512 B of a page at once, each through an address of its own."""
    handle = gpu.create(PAGE)
    a, b = (tensor_at(gpu.mapped([handle]), words).view(-1, UNIT) for _ in range(2))
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    bad = 0
    for i in range(rounds):
        with torch.cuda.stream(one):
            for _ in range(3):
                a[0::2].fill_(i)
        with torch.cuda.stream(two):
            for _ in range(3):
                b[1::2].fill_(-i)
        torch.cuda.synchronize()
        seen = (b, a)[i % 2]
        bad += not bool((seen[0::2] == i).all()) or not bool((seen[1::2] == -i).all())
    check(bad == 0, f"every other 512 B through two addresses at once: {bad} of {rounds} rounds read something else")
    tell(two_addresses_at_once=rounds)


def a_window(gpu: Driver) -> None:
    """A product in memory whose pages lie in another order is that in memory of torch's, to the bit."""
    pages = [gpu.create(PAGE) for _ in range(16)]
    window = tensor_at(gpu.mapped(pages[::-2] + pages[::2]), 16 * PAGE // 4).view(torch.float32)
    torch.manual_seed(0)
    left, right = torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    inside = window[:2048 * 2048].view(2048, 2048)
    torch.matmul(left, right, out=inside)
    check(torch.equal(inside, left @ right), "a product in scattered pages is not the one in torch's own memory")
    tell(a_window=True)


def host_times(gpu: Driver, pages: int, begin_work, rounds: int) -> "dict[str, float]":
    """Median ns of each call over `pages` mappings, while what begin_work() began runs."""
    handles = [gpu.create(PAGE) for _ in range(pages)]
    address = gpu.reserve(pages * PAGE)
    times = {"map": [], "access": [], "unmap": []}
    for _ in range(rounds):
        begin_work()
        points = [time.perf_counter_ns()]
        for i, handle in enumerate(handles):
            gpu.map(address + i * PAGE, PAGE, handle)
        points.append(time.perf_counter_ns())
        gpu.access(address, pages * PAGE)
        points.append(time.perf_counter_ns())
        gpu.unmap(address, pages * PAGE)
        points.append(time.perf_counter_ns())
        for name, before, after in zip(times, points, points[1:]):
            times[name].append(after - before)
    torch.cuda.synchronize()
    gpu.free(address, pages * PAGE)
    for handle in handles:
        gpu.release(handle)
    return {name: statistics.median(samples) for name, samples in times.items()}


def calls_beside_work(gpu: Driver, rounds: int) -> "list[dict]":
    """Whether the host waits in them for a kernel that runs: 50 ms of it, on another stream."""
    side = torch.cuda.Stream()
    ended_early = []

    def begin_work() -> None:
        if (last := getattr(begin_work, "last", None)) is not None:
            ended_early.append(last.query())
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)  # cycles
            begin_work.last = torch.cuda.Event()
            begin_work.last.record()

    rows = []
    for pages in (1, 64):
        alone = host_times(gpu, pages, torch.cuda.synchronize, rounds)
        beside = host_times(gpu, pages, begin_work, rounds)
        for name in alone:
            rows.append({"what": f"cuMem{name.title()} x{pages}", "alone_ns": alone[name], "beside_ns": beside[name],
                         "found": "waits" if beside[name] > alone[name] + 10e6 else "does not wait"})
    tell(kernel_ended_before_the_calls_did=sum(ended_early), of=len(ended_early))
    return rows


def products(count: int, size: int) -> "tuple[list[float], torch.Tensor]":
    """ms of each of `count` matrix products."""
    torch.manual_seed(0)
    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    result = left @ left
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        torch.matmul(left, left, out=result)
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])], result


def work_beside_calls(gpu: Driver, count: int, size: int, simulated: bool) -> "tuple[list[dict], str]":
    """Whether kernels are held up by mappings that change at other addresses."""
    products(count, size)
    alone, expected = products(count, size)
    stop = threading.Event()
    changes = [0]

    def change() -> None:
        gpu.use()
        handles = [gpu.create(PAGE) for _ in range(64)]
        address = gpu.reserve(64 * PAGE)
        while not stop.is_set():
            for i, handle in enumerate(handles):
                gpu.map(address + i * PAGE, PAGE, handle)
            gpu.access(address, 64 * PAGE)
            gpu.unmap(address, 64 * PAGE)
            changes[0] += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        beside, found = products(count, size)
    finally:
        stop.set()
        thread.join()
    if not simulated:
        check(torch.equal(found, expected), "products beside changing mappings are not those alone")
    rows = [{"what": f"a product, {name}", "alone_ns": of(alone) * 1e6, "beside_ns": of(beside) * 1e6, "found": ""}
            for name, of in (("median", statistics.median), ("longest", max), ("mean", statistics.mean))]
    ratio = statistics.mean(beside) / statistics.mean(alone) if statistics.mean(alone) > 0 else 1.0
    rows[0]["found"] = f"{changes[0]} times 64 pages mapped and unmapped meanwhile"
    return rows, f"products take {ratio:.2f} times as long beside changing mappings"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true")
    simulated = parser.parse_args().simulated
    torch.zeros(1, device="cuda")
    gpu = Driver()
    gpu.use()
    words, rounds = (8 * UNIT, 20) if simulated else (PAGE // 4, 500)
    two_addresses(gpu, words, rounds)
    two_addresses_at_once(gpu, words, rounds)
    if not simulated:
        a_window(gpu)
    rows = calls_beside_work(gpu, 3 if simulated else 15)
    tell(beside=rows)
    more, held_up = work_beside_calls(gpu, 20 if simulated else 1000, 256 if simulated else 4096, simulated)
    tell(beside=rows + more, held_up=held_up)


if __name__ == "__main__":
    main()
