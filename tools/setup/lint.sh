#!/usr/bin/env bash
# lint.sh [format|tidy]: the formatter's and the linter's view of the code; both without an argument.
# With the first goes what the type checker says of the Python package and of tests/mistakes. With
# SHORT=1 in the environment the linter looks at each hundredth file, which takes a minute instead of
# half an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc')
if [ "$what" != tidy ]; then
  clang-format --dry-run --Werror "${files[@]}"
  echo "${#files[@]} files are formatted"
  if command -v mypy >/dev/null; then
    mypy --strict torch_plugin/python/gapless
    mypy --strict tests/mistakes/plant.py bench/figures.py
  else
    echo "mypy is not installed: the types of the Python package are not checked"
  fi
fi
if [ "$what" != format ]; then
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null  # each file for itself
  every=1 at_once=4
  if [ -n "${SHORT:-}" ]; then every=100 at_once=1; fi
  # Those that are compiled here: without a torch, none of its adapter.
  mapfile -t compiled < <(sed -n -E "s|^ *\"file\": \"$PWD/(.*)\",?$|\1|p" build/lint/compile_commands.json | sort -u)
  git ls-files '*.cc' | grep -v '^tests/' | grep -Fx -f <(printf '%s\n' "${compiled[@]}") |
    awk -v every=$every 'every == 1 || NR % every == 1' |
    xargs -P "$(nproc)" -n $at_once clang-tidy -p build/lint --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument
fi
