"""DeepSpeed's ZeRO stages with and without offload, run by torchrun on two ranks: each rank prints
"RANK CASE: [parameters, peak, allocated after the steps, pinned]".

One process for all cases: each import of DeepSpeed takes seconds.
"""
import gc
import os
import random
import time

import deepspeed
import torch

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deepspeed.init_distributed()
WIDTH, LAYERS = 1024, 4


def settled() -> int:
    """What stays allocated. An engine is a cycle of references, and gc.collect() does nothing while another thread collects."""
    last, now = -1, 0
    while now != last:
        time.sleep(0.1)
        gc.collect()
        last, now = now, torch.cuda.memory_allocated()
    return now


def train(stage: int, offload: tuple = (), pin: bool = False, steps: int = 2) -> list[int]:
    """What a rank has: the memory before is given back."""
    before = settled()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    zero = {"stage": stage, "reduce_bucket_size": WIDTH * WIDTH, "allgather_bucket_size": WIDTH * WIDTH,
            "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0}
    for what in offload:
        zero[f"offload_{what}"] = {"device": "cpu", "pin_memory": pin}
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "bf16": {"enabled": True},
                "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    random.seed(0)
    with deepspeed.zero.Init(config_dict_or_path=settings, enabled=stage == 3, dtype=torch.bfloat16):
        model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), foreach=False),
                                      config=settings)
    for _ in range(steps):
        loss = engine(torch.zeros(1, WIDTH, dtype=torch.bfloat16, device="cuda")).float().sum()
        engine.backward(loss)
        engine.step()
    del loss
    peak, after = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
    engine.destroy()
    return [LAYERS * WIDTH * WIDTH, peak, after]


rank = int(os.environ["RANK"])
train(0)  # what a process takes once, cuBLAS's workspaces among it
for stage, offload, pin in [(0, (), False), (1, (), False), (2, (), False), (3, (), False), (2, ("optimizer",), True),
                            (3, ("optimizer", "param"), True)]:
    print(f"{rank} {stage} {' '.join(offload)}: {train(stage, offload, pin)}", flush=True)
torch.distributed.destroy_process_group()
