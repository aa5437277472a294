#!/usr/bin/env bash
# lint.sh [format|tidy]: the formatter's and the linter's view of the code; both without an argument.
# With the first goes what the type checker says of the Python package.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc')
if [ "$what" != tidy ]; then
  clang-format --dry-run --Werror "${files[@]}"
  echo "${#files[@]} files are formatted"
  if command -v mypy >/dev/null; then
    mypy --strict torch_plugin/python/gapless
  else
    echo "mypy is not installed: the types of the Python package are not checked"
  fi
fi
if [ "$what" != format ]; then
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD=OFF >/dev/null  # each file for itself
  git ls-files '*.cc' | grep -v '^tests/' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build/lint --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option
fi
