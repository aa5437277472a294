"""What is free in a MemPool serves what is beside it, so that a pool costs no more than everything else."""

import pytest


@pytest.mark.parametrize("where", ["beside", "within"])
def test_backward_passes_use_what_a_pool_has_free(simulate, where):
    # The backward pass runs on a thread of its own, to which the pool does not apply, whether the program has left it or not.
    program = f"""
        import torch
        from torch import nn
        pool = torch.cuda.MemPool()
        model = nn.Sequential(*(nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
                                for _ in range(16))).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for batch in (24, 31, 17, 29, 32, 20):
            with torch.cuda.use_mem_pool(pool):
                loss = model(torch.randn(batch, 32, 128, 128, device="cuda")).square().mean()
                if "{where}" == "within":
                    loss.backward()
            if "{where}" == "beside":
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print("allocated:", torch.cuda.max_memory_allocated())
        print("reserved:", torch.cuda.max_memory_reserved())
        """
    values = simulate(program, gapless=True).values()
    allocated, reserved = int(values["allocated"]), int(values["reserved"])
    assert allocated > 1 << 30
    assert reserved <= allocated * 1.01
