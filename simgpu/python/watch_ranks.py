"""Run by watch_torch.py where some ranks do not run (simgpu/process/ranks.h): what torch.distributed would wait
for them in.

    new_group(ranks)    splits the world's communicator, which takes a word from every rank
                        -> a communicator of its own instead, as where no device is bound: the same memory
    gloo                connects to every rank, and would wait for half an hour
                        -> an error that says so
"""
from torch.distributed import distributed_c10d

if hasattr(distributed_c10d, "_get_split_source"):
    distributed_c10d._get_split_source = lambda _group: None

if hasattr(distributed_c10d, "ProcessGroupGloo"):
    class _Gloo(distributed_c10d.ProcessGroupGloo):
        def __init__(self, store, rank, size, *words, **named):
            if size > 1:
                raise RuntimeError(
                    f"gapless --ranks: a group of {size} ranks with gloo waits for those that do not run: use "
                    "init_process_group('nccl'), or run all ranks")
            super().__init__(store, rank, size, *words, **named)

    distributed_c10d.ProcessGroupGloo = _Gloo
