#!/usr/bin/env bash
# install.sh BUILD [MOVED]: `cmake --install` of that build, and what somebody does with it: programs in
# C and C++ by find_package and by pkg-config, the command and all that it preloads. Then the same
# from another place, for packages are moved.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

# use PREFIX: everything with what is installed there.
use() {
  local prefix=$1 gapless=$1/bin/gapless program said
  rm -rf "$work/consumers"
  cmake -S "$here" -B "$work/consumers" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$work/consumers" >/dev/null
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  [ "$(pkg-config --modversion gapless)" = "$("$gapless" --version)" ] || fail "the versions differ"
  # shellcheck disable=SC2046  # flags are words
  cc "$here/program.c" -o "$work/consumers/c_by_pkg_config" $(pkg-config --cflags --libs gapless) \
    -Wl,-rpath,"$prefix/lib"
  # shellcheck disable=SC2046
  c++ "$here/program.cc" -o "$work/consumers/cxx_by_pkg_config" $(pkg-config --cflags --libs gapless) \
    -Wl,-rpath,"$prefix/lib"
  for program in c_program cxx_program c_by_pkg_config cxx_by_pkg_config; do
    said=$("$gapless" dryrun --gpu 1GiB -- "$work/consumers/$program" 2>"$work/err") ||
      { cat "$work/err"; fail "$program"; }
    [[ $said == "allocated with gapless "* ]] || fail "$program said: $said"
  done
  "$gapless" dryrun -- true 2>/dev/null || fail "dryrun"
  said=$("$gapless" run -- sh -c 'echo $LD_PRELOAD') || fail "run"
  [ "$said" = "$prefix/lib/gapless/lib/libgapless_preload.so" ] || fail "run preloads $said"
}

cmake --install "$build" --prefix "$work/there" >"$work/log" || fail "cmake --install"
[ "$(ls "$work/there" | tr '\n' ' ')" = "bin include lib " ] || fail "installed: $(ls "$work/there")"
[ "$(ls "$work/there/include")" = gapless ] || fail "headers: $(ls "$work/there/include")"
use "$work/there"
mv "$work/there" "$work/elsewhere"
use "$work/elsewhere"
if grep -rlF "$build" "$work/elsewhere" >"$work/found"; then
  fail "what is installed speaks of the build: $(cat "$work/found")"
fi

# Of a build that has nothing yet, and of one with a single target.
source=$(cd "$here/../.." && pwd)
cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGAPLESS_TESTS=OFF \
  -DGAPLESS_BENCH=OFF >/dev/null
cmake --install "$work/build" --prefix "$work/nothing" >"$work/log" || fail "of nothing"
grep -q "Not built, and so not installed: .*/bin/gapless" "$work/log" || fail "what is missing is not said"
cmake --build "$work/build" --target gapless_preload >/dev/null
cmake --install "$work/build" --prefix "$work/one" >/dev/null || fail "of one target"
[ -e "$work/one/lib/gapless/lib/libgapless_preload.so" ] || fail "the one target is not installed"
echo "installed, used and moved"
