"""torch.distributed over NCCL: run by torchrun; each rank prints "RANK name: ok"."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def on_device(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype).to(device)


def collectives():
    """Small messages are real."""
    flag = on_device(rank + 1)
    dist.all_reduce(flag)
    assert flag.item() == world * (world + 1) // 2
    highest = on_device(rank, dtype=torch.float32)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    assert highest.item() == world - 1
    mean = on_device(2.0 * rank, dtype=torch.bfloat16)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert mean.item() == world - 1
    word = on_device(7 if rank == 1 else 0)
    dist.broadcast(word, src=1)
    assert word.item() == 7
    parts = [on_device(0, 0) for _ in range(world)]
    dist.all_gather(parts, on_device(rank, -rank))
    assert [part.tolist() for part in parts] == [[r, -r] for r in range(world)]
    rows = [on_device(0) for _ in range(world)] if rank == 1 else None
    dist.gather(on_device(5 * rank), rows, dst=1)
    assert rows is None or [row.item() for row in rows] == [5 * r for r in range(world)]
    mine = on_device(0)
    dist.reduce_scatter_tensor(mine, on_device(*range(world)))
    assert mine.item() == rank * world
    swapped = on_device(*[0] * world)
    dist.all_to_all_single(swapped, on_device(*[10 * rank + r for r in range(world)]))
    assert swapped.tolist() == [10 * r + rank for r in range(world)]
    dist.barrier()


def sums_beside_what_nobody_knows():
    """A count beside a loss, as trainers add them up over all ranks."""
    loss = (torch.randn(8, 1 << 20, device=device) @ torch.randn(1 << 20, 8, device=device)).mean()
    sums = torch.stack([loss, on_device(rank + 1.0, dtype=torch.float32)[0]])
    parts = [torch.empty_like(sums) for _ in range(world)]
    dist.all_gather(parts, sums)
    assert [part[1].item() for part in parts] == [r + 1 for r in range(world)]
    mixed = sums if rank == 0 else sums.flip(0)  # of each place somebody's number is unknown
    dist.all_reduce(mixed)
    assert mixed.tolist() == [0, 0]
    sums = torch.stack([loss, on_device(rank + 1.0, dtype=torch.float32)[0]])
    dist.all_reduce(sums)
    assert sums[1].item() == world * (world + 1) // 2
    dist.broadcast(sums, src=0)
    assert 3 / sums[1].item()


def letters():
    right, left = (rank + 1) % world, (rank - 1) % world
    got = on_device(0, 0, 0)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, on_device(rank, 5, 6), right),
                                       dist.P2POp(dist.irecv, got, left)])
    for request in requests:
        request.wait()
    assert got.tolist() == [left, 5, 6]


def objects():
    found = [None] * world
    dist.all_gather_object(found, {"rank": rank})
    assert [each["rank"] for each in found] == list(range(world))
    shared = [{"seed": 42}] if rank == 0 else [None]
    dist.broadcast_object_list(shared, src=0, device=device)
    assert shared == [{"seed": 42}]


def groups():
    half = dist.new_group([0, 1])
    if rank < 2:
        flag = on_device(1)
        dist.all_reduce(flag, group=half)
        assert flag.item() == 2
    mesh = dist.init_device_mesh("cuda", (world,)) if hasattr(dist, "init_device_mesh") else None
    assert mesh is None or mesh.size() == world


def data_parallel():
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 8)).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(4, 512, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    before = torch.cuda.memory_allocated()
    large = torch.randn(8, 1 << 20, device=device)  # 32 MiB: only sizes are compared
    dist.all_reduce(large)
    # A thread of NCCL's process group lets go of the 1 MiB of gradients when it comes to it.
    assert abs(torch.cuda.memory_allocated() - before - (32 << 20)) < 4 << 20


def sharded():
    from torch.distributed.fsdp import fully_shard
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(6)]).to(device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(4, 1024, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = 6 * 1024 * 1024 * 4
    states = sum(t.to_local().nbytes for s in optimizer.state.values() for t in s.values() if hasattr(t, "to_local"))
    assert abs(states - 2 * whole / world) < whole / 64, (states, whole)
    assert torch.cuda.memory_allocated() - before < 1.2 * 3 * whole / world + (8 << 20)


def disagreement():
    """Ranks that do different things are told so, all of them. The last: nothing holds afterwards."""
    try:
        dist.all_reduce(torch.zeros(8 + rank, device=device))
        dist.barrier()
    except RuntimeError as error:
        assert "invalid usage" in str(error)
    else:
        raise AssertionError("nobody noticed")


for test in (collectives, sums_beside_what_nobody_knows, letters, objects, groups, data_parallel, sharded, disagreement):
    try:
        test()
        said = "ok"
    except Exception as error:  # told, and on to the next
        said = f"{type(error).__name__} {error}"
    os.write(1, f"{rank} {test.__name__}: {said}\n".encode())  # whole lines: all ranks write there
dist.destroy_process_group()
