#!/usr/bin/env bash
# What `make gpu-kit` left in gpu-kit works where there is nothing else: in a bare container, on the simulated GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 -m unittest discover -q -s tests/gpu/kit

# What this machine's own build asks for is found to be too new, and named.
if said=$(python3 tools/setup/old_libraries.py check build/release/bin/gapless); then
  echo "old_libraries.py finds nothing wrong with a program for this machine alone" >&2
  exit 1
fi
grep -q 'needs libfmt.so' <<< "$said" && grep -q '__libc_start_main is of GLIBC_2.34' <<< "$said"

# The simulated GPU computes what torch's operators compute: the library that does it is not the kit's.
cmake --build --preset release --target simgpu_torch-2.11 -- --quiet

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
BARE_SHOWS="/gpu-kit=gpu-kit /simgpu=build/release/lib/simgpu" tools/setup/bare_container.sh "$out" \
  /gpu-kit/run --simulated /simgpu --quick --budget 1620 --out /out > "$out/said" || status=$?
if [ "$status" = 77 ] && [ -z "${CI:-}" ]; then
  cat "$out/said"
  exit 0
fi
tail -n 40 "$out/said"
[ "$status" = 0 ]
python3 - "$out" << 'END'
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
parts = json.loads((out / "results.json").read_text())["parts"]
assert {name: part["status"] for name, part in parts.items()} == dict.fromkeys(
    ("facts", "driver", "memory", "costs", "model", "kernels", "examples", "upstream", "errors"), "ok"), parts
assert all(step["status"] in ("ok", "skipped") for part in parts.values() for step in part["steps"])
assert parts["driver"]["answers"] > 450 and parts["errors"]["answers"] > 25
assert not parts["driver"]["differences"] and not parts["errors"]["differences"]
runs = parts["examples"]["runs"]
assert [run["backend"] for run in runs] == ["native", "native", "gapless"] * 3
assert all(run["peak_reserved"] >= run["peak_allocated"] > 2**29 and run["losses"] for run in runs)
assert sum(one["outcome"] == "passed" for one in parts["upstream"]["outcomes"].values()) >= 3
assert len(parts["model"]["told"]) == 5
assert [row["type"] for row in parts["kernels"]["losses"]] == ["float32", "float16", "bfloat16"]
assert len(parts["kernels"]["steps"]) == 5
assert max(map(len, (out / "table.txt").read_text().splitlines())) <= 80
profile = json.loads((out / "profile.json").read_text())
assert len(profile["calls"]) == 27, sorted(profile["calls"])
END
