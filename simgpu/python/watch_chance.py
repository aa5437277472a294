"""Whether another run of the program may draw other numbers; watch_torch.py's names are here.

    random.randint(...)              Python's own generator drew: seeded by the program, or by the system
    np.random.rand(...)              numpy's did, and the program never seeded it
    np.random.default_rng()          nor such a one
    torch.nn.Linear(...)             torch's generator on the CPU did, and the program never seeded it

state["drew_from"] names them at the end. What processes that load data draw, torch seeds for them.
"""
import random
import struct
import sys

import torch

_FRESH = 624  # where Python's generator stands, of 624 words, when it was seeded and nothing was drawn
_FRESH_OF_NUMPY = (623, 624)  # seeded by the system, and by the program
_FRESH_OF_TORCH = (1, 0)  # the same, as its Mersenne Twister has it: words left, and the next one
_LARGEST_WRITTEN = 1 << 32  # a seed beyond that was made by the system


def _numpy_drew() -> bool:
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return False
    own = getattr(numpy.mtrand._rand, "_bit_generator", None)
    if getattr(own, "seed_seq", None) is not None and numpy.get_state(legacy=False)["state"].get("pos") not in _FRESH_OF_NUMPY:
        return True
    (generators,) = _alive(numpy.Generator)
    seeds = [getattr(one.bit_generator.seed_seq, "entropy", None) for one in generators]
    return any(isinstance(seed, int) and seed > _LARGEST_WRITTEN for seed in seeds)


def _torch_drew() -> bool:
    if torch.initial_seed() <= _LARGEST_WRITTEN:
        return False
    left, next_word = struct.unpack_from("=8xi4xQ", bytes(torch.get_rng_state()[:24].tolist()))
    return (left, next_word) != _FRESH_OF_TORCH


@_quietly
def _look_at_generators():
    drew = ["random"] if random.getstate()[1][-1] != _FRESH else []
    drew += ["numpy.random"] if _numpy_drew() else []
    drew += ["torch"] if _torch_drew() else []
    state["drew_from"] = drew


at_end.append(_look_at_generators)
