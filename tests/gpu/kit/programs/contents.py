"""A random program under gapless whose tensors keep what kernels wrote: several streams, record_stream, graphs.

--simulated: on the simulated GPU only tensors of up to 1,024 numbers are looked at, and none that a graph wrote.
"""
import argparse
import random
import time

import torch

from tell import tell

STREAMS = 4


class Program:
    def __init__(self, seed: int, most_words: int, simulated: bool):
        self.random = random.Random(seed)
        self.most_words, self.simulated = most_words, simulated
        self.streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.live: "list[tuple[torch.Tensor, int, torch.cuda.Stream]]" = []  # and its mark, and who wrote it last
        self.graphs: "list[tuple[torch.cuda.CUDAGraph, torch.Tensor, int]]" = []
        self.marks = self.checks = self.refused = self.replays = 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks * 2654435761 % (1 << 31)

    def size(self) -> int:
        return self.random.choice((self.random.randint(1, 1024), self.random.randint(1, self.most_words // 16),
                                   self.random.randint(1, self.most_words)))

    def check(self, tensor: torch.Tensor, mark: int, stream: torch.cuda.Stream) -> None:
        if self.simulated and tensor.numel() > 1024:
            return
        with torch.cuda.stream(stream):
            good = bool((tensor == mark).all())
        self.checks += 1
        if not good:
            values = tensor.cpu()
            at = int((values != mark).nonzero()[0])
            tell(wrong=[f"{tensor.numel()} words, the one at {at} is {int(values[at])} and not {mark}"])
            raise SystemExit(1)

    def allocate(self) -> None:
        stream, mark = self.random.choice(self.streams), self.mark()
        try:
            with torch.cuda.stream(stream):
                tensor = torch.empty(self.size(), dtype=torch.int32, device="cuda")
                tensor.fill_(mark)
        except torch.OutOfMemoryError:
            self.refused += 1
            for _ in range(len(self.live) // 2):
                self.free()
            return
        self.live.append((tensor, mark, stream))

    def free(self) -> None:
        if self.live:
            self.check(*self.live.pop(self.random.randrange(len(self.live))))

    def use_on_another_stream(self) -> None:
        if not self.live:
            return
        at = self.random.randrange(len(self.live))
        tensor, _, before = self.live[at]
        stream, mark = self.random.choice(self.streams), self.mark()
        stream.wait_stream(before)
        tensor.record_stream(stream)
        with torch.cuda.stream(stream):
            for _ in range(3):
                tensor.fill_(0)
            tensor.fill_(mark)
        if self.random.random() < 0.5:  # freed while it is written there
            del self.live[at]
        else:
            self.live[at] = tensor, mark, stream

    def capture(self) -> None:
        mark = self.mark()
        graph = torch.cuda.CUDAGraph()
        size = min(self.size(), self.most_words // 4)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph):
                temporary = torch.full((size,), mark, dtype=torch.int32, device="cuda")
                kept = temporary + 0
                del temporary
        except torch.OutOfMemoryError:
            self.refused += 1
            return
        self.graphs.append((graph, kept, mark))

    def replay(self) -> None:
        graph, kept, mark = self.random.choice(self.graphs)
        kept.zero_()
        graph.replay()
        if not self.simulated:
            self.check(kept, mark, torch.cuda.current_stream())
        self.replays += 1

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.01 and len(self.graphs) < 4:
            self.capture()
        elif dice < 0.03 and self.graphs:
            self.replay()
        elif dice < 0.033 and self.graphs:
            torch.cuda.synchronize()
            self.graphs.pop(self.random.randrange(len(self.graphs)))
        elif dice < 0.036:
            torch.cuda.empty_cache()
        elif dice < 0.15:
            self.use_on_another_stream()
        elif dice < 0.25 and self.live:
            self.check(*self.random.choice(self.live))
        elif dice < 0.65:
            self.allocate()
        else:
            self.free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--simulated", action="store_true")
    arguments = parser.parse_args()
    torch.zeros(1, device="cuda")
    if torch.cuda.get_allocator_backend() != "gapless":
        raise SystemExit(f"this ran with {torch.cuda.get_allocator_backend()}")
    import gapless
    program = Program(1, 64 << 20, arguments.simulated)
    until, steps = time.monotonic() + arguments.seconds, 0
    while time.monotonic() < until:
        program.step()
        steps += 1
    for tensor, mark, stream in program.live:
        program.check(tensor, mark, stream)
    stats = gapless.memory_stats()
    told = (f"{steps} steps under torch, {program.checks} tensors looked at, {program.refused} requests refused, "
            f"{stats['gapless.windows_made']} windows made, {program.replays} graphs run")
    tell(told=told, peak_reserved=torch.cuda.max_memory_reserved(), peak_allocated=torch.cuda.max_memory_allocated())
    if not program.checks or not stats["gapless.windows_made"]:
        raise SystemExit("it looked at nothing")


if __name__ == "__main__":
    main()
