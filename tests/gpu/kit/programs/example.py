"""example.py FILE [ARGUMENT...]: runs an example, and tells its losses to the bit, its peaks and how long steps take.

The example is not changed: what it computes is seen where it calls torch. Seeds are set and kernels are asked to be
deterministic, so that a program computes the same under every allocator, where its kernels can.
"""
import runpy
import statistics
import sys
import time

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tell import tell


class Watch:
    def __init__(self) -> None:
        self.losses: "list[torch.Tensor]" = []
        self.marks: "dict[str, list[int]]" = {"step": [], "replay": []}
        self.least_free = torch.cuda.mem_get_info()[0]

    def mark(self, what: str) -> None:
        """A step has ended: its work is waited for."""
        torch.cuda.synchronize()
        self.marks[what].append(time.perf_counter_ns())
        self.least_free = min(self.least_free, torch.cuda.mem_get_info()[0])

    def begin(self) -> None:
        backward, replay = torch.Tensor.backward, torch.cuda.CUDAGraph.replay

        def watched_backward(loss: torch.Tensor, *arguments, **options):
            if loss.numel() == 1:
                self.losses.append(loss.detach().clone())
            return backward(loss, *arguments, **options)

        def watched_replay(graph: torch.cuda.CUDAGraph):
            result = replay(graph)
            self.mark("replay")
            return result

        torch.Tensor.backward = watched_backward
        torch.cuda.CUDAGraph.replay = watched_replay
        register_optimizer_step_post_hook(lambda *_: self.mark("step"))

    def step_ns(self) -> "float | None":
        """The median, without the first, of what there were most of."""
        marks = max(self.marks.values(), key=len)
        times = [after - before for before, after in zip(marks, marks[1:])]
        return statistics.median(times[1:] or times) if times else None


def main() -> None:
    path = sys.argv[1]
    sys.argv = sys.argv[1:]
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # programs that read such memory are wrong anyway
    torch.cuda.init()
    watch = Watch()
    watch.begin()
    out_of_memory = None
    begin = time.perf_counter()
    try:
        runpy.run_path(path, run_name="__main__")
    except torch.OutOfMemoryError as error:
        out_of_memory = str(error).splitlines()[0][:200]
    seconds = time.perf_counter() - begin
    total = torch.cuda.mem_get_info()[1]
    stats = torch.cuda.memory_stats()
    tell(backend=torch.cuda.get_allocator_backend(), out_of_memory=out_of_memory, seconds_without_import=seconds,
         losses=[float(loss.float()).hex() for loss in watch.losses],
         losses_read=[round(float(loss.float()), 6) for loss in watch.losses],
         step_ns=watch.step_ns(), steps={name: len(marks) for name, marks in watch.marks.items()},
         peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved(),
         peak_used=total - watch.least_free, retries=stats.get("num_alloc_retries", 0), failed=stats.get("num_ooms", 0))


if __name__ == "__main__":
    main()
