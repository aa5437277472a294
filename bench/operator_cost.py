"""What an operator on a simulated GPU takes of the host, in microseconds: the least of 100 means of 300 calls each.

    SIMULATED=$(ls build/release/lib/simgpu/*.so* | tr '\\n' ':')
    LD_PRELOAD=$SIMULATED .venv-torch-2.11/bin/python bench/operator_cost.py

Once more with copies of those libraries in a folder of their own, without its folder "torch", it is the cost where no
numbers are computed.
"""
import time

import torch

CALLS, MEANS = 300, 100


def microseconds(call) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


x, y, out = (torch.empty(1000, 1000, device="cuda") for _ in range(3))
OPERATORS = {"x + y": lambda: x + y, "x.mul_(y)": lambda: x.mul_(y), "relu": lambda: torch.relu(x), "x @ y": lambda: x @ y,
             "x.sum(-1)": lambda: x.sum(-1), "add(out=)": lambda: torch.add(x, y, out=out)}
with torch.no_grad():
    for name, call in OPERATORS.items():
        print(f"{name:10} {min(microseconds(call) for _ in range(MEANS)):6.2f}")
