#!/usr/bin/env bash
# gpu_kit.sh [FOLDER]: all that is needed on a machine with a GPU and little else, in a folder (gpu-kit where none is
# named): docs/gpu-kit.md. Fails where it would not start there: what its files may ask for is checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
kit=${1:-gpu-kit}
most_mib=60
build=build/release
python=.venv-torch-2.11/bin/python
packages=$(echo "$PWD"/.venv-torch-2.11/lib/python3*/site-packages)
tools/setup/torch.sh 2.11
# PyTorch's own tests, where they can be had: third-party text, which only the folder holds.
tests/conformance/fetch.sh || echo "gpu_kit.sh: without PyTorch's own tests"
cmake --preset release -DGAPLESS_TORCH_DIR="$packages/torch" > /dev/null
cmake --build --preset release --target gpu_kit -- --quiet

rm -rf "$kit"
mkdir -p "$kit"/{bin,lib,python,examples,traces,upstream}
cp "$build"/kit/{gapless,gpu_test} "$kit/bin/"
cp "$build"/kit/*.so "$kit/lib/"
cp -r tests/gpu/kit/{run,gpukit,programs} "$kit/"
cp tests/torch/programs/mistakes.py "$kit/programs/"
cp -r torch_plugin/python/gapless "$kit/python/"
cp examples/*.py "$kit/examples/"
cp examples/traces/{tiny,t5-small-varlen}.gtrace "$kit/traces/"
cp tests/conformance/{run.py,test_newer.py,native-2.11.txt,exceptions-2.11.txt} "$kit/upstream/"
if [ -e .conformance/test_cuda.py ]; then
  cp .conformance/test_cuda.py "$kit/upstream/"
  # What it imports and a machine with torch may not have; psutil's library is for any version of Python.
  cp -r "$packages"/{expecttest,psutil} "$kit/upstream/"
fi
find "$kit" -name __pycache__ -prune -exec rm -rf {} +
{ git describe --always --dirty 2> /dev/null || echo unknown; } > "$kit/version.txt"

# torch is there: its libraries, and libstdc++ with it.
python3 tools/setup/old_libraries.py check "$kit"/bin/* "$kit"/lib/libgapless_{preload,kernels}.so --without libstdc++.so.6
python3 tools/setup/old_libraries.py check "$kit"/lib/libgapless_torch-*.so --may libc10.so libc10_cuda.so
find "$kit/upstream" -name '*.so' -exec python3 tools/setup/old_libraries.py check {} +
size_mib=$(du -sm "$kit" | cut -f 1)
if [ "$size_mib" -ge "$most_mib" ]; then
  echo "gpu_kit.sh: $kit takes $size_mib MiB, $most_mib and more" >&2
  exit 1
fi
echo "$kit: $size_mib MiB, for glibc 2.28 and newer, torch 2.11. There: $kit/run"
