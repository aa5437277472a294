"""Of a kernel that comes in several configurations (triton.autotune) the first that compiles is taken; watch_torch.py's
names are here.

    pruned   BLOCK 32   BLOCK 64         BLOCK 128
    tried    no room    0.1 ms, taken    -            36 of them took 100 s to compile

Which is the quickest no simulated GPU can show, and what the trial takes of memory (a buffer that clears the cache) it
takes for one as for all.
"""
import importlib.abc
import importlib.machinery
import math
import sys

_TUNER = "triton.runtime.autotuner"


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


class _AsItIsImported(importlib.abc.MetaPathFinder):
    """Programs that have no such kernels do not import it, and some ask for the module without importing it."""

    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == _TUNER else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _quietly(_takes_the_first)(module)

        spec.loader.exec_module = exec_module
        return spec


if _TUNER in sys.modules:
    _takes_the_first(sys.modules[_TUNER])
else:
    sys.meta_path.insert(0, _AsItIsImported())
