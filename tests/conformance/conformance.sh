#!/usr/bin/env bash
# conformance.sh [VERSION...]: PyTorch's own allocator tests, and ours of what is newer than those, on
# the simulated GPU with the native allocator. Exit status 1 where a test that must pass does not.
set -uo pipefail
cd "$(dirname "$0")/../.."
versions=("$@")
if [ ${#versions[@]} = 0 ]; then versions=(2.11 2.15); fi
tests/conformance/fetch.sh || exit 1
failed=0
LD_PRELOAD_LIBRARIES=$(printf '%s:' "$PWD"/build/release/lib/simgpu/*.so*)
for version in "${versions[@]}"; do
  python=.venv-torch-$version/bin/python
  # A size that fractions divide well, and what a context takes: some tests reckon with both.
  # In CI PyTorch's tests want a package for their reports.
  simulated() { env -u CI SIMGPU_GPUS=80GiB SIMGPU_CONTEXT=512MiB LD_PRELOAD=$LD_PRELOAD_LIBRARIES "$python" "$@"; }
  echo "torch $version, native allocator: test_cuda.py"
  simulated tests/conformance/run.py .conformance --list "tests/conformance/native-$version.txt" || failed=1
  echo "torch $version, native allocator: test_newer.py"
  simulated tests/conformance/run.py tests/conformance --module test_newer --all || failed=1
  echo "torch $version, native allocator: test_cuda_trace.py"
  simulated .conformance/test_cuda_trace.py 2>&1 | tail -n 3 | tr '\n' ' '
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  echo
done
exit $failed
