#!/usr/bin/env bash
# conformance.sh [--gapless-only] [VERSION...]: PyTorch's own allocator tests, and ours of what is
# newer than those, on the simulated GPU: with the native allocator (unless --gapless-only), then with
# gapless. Exit status 1 where a test that must pass does not.
set -uo pipefail
cd "$(dirname "$0")/../.."
native=yes
if [ "${1:-}" = --gapless-only ]; then
  native=no
  shift
fi
versions=("$@")
if [ ${#versions[@]} = 0 ]; then versions=(2.11 2.15); fi
tests/conformance/fetch.sh || exit 1
failed=0
libraries=$PWD/build/release/lib
front=$(printf '%s:' "$libraries"/simgpu/*.so*)

run() { # run VERSION ALLOCATOR PRELOAD [OPTION...]
  local version=$1 allocator=$2 preload=$3
  shift 3
  # A size that fractions divide well, and what a context takes: some tests reckon with both.
  # In CI PyTorch's tests want a package for their reports.
  simulated() {
    env -u CI SIMGPU_GPUS=80GiB SIMGPU_CONTEXT=512MiB LD_PRELOAD="$preload$front" \
      ".venv-torch-$version/bin/python" "$@"
  }
  echo "torch $version, $allocator: test_cuda.py"
  simulated tests/conformance/run.py .conformance --list "tests/conformance/native-$version.txt" "$@" ||
    failed=1
  echo "torch $version, $allocator: test_newer.py"
  simulated tests/conformance/run.py tests/conformance --module test_newer --all || failed=1
  echo "torch $version, $allocator: test_cuda_trace.py"
  simulated .conformance/test_cuda_trace.py 2>&1 | tail -n 3 | tr '\n' ' '
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  echo
}

both() { # both VERSION: with native, then with gapless
  local version=$1
  [ "$native" = no ] || run "$version" native ""
  if [ ! -e "$libraries/libgapless_torch-$version.so" ]; then
    echo "torch $version: no adapter; build with -DGAPLESS_TORCH_DIR=.../site-packages/torch"
    return 1
  fi
  run "$version" gapless "$libraries/libgapless_preload.so:" \
    --except "tests/conformance/exceptions-$version.txt"
  return $failed
}

# The versions beside each other, each into a file of its own.
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
declare -A running
for version in "${versions[@]}"; do
  both "$version" >"$outputs/$version" 2>&1 &
  running[$version]=$!
done
status=0
for version in "${versions[@]}"; do
  wait "${running[$version]}" || status=1
  cat "$outputs/$version"
done
exit $status
