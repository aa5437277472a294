"""Checks that no folder includes what stands above it (docs/design.md, "Layers")."""
import pathlib
import re
import sys

# From the bottom up: a folder may include itself and those before it.
LAYERS = [
    "allocator/base",
    "allocator/driver",
    "allocator/memory",
    "allocator/check",
    "allocator/heap",
    "allocator/stream",
    "allocator/device",
    "allocator/trace",
    "allocator/report",
    "allocator/live",
    "allocator",  # the C API
    "simgpu",
    "kernels",
    "torch_plugin",
    "bench/peers",
    "bench/replay",
    "bench",
    "tools",
    "tests",
]


def layer_of(path: str) -> int:
    matches = [i for i, layer in enumerate(LAYERS) if path.startswith(layer + "/")]
    return max(matches, key=lambda i: len(LAYERS[i])) if matches else -1


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[2]
    wrong = []
    files = 0
    for folder in sorted({layer.split("/")[0] for layer in LAYERS}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in {".h", ".cc", ".cu", ".cuh"}:
                continue
            files += 1
            name = str(file.relative_to(root))
            for number, line in enumerate(file.read_text().splitlines(), 1):
                found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not found:
                    continue
                included = found.group(1)
                if layer_of(included) < 0 or not (root / included).exists():
                    wrong.append(f"{name}:{number}: \"{included}\" is no path from the root")
                elif layer_of(included) > layer_of(name):
                    wrong.append(
                        f"{name}:{number}: {LAYERS[layer_of(name)]} includes "
                        f"{LAYERS[layer_of(included)]}, which stands above it"
                    )
    print("\n".join(wrong) or f"{files} files keep to the layers")
    return 1 if wrong or files == 0 else 0


sys.exit(main())
