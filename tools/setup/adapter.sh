#!/usr/bin/env bash
# adapter.sh VERSION...: the release build with the adapters for those versions of torch, which
# torch.sh has installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folders=()
for version in "$@"; do folders+=("$(echo "$PWD/.venv-torch-$version"/lib/python3*/site-packages/torch)"); done
list=$(IFS=';'; echo "${folders[*]}")
cmake --preset release -DGAPLESS_TORCH_DIR="$list" >/dev/null
targets=(gapless_preload)
for version in "$@"; do targets+=("gapless_torch-$version" "simgpu_torch-$version"); done
cmake --build --preset release --target "${targets[@]}" -- --quiet
