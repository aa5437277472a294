"""Tensors that several streams use, rightly and wrongly, under gapless.check_streams(): "name: ok", or what was told.

    python stream_uses.py streams|backward|training
"""
import ctypes
import gc
import sys
import threading

import gapless
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._mode_utils import no_dispatch

MIB = 1 << 20
CASES = {"streams": [], "backward": [], "training": []}
main, side, third = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()


def case(group, *wanted):
    """Of a function that is to be told of these operators, in this order; of none where it is right."""
    def keep(function):
        CASES[group].append((function, list(wanted)))
        return function
    return keep


def block(stream=main):
    with torch.cuda.stream(stream):
        return torch.empty(MIB, dtype=torch.uint8, device="cuda")


def on(stream):
    """On that stream, which waits for the one before, as it should."""
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


# --- one use each ----------------------------------------------------------------------------------------------------------

def one_use(name, wanted, use):
    def run():
        x = torch.empty(MIB, device="cuda")
        with on(side):
            kept = use(x)  # noqa: F841
        del x
        torch.empty(7, device="cuda")  # of other memory than x's
    run.__name__ = name
    CASES["streams"].append((run, [wanted] if wanted else []))


one_use("read", "aten.mul.Tensor", lambda x: x * 2)
one_use("write", "aten.zero_.default", lambda x: x.zero_() is None)
one_use("view", "aten.sum.default", lambda x: x[100:200].view(10, 10).t().sum())
one_use("out", "aten.add.out", lambda x: torch.add(torch.ones(5, device="cuda"), 1, out=x[5:10]) is None)
one_use("to_host", "aten._to_copy.default", lambda x: x.to("cpu", non_blocking=True))
one_use("from_host", "aten.copy_.default", lambda x: x.copy_(torch.zeros(MIB).pin_memory(), non_blocking=True) is None)
one_use("foreach", "aten._foreach_add_.Scalar", lambda x: torch._foreach_add_([torch.ones(3, device="cuda"), x], 1))
one_use("among_many", "aten.cat.default", lambda x: torch.cat([torch.ones(3, device="cuda"), x]))
one_use("shapes_only", None, lambda x: (x.shape, torch.empty_like(x), torch.zeros_like(x), x.new_ones(3), x.detach().chunk(2)) and None)
one_use("resized", None, lambda x: x.resize_(10) is None)
one_use("waited_for_by_the_host", None, lambda x: x.sum().item())
one_use("blocking_copy", None, lambda x: x.cpu())


def inference(name, wanted, use):
    """There, operators that consist of others come whole."""
    one_use(f"inference_{name}", wanted, torch.inference_mode()(use))


inference("copy", "aten.clone.default", lambda x: x.view(1024, 1024).t().reshape(-1))
inference("view", None, lambda x: x.view(1024, 1024).reshape(-1).contiguous().to(torch.float32) is None)
inference("linear", "aten.linear.default", lambda x: nn.functional.linear(x.view(1024, 1024), x.view(1024, 1024)))


def refused(x):
    for wrong in (lambda: torch.add(x, 1, out=torch.empty(3)), lambda: x.expand(100_000, MIB).clone()):
        try:
            wrong()
        except RuntimeError:
            pass
        else:
            raise AssertionError("nothing was refused")


one_use("refused", None, refused)


# --- what orders streams ---------------------------------------------------------------------------------------------------

def order(name, told, between, after=lambda: None):
    """`between` the use and the free, `after` the free and before memory is given out again."""
    def run():
        x = block()
        with on(side):
            kept = x + 1  # noqa: F841
        between(x)
        del x
        after()
        block()
    run.__name__ = name
    CASES["streams"].append((run, ["aten.add.Tensor"] if told else []))


def polled(x):
    event = side.record_event()
    while not event.query():
        pass


def timed(x):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(side)
    end.record(side)
    torch.cuda._sleep(1)
    while True:
        try:
            return begin.elapsed_time(end)
        except (RuntimeError, ValueError):
            pass


EARLY = torch.cuda.Event()
EARLY.record(side)
order("forgotten", True, lambda x: None)
order("recorded", False, lambda x: x.record_stream(side))
order("recorded_of_a_view", False, lambda x: x[5:].record_stream(side))
order("recorded_for_another", True, lambda x: x.record_stream(third))
order("recorded_unseen", False, lambda x: unseen(x))
order("waited", False, lambda x: main.wait_stream(side))
order("waited_by_event", False, lambda x: main.wait_event(side.record_event()))
order("waited_for_too_little", True, lambda x: main.wait_event(EARLY))
order("waited_on_another", True, lambda x: third.wait_stream(side))
order("waited_through_another", False, lambda x: (third.wait_stream(side), main.wait_stream(third)))
order("wrong_direction", True, lambda x: side.wait_stream(main))
order("host_waited_for_stream", False, lambda x: side.synchronize())
order("host_waited_for_event", False, lambda x: side.record_event().synchronize())
order("host_waited_for_device", False, lambda x: torch.cuda.synchronize())
order("polled", False, polled)
order("polled_stream", False, lambda x: [side.query() for _ in iter(side.query, True)])
order("timed", False, timed)
order("waited_after_the_free", False, lambda x: None, lambda: main.wait_stream(side))
order("waited_after_the_next_allocation", True, lambda x: None, lambda: (block(), main.wait_stream(side)))


def unseen(x):
    """Where no mode sees it: as FSDP does, and in a thread of the program's."""
    with no_dispatch():
        x.record_stream(side)
    thread = threading.Thread(target=x.record_stream, args=(third,))
    thread.start()
    thread.join()


@case("streams", "aten.add.Tensor", "aten.mul.Tensor")
def two_streams():
    x = block()
    with on(side):
        kept = x + 1  # noqa: F841
    with on(third):
        kept = x * 2  # noqa: F841
    del x
    block()


@case("streams", "aten.add.Tensor")
def allocated_on_the_other():
    x = block(side)
    main.wait_stream(side)
    kept = x + 1  # noqa: F841
    del x
    block(side)


@case("streams")
def allocated_on_the_other_and_no_memory_since():
    x = block(side)
    main.wait_stream(side)
    kept = x + 1  # noqa: F841
    del x
    block()


@case("streams", "aten.add.Tensor")
def last_thing_of_the_check():
    x = block()
    with on(side):
        kept = x + 1  # noqa: F841
    del x


@case("streams")
def waited_by_the_next_round():
    for _ in range(2):
        main.wait_stream(side)
        x = block()
        with on(side):
            kept = x + 1  # noqa: F841
        del x


@case("streams")
def host_waited_before_the_stream_was_seen():
    fresh = torch.cuda.Stream()
    x = block(fresh)
    with torch.cuda.stream(side):
        kept = x + 1  # noqa: F841
    side.synchronize()
    del x
    block(fresh)


@case("streams", "aten.add.Tensor")
def recorded_for_another_in_a_thread():
    x = block()
    for stream in (side, third):
        with on(stream):
            kept = x + 1 if stream is side else x * 2  # noqa: F841
    thread = threading.Thread(target=x.record_stream, args=(third,))
    thread.start()
    thread.join()
    del x, thread
    block()


@case("streams", "aten.add.Tensor")
def one_of_many():
    blocks = [block() for _ in range(6)]
    with on(side):
        for index, x in enumerate(blocks):
            kept = x + 1  # noqa: F841
            if index != 3:
                x.record_stream(side)
    del x
    blocks.clear()
    block()


@case("streams", "aten.add.Tensor")
def a_view_was_the_last_to_go():
    x = block()
    view = x[10:]
    del x
    with on(side):
        kept = view + 1  # noqa: F841
    del view
    block()


@case("streams", "aten.add.Tensor")
def within_a_wrapper():
    x = TwoTensor(block(), block())
    with on(side):
        kept = x + 1  # noqa: F841
    del x
    block()


@case("streams")
def without_memory():
    with FakeTensorMode():
        x = torch.empty(MIB, device="cuda")
    with on(side):
        kept = x + 1  # noqa: F841
    sparse = torch.eye(3, device="cuda").to_sparse()
    with on(side):
        kept = sparse * 2, sparse.values() * 2  # noqa: F841
    main.wait_stream(side)


BEFORE = [block()]


@case("streams")
def allocated_before_the_check():
    with on(side):
        kept = BEFORE[0] + 1  # noqa: F841
    BEFORE.clear()
    block()


@case("streams")
def made_by_another_library():
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    handle = ctypes.c_void_p()
    assert runtime.cudaStreamCreate(ctypes.byref(handle)) == 0  # the default stream waits for it, and it for that one
    other = torch.cuda.ExternalStream(handle.value)
    x, y = block(), block(other)
    with torch.cuda.stream(other):
        kept = x + 1  # noqa: F841
    kept = y + 1  # noqa: F841
    del x, y
    block(), block(other)


@case("streams")
def captured():
    graph, x, warm = torch.cuda.CUDAGraph(), block(), torch.cuda.Stream()
    with on(warm):
        for _ in range(3):
            y = x * 2
    main.wait_stream(warm)
    with torch.cuda.graph(graph):
        y = x * 2
        z = y + 1
        del y
    graph.replay()
    kept = z + 1  # noqa: F841
    del z
    second = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.graph.default_capture_stream):  # is given other memory
        second.capture_begin()
        y = x * 2
        second.capture_end()
    torch.cuda.synchronize()
    del x, y
    graph.reset()
    block()


@case("streams")
def between_devices():
    x = torch.empty(MIB, device="cuda:0")
    y = x.to("cuda:1", non_blocking=True)
    del x
    torch.empty(MIB, device="cuda:0")
    z = y.to("cuda:0", non_blocking=True)
    del y
    torch.empty(MIB, device="cuda:1")
    z += 1
    there = torch.empty(MIB, device="cuda:1")
    with on(side):
        here = torch.empty(MIB, device="cuda:0")
        torch._foreach_add_([here, there], 1)  # each on the current stream of its GPU
    del there
    torch.empty(MIB, device="cuda:1")


@case("streams", "aten.add.Tensor")
def on_the_second_device():
    with torch.cuda.device(1):
        other = torch.cuda.Stream()
        x = torch.empty(MIB, device="cuda")
        with on(other):
            kept = x + 1  # noqa: F841
        del x
        torch.empty(7, device="cuda")


# --- the backward pass -----------------------------------------------------------------------------------------------------

def network():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 64)).cuda()


def batch():
    return torch.randn(8, 64, device="cuda")


@case("backward", "aten.mul.Tensor")
def saved_for_backward():
    weight, other = (nn.Parameter(torch.ones(MIB, device="cuda")) for _ in range(2))
    x, h = torch.empty(MIB, device="cuda"), other * 2
    with on(side):
        y = weight * x
    main.wait_stream(side)
    del x  # saved: it goes in the backward pass, when side has read it once more
    (y + h.exp()).sum().backward()


@case("backward")
def forward_elsewhere():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with on(side):
            loss = model(batch()).square().mean()
        main.wait_stream(side)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


@case("backward")
def two_branches():
    left, right, x = network(), network(), batch().requires_grad_()
    optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()])
    for _ in range(3):
        with on(side):
            first = left(x).square().mean()
        with on(third):
            second = right(x).square().mean()
        main.wait_stream(side)
        main.wait_stream(third)
        first.record_stream(main)
        second.record_stream(main)
        (first + second).backward()
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None
    torch.cuda.synchronize()


@case("backward")
def gradient_to_another_stream():
    """The backward pass gives side what it allocated on the default stream, and records that where no Python sees it."""
    weight, other = (nn.Parameter(torch.ones(MIB, device="cuda")) for _ in range(2))
    early = other.exp()
    with on(side):
        y = weight.sin()
    main.wait_stream(side)
    (y * early).sum().backward()
    torch.cuda.synchronize()


# --- training --------------------------------------------------------------------------------------------------------------

class Prefetcher:
    """The next batch is copied on a stream of its own."""

    def __init__(self, loader, recorded):
        self._loader, self._recorded, self._stream = iter(loader), recorded, torch.cuda.Stream()
        self._load()

    def _load(self):
        found = next(self._loader, None)
        with torch.cuda.stream(self._stream):
            self._next = None if found is None else found[0].to("cuda", non_blocking=True).float()

    def __iter__(self):
        while self._next is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            given = self._next
            if self._recorded:
                given.record_stream(torch.cuda.current_stream())
            self._load()
            yield given
            del given


def loader(workers=0):
    data = torch.utils.data.TensorDataset(torch.randn(64, 64))
    return torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True, num_workers=workers)


def train(batches, make=torch.optim.AdamW, **options):
    model = network()
    optimizer = make(model.parameters(), **options)
    for x in batches:
        model(x).square().mean().backward()
        del x
        optimizer.step()
        optimizer.zero_grad()


@case("training")
def optimizers():
    for make, options in ((torch.optim.AdamW, {"fused": True}), (torch.optim.Adam, {"foreach": True}),
                          (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "foreach": False}),
                          (torch.optim.AdamW, {"capturable": True})):
        train((batch() for _ in range(3)), make, **options)


@case("training")
def prefetched():
    train(Prefetcher(loader(workers=1), recorded=True))


@case("training", "aten.mm.default")
def prefetched_without_record_stream():
    train(Prefetcher(loader(), recorded=False))


@case("training")
def pinned():
    train(x.cuda(non_blocking=True) for x, in loader(workers=1))


@case("training")
def all_on_another_stream():
    with on(side):
        train(batch() for _ in range(3))
    main.wait_stream(side)


@case("training")
def checkpointed_and_scaled():
    model, scaler = network(), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            loss = torch.utils.checkpoint.checkpoint(model, batch().requires_grad_(), use_reentrant=False).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@case("training")
def offloaded():
    copies, kept = torch.cuda.Stream(), []
    for _ in range(4):
        x = torch.randn(MIB, device="cuda")
        host = torch.empty(MIB, pin_memory=True)
        with on(copies):
            host.copy_(x, non_blocking=True)
        x.record_stream(copies)
        kept.append(host)
        del x
    copies.synchronize()
    for host in kept:
        with torch.cuda.stream(copies):
            x = host.to("cuda", non_blocking=True)
        main.wait_stream(copies)
        x.record_stream(main)
        x.mul_(2)


@case("training")
def graphed():
    model = torch.cuda.make_graphed_callables(network(), (batch().requires_grad_(),))
    for _ in range(3):
        model(batch().requires_grad_()).sum().backward()


@case("training")
def several_gpus():
    model = nn.DataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(24, 64).pin_memory()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


for function, wanted in CASES[sys.argv[1]]:
    gc.collect()
    torch.cuda.synchronize()
    with gapless.check_streams(say=lambda sentence: None) as found:
        function()
    told = [mistake.operator for mistake in found.mistakes]
    print(f"{function.__name__}: {'ok' if told == wanted else list(map(str, found.mistakes))}", flush=True)
