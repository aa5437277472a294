#!/usr/bin/env bash
# Everything CI checks: layers, formats, a release build with warnings as errors and its tests, those
# of the core under the address, undefined-behaviour and thread sanitizers, PyTorch on the simulated
# GPU; and every target of the Makefile, in a short form where it is long. Ends with one line of
# counts. With THOROUGH=1 in the environment all tests run in the release build as well, and what takes
# longest in all its cases.
set -uo pipefail
cd "$(dirname "$0")/../.."
jobs=$(nproc)
werror=$([ -n "${CI:-}" ] && echo ON || echo OFF)
# The packages that tests make are compiled as the release build is, so that ccache has their objects already.
export CXX=${CXX:-c++}
export SKBUILD_CMAKE_DEFINE="GAPLESS_WERROR=$werror;GAPLESS_CUDA_ARCHITECTURES=75"
if [ -n "${THOROUGH:-}" ]; then
  operations=30000 rounds=300
else
  operations=8000 rounds=100
  export GAPLESS_WITHOUT_SANITIZED=ON  # what runs under the address sanitizer runs there alone
fi
passed=0
failed=0
skipped=0
failures=()

said=$(mktemp)   # what the check that runs has said
faults=$(mktemp) # the last words of all that failed: where only the end of the output is kept, they are in it
trap 'rm -f "$said" "$faults"' EXIT

check() { # check NAME COMMAND...: one test of its own
  local name=$1
  shift
  if "$@" > >(tee "$said") 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name")
    sleep 1 # tee writes what is left
    { echo "--- $name" && tail -n 25 "$said"; } >>"$faults"
  fi
}

tried=(test)  # of the Makefile's targets; this is one
target() { # target NAME [VARIABLE=VALUE...]: a target of the Makefile, as anybody calls it
  tried+=("$1")
  make --no-print-directory "$@"
}

quietly() { # quietly NAME COMMAND...: what it prints is shown where it fails, and kept in build/NAME.txt
  local into=build/$1.txt
  shift
  mkdir -p build
  "$@" >"$into" 2>&1 || {
    tail -n 40 "$into"
    return 1
  }
}

part() { # part NAME: what comes now, and after how long
  echo "== $1 (after $((SECONDS / 60)) min $((SECONDS % 60)) s)"
}

count() { # count NAME REPORT: adds what a JUnit report says
  local counts p f s
  counts=$(python3 tools/setup/count_tests.py "$2") || {
    failed=$((failed + 1))
    failures+=("$1: no test report")
    return
  }
  read -r p f s <<<"${counts%%$'\n'*}"
  [ "$f" = 0 ] || echo "${counts#*$'\n'}" >>"$faults"
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + s))
  [ "$f" = 0 ] || failures+=("$1: $f tests")
}

torch_tests() { # torch_tests VERSION KIND NAME TESTS...: pytest of them, with that environment of torch.sh
  local version=$1 kind=$2 name=$3 report=build/$3.xml
  shift 3
  [ -n "${THOROUGH:-}" ] || set -- --short "$@"
  if ! tools/setup/torch.sh "$version" $kind; then
    failed=$((failed + 1))
    failures+=("$name: install")
    return
  fi
  rm -f "$report"
  # Two of them run at a time; what PyTorch computes on the CPU is small, and threads that wait for
  # it take a sixth of the time.
  OMP_NUM_THREADS=1 ".venv-torch-$version${kind:+-$kind}/bin/python" -m pytest -q -n "$jobs" --dist worksteal --durations 30 --durations-min 5 "$@" --junit-xml "$report" ||
    true
  count "$name" "$report"
}

# Clang compiles with sanitizers in two thirds of GCC's time, and warns of other mistakes. It comes with
# clang-tidy; what it links its sanitizers from may be missing.
sanitizing() {
  local compiler
  for compiler in clang++ $(compgen -c clang++- | sort -rV); do
    if echo 'int main() {}' | "$compiler" -x c++ -fsanitize=address,undefined -o /dev/null - 2>/dev/null; then
      echo "-DCMAKE_CXX_COMPILER=$compiler"
      return
    fi
  done
}

suite() { # suite PRESET TARGETS [CTEST OPTION...]: build those targets ("all"), run their tests
  local preset=$1 targets=$2
  shift 2
  part "$preset"
  # From scratch files are compiled several at a time: little more than half as long.
  local fresh=()
  [ -e "build/$preset" ] || fresh=(-DCMAKE_UNITY_BUILD=ON $([ "$preset" = asan ] && sanitizing))
  if ! { cmake --preset "$preset" -DGAPLESS_WERROR=$werror "${fresh[@]}" >/dev/null &&
    cmake --build --preset "$preset" --target $targets -- --quiet; }; then
    failed=$((failed + 1))
    failures+=("$preset: build")
    return
  fi
  local report="build/$preset/tests.xml"
  rm -f "$report"
  ctest --preset "$preset" -j "$jobs" --progress --output-junit "$PWD/$report" "$@" || true
  count "$preset" "$report"
}

# Targets that change what they are called on, in a folder of their own.
try_format() {
  local folder
  folder=$(mktemp -d) && cp .clang-format "$folder" && git -C "$folder" init -q &&
    echo 'int  main( ) { return 0 ; }' >"$folder/loose.cc" &&
    target format -C "$folder" -f "$PWD/Makefile" &&
    [ "$(cat "$folder/loose.cc")" = 'int main() { return 0; }' ] && rm -rf "$folder"
}

try_clean() {
  local folder
  folder=$(mktemp -d) && mkdir -p "$folder"/{build/release,gpu-kit,kept} &&
    target clean -C "$folder" -f "$PWD/Makefile" && [ "$(ls "$folder")" = kept ] && rm -rf "$folder"
}

gpu_kit() { target gpu-kit && tools/setup/gpu_kit_test.sh; }

peers() {
  target peers &&
    build/release/bin/gapless replay examples/traces/tiny.gtrace --allocator gapless,torch-native,torch-expandable
}

every_target() { # each target of the Makefile was tried here, and `make help` tells of it
  local name missing=0
  for name in $(sed -n -E 's/^([a-z][a-z-]*):.*/\1/p' Makefile); do
    if [[ " ${tried[*]} " != *" $name "* ]]; then
      echo "tools/setup/test.sh does not try: make $name"
      missing=1
    fi
    if ! grep -q "make $name\b" build/help.txt; then
      echo "make help does not tell of: make $name"
      missing=1
    fi
  done
  return $missing
}

# What has to be fetched comes while other things are tested.
{
  for version in 2.11 2.15; do tools/setup/torch.sh "$version"; done
  tools/setup/torch.sh 2.11 full
  tools/setup/torch.sh 2.11 libraries
  tests/conformance/fetch.sh
} >"$(mktemp)" 2>&1 &
fetching=$!

part "layers and formats"
check "layers" python3 tools/setup/check_layers.py
check "lint" target lint SHORT=1
check "format" try_format
check "clean" try_clean

part "release"
rm -f build/release/tests.xml
GAPLESS_MODEL_OPS=$operations target quick TEST_FLAGS="--progress --output-junit $PWD/build/release/tests.xml" || true
count release build/release/tests.xml
check "help" quietly help target help
check "build" target build
check "bench" quietly bench target bench SHORT=1
check "figures" quietly figures python3 bench/figures.py --quick --into -
check "docs/options.md" tools/setup/check_options.sh
# What only reads options and prints, what is measured, long programs and very large files are tested
# without sanitizers; for threads what has several.
large='OneFrameOverAndOver|ALargeHeaderInASmallFile|StacksMustBeATree|SweepsWithOneGap'
GAPLESS_MODEL_OPS=4000 GAPLESS_SWEEP_STRIDE=7 GAPLESS_FUZZ_ROUNDS=$rounds suite asan \
  "unit_test model_test fault_test hostile_files_test ptx_test pickle_fuzz compact_fuzz opened_fuzz csv_fuzz dump_fuzz writers_fuzz allocator_fuzz" -LE slow -E "NOT_BUILT|$large"
suite tsan threads_test -R 'Thread|Mutex'
wait "$fetching"

# A browser and a container, which use one core each.
part "pages in a browser, gpu kit"
rm -f build/view.xml
check "browser" tools/setup/browser.sh
.venv/bin/python -m pytest -q tests/view --junit-xml build/view.xml >build/view.txt 2>&1 &
pages=$!
check "gpu kit" gpu_kit
wait "$pages"
tail -n 40 build/view.txt
count view build/view.xml

part "peers and demo"
check "peers" quietly peers peers
check "demo" quietly demo target demo

# The real PyTorch on the simulated GPU: the oldest and the newest version that is supported.
for version in 2.11 2.15; do
  part "torch $version"
  check "torch $version: what it imports" python3 simgpu/symbols/collect.py --check \
    --importers .venv-torch-"$version"/lib/python3*/site-packages/torch
  # gapless for it, and PyTorch's own allocators as peers (where CUDA's headers are).
  adapter() {
    cmake --preset release \
      -DGAPLESS_TORCH_DIR="$(echo .venv-torch-"$version"/lib/python3*/site-packages/torch)" > /dev/null &&
      cmake --build --preset release -- --quiet
  }
  check "torch $version: adapter" adapter
  # What asks more of our own commands than of torch runs with one torch; what other libraries do, where
  # they are.
  these=()
  [ "$version" = 2.11 ] || these=(-m "not one_torch")
  torch_tests "$version" "" "torch-$version" tests/torch --ignore tests/torch/test_libraries.py "${these[@]}"
done

# PyTorch's own allocator tests (without SHORT they run with the native allocator, too), and torch as
# pip installs it, with NVIDIA's libraries beside ours.
check "conformance" target conformance SHORT=1
part "torch 2.11 with NVIDIA's wheels"
torch_tests 2.11 full torch-2.11-full tests/torch/test_device.py tests/torch/test_operators.py

part "torch 2.11 with DeepSpeed, peft, trl, bitsandbytes and Lightning"
torch_tests 2.11 libraries torch-2.11-libraries tests/torch/test_libraries.py

# What README.md and docs/ print works as it is printed.
part "documents"
torch_tests 2.11 "" documents tests/docs

check "every target of the Makefile" every_target

tail -n 300 "$faults"
for failure in "${failures[@]}"; do echo "FAILED: $failure"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
