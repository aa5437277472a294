#!/usr/bin/env python3
"""Draws docs/pictures/streams.svg: memory reserved over live against time lost, by families of programs.

    for b in 0 1 2 3 5 10 20 30; do
      streams_bench --iterations 24 --allocator gapless --settings stream_budget:$b --json b$b.json
    done
    bench/streams/plot.py b*.json > docs/pictures/streams.svg
"""
import json
import statistics
import sys

FAMILIES = [  # (prefix, name, colour); the first that fits
    ("offload-sync", "offloading, the host waits each step", "#1b9e77"),
    ("offload-10", "offloading, ten streams", "#d95f02"),
    ("offload", "offloading, 1-3 side streams", "#7570b3"),
    ("fsdp", "gather and reduce", "#e7298a"),
    ("serve", "serving, 2 and 4 streams", "#666666"),
]
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 360, 60, 50
MOST_OVER, MOST_LOST = 30, 5


def points(files: list[str]) -> dict[str, list[tuple[float, float]]]:
    """By family: (overhead %, time lost %), the means of its programs, one pair for each file."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for _, name, _ in FAMILIES}
    for file in files:
        by_family: dict[str, list[dict]] = {}
        for result in json.load(open(file)):
            name = next(n for prefix, n, _ in FAMILIES if result["program"].startswith(prefix))
            by_family.setdefault(name, []).append(result)
        for name, results in by_family.items():
            found[name].append(
                tuple(statistics.mean(r[key] for r in results) for key in ("overhead_percent", "lost_percent")))
    return {name: sorted(pairs) for name, pairs in found.items()}


def x(over: float) -> float:
    return LEFT + (WIDTH - LEFT - 20) * over / MOST_OVER


def y(lost: float) -> float:
    return (HEIGHT - BOTTOM) * (1 - lost / MOST_LOST) + 10


def main(files: list[str]) -> None:
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 20}" font-family="sans-serif" '
          'font-size="12"><rect width="100%" height="100%" fill="white"/>')
    for over in range(0, MOST_OVER + 1, 5):
        print(f'<line x1="{x(over)}" x2="{x(over)}" y1="{y(0)}" y2="{y(MOST_LOST)}" stroke="#ddd"/>'
              f'<text x="{x(over)}" y="{y(0) + 18}" text-anchor="middle">{over} %</text>')
    for lost in range(MOST_LOST + 1):
        print(f'<line x1="{x(0)}" x2="{x(MOST_OVER)}" y1="{y(lost)}" y2="{y(lost)}" stroke="#ddd"/>'
              f'<text x="{LEFT - 8}" y="{y(lost) + 4}" text-anchor="end">{lost} %</text>')
    print(f'<text x="{x(MOST_OVER / 2)}" y="{y(0) + 40}" text-anchor="middle">memory reserved over live at its '
          'peak</text>'
          f'<text transform="translate(16 {y(MOST_LOST / 2)}) rotate(-90)" text-anchor="middle">time lost</text>')
    for place, ((_, name, colour), pairs) in enumerate(zip(FAMILIES, points(files).values())):
        line = " ".join(f"{x(over):.1f},{y(lost):.1f}" for over, lost in pairs)
        print(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for over, lost in pairs:
            print(f'<circle cx="{x(over):.1f}" cy="{y(lost):.1f}" r="3" fill="{colour}"/>')
        print(f'<rect x="{x(17)}" y="{y(4.8) + 18 * place}" width="12" height="3" fill="{colour}"/>'
              f'<text x="{x(17) + 18}" y="{y(4.8) + 18 * place + 6}">{name}</text>')
    print("</svg>")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    main(sys.argv[1:])
