"""Of a kernel that comes in several configurations (triton.autotune) the first that compiles is taken; watch_torch.py's
names are here.

    pruned   BLOCK 32   BLOCK 64         BLOCK 128
    tried    no room    0.1 ms, taken    -            36 of them took 100 s to compile

Which is the quickest no simulated GPU can show, and what the trial takes of memory (a buffer that clears the cache) it
takes for one as for all.
"""
import math


def _takes_the_first(module) -> None:
    tuner = getattr(module, "Autotuner", None)
    prune, bench = getattr(tuner, "prune_configs", None), getattr(tuner, "_bench", None)
    if prune is None or bench is None:
        return

    def prune_configs(self, *arguments, **options):
        self._simgpu_taken = False
        return prune(self, *arguments, **options)

    def _bench(self, *arguments, **options):
        if getattr(self, "_simgpu_taken", False):
            return [math.inf] * 3
        times = bench(self, *arguments, **options)
        self._simgpu_taken = math.isfinite(times[0] if isinstance(times, (list, tuple)) else times)
        return times

    tuner.prune_configs, tuner._bench = prune_configs, _bench


_when_imported("triton.runtime.autotuner", _takes_the_first)
