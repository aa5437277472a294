"""A random program of tensors, the same for every allocator: random_program.py SEED STEPS [any].

After each step it prints the statistics that do not speak of segments, as one line of JSON. `any`: blocks
of any size; else large ones are multiples of 2 MiB, of which the native allocator's segments leave no
rest that it would count as allocated.
"""
import gc
import json
import random
import sys

import torch

MIB = 1 << 20
FIELDS = ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes")


def stats() -> dict[str, int]:
    found = torch.cuda.memory_stats()
    return {name: value for name, value in found.items()
            if name.split(".")[0] in FIELDS or name == "num_ooms"}


class Program:
    def __init__(self, seed: int, any_size: bool):
        self.random = random.Random(seed)
        self.any_size = any_size
        self.live: list[torch.Tensor] = []
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
        self.pools: list[torch.cuda.MemPool] = []
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def size(self) -> int:
        kind = self.random.random()
        if kind < 0.6:
            return self.random.randint(1, 1 << self.random.randint(1, 20))
        if self.any_size:
            return self.random.randint(MIB + 1, 48 * MIB)
        return 2 * MIB * self.random.randint(1, 24) - self.random.randint(0, 511)

    def tensor(self) -> torch.Tensor:
        return torch.empty(self.size(), dtype=torch.uint8, device="cuda")

    def pick(self) -> torch.Tensor | None:
        return self.random.choice(self.live) if self.live else None

    # --- the operations ---------------------------------------------------------------------------

    def allocate(self):
        with torch.cuda.stream(self.random.choice(self.streams)):
            self.live.append(self.tensor())

    def free(self):
        if self.live:
            self.live.pop(self.random.randrange(len(self.live)))

    def view(self):
        if (tensor := self.pick()) is not None:
            self.live.append(tensor[self.random.randrange(tensor.numel()):])

    def use_on_another_stream(self):
        if (tensor := self.pick()) is not None:
            tensor.record_stream(self.random.choice(self.streams))

    def temporaries(self):
        made = [self.tensor() for _ in range(self.random.randint(1, 6))]
        while made:
            made.pop(self.random.randrange(len(made)))

    def use_pool(self):
        if not self.pools or self.random.random() < 0.3:
            self.pools.append(torch.cuda.MemPool())
        with torch.cuda.use_mem_pool(self.random.choice(self.pools)):
            self.live.append(self.tensor())
            self.tensor()

    def drop_pool(self):
        if self.pools:
            self.pools.pop(self.random.randrange(len(self.pools)))
            gc.collect()

    def capture(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = self.tensor()
            kept.zero_()
            self.tensor().zero_()
        self.live.append(kept)
        self.graphs.append(graph)

    def drop_graph(self):
        if self.graphs:
            self.graphs.pop(self.random.randrange(len(self.graphs)))

    def empty_cache(self):
        torch.cuda.empty_cache()

    def reset(self):
        self.random.choice([torch.cuda.reset_peak_memory_stats, torch.cuda.reset_accumulated_memory_stats])()

    def ask_too_much(self):
        try:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass

    def step(self) -> str:
        weights = {self.allocate: 40, self.free: 36, self.view: 6, self.use_on_another_stream: 8, self.temporaries: 12,
                   self.use_pool: 5, self.drop_pool: 2, self.capture: 1, self.drop_graph: 1, self.empty_cache: 1,
                   self.reset: 1, self.ask_too_much: 1}
        action = self.random.choices(list(weights), list(weights.values()))[0]
        action()
        return action.__name__


def main() -> None:
    seed, steps = int(sys.argv[1]), int(sys.argv[2])
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    program = Program(seed, "any" in sys.argv)
    for _ in range(steps):
        name = program.step()
        print(json.dumps({"step": name, **stats()}))


main()
