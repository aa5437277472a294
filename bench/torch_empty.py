"""Time torch.empty and del from Python: what an allocator costs where users feel it.

    gapless dryrun --gpu 80GiB --allocator gapless,native -- python bench/torch_empty.py
    python bench/torch_empty.py --turns 20                          on a GPU, native
    python -m gapless bench/torch_empty.py --turns 20               on a GPU, gapless

One line for each mix of sizes and number of live tensors: nanoseconds for one torch.empty and the
del of an older tensor, the best and the median of some turns. Compare lines of one run only.
"""
import argparse
import random
import statistics
import time

import torch

SIZES = {  # bytes
    "small": [512, 2048, 4096, 65536, 262144],
    "mixed": [512, 4096, 65536, 1 << 20, 3 << 20, 12 << 20],
}


def nanoseconds(live: list, sizes: list[int]) -> float:
    """One turn: each of the live tensors is replaced once, in the given order of sizes."""
    empty, count = torch.empty, len(live)
    begin = time.perf_counter_ns()
    for i, size in enumerate(sizes):
        live[i % count] = empty(size, dtype=torch.uint8, device="cuda")
    return (time.perf_counter_ns() - begin) / len(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=20000, help="in one turn")
    parser.add_argument("--live", type=int, nargs="+", default=[1, 1000, 10000], help="tensors")
    options = parser.parse_args()
    for mix, choices in SIZES.items():
        for count in options.live:
            draw = random.Random(count)
            live = [torch.empty(draw.choice(choices), dtype=torch.uint8, device="cuda")
                    for _ in range(count)]
            sizes = draw.choices(choices, k=options.pairs)
            nanoseconds(live, sizes)  # the first turn fills caches, the allocator's too
            turns = [nanoseconds(live, sizes) for _ in range(options.turns)]
            print(f"{mix}, {count} live: best {min(turns):.0f} ns, "
                  f"median {statistics.median(turns):.0f} ns", flush=True)


if __name__ == "__main__":
    main()
