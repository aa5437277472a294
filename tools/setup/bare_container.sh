#!/usr/bin/env bash
# bare_container.sh FOLDER COMMAND...: runs a command where there is nothing but the C library, python3 with torch 2.11 (as
# `python3`) and what these ask for: no library, program or network of this machine's. The folders in BARE_SHOWS
# ("/inside=outside ...") are there to be read, and /out=FOLDER to be written to.
#
# Needs to be root, for the namespaces and the changed root; without it exit status 77, and why.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath "$1")
shift
venv=$(realpath .venv-torch-2.11)
if [ "$(id -u)" != 0 ] || ! unshare --mount --net --pid --fork true 2> /dev/null; then
  echo "skipped, because namespaces of our own cannot be had here"
  exit 77
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
base=$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')
program=$(realpath "$venv/bin/python")
if [ "$base" = /usr ]; then
  standard=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
else
  standard=$base
fi
copy() { # copy FILE...: to the same place in the root
  local file
  for file in "$@"; do
    [ -e "$root$file" ] || { mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; }
  done
}
# The libraries that the interpreter and torch are linked to, wherever they lie.
mapfile -t needed < <(
  find -L "$standard" "$venv" -name '*.so*' -type f \( -path '*/lib-dynload/*' -o -path '*/torch/lib/*' -o -path '*/torch/_C*' -o -path '*/numpy*' \) \
    -print0 | xargs -0 ldd "$program" /usr/bin/env 2> /dev/null |
    sed -n -E 's/.*=> (\/[^ ]+) .*/\1/p; s/^\t(\/[^ ]+) .*/\1/p' | sort -u | grep -v -e "^$venv" -e "^$standard")
copy /usr/bin/env "$program" "${needed[@]}"
# Those that our own files once needed: here they must be missed.
for library in libfmt libyaml-cpp libzstd libgtest libbenchmark; do
  if find "$root" -name "$library*" | grep -q .; then
    echo "bare_container.sh: $library is in the container: nothing would be missed" >&2
    exit 1
  fi
done
mkdir -p "$root"/{proc,dev,tmp,out} "$root$venv" "$root$standard"
shows=("$standard=$standard" "$venv=$venv")
for show in ${BARE_SHOWS:-}; do
  shows+=("${show%%=*}=$(realpath "${show#*=}")")
  mkdir -p "$root${show%%=*}"
done

# shellcheck disable=SC2016  # it is the inner shell's to expand
unshare --mount --net --pid --fork --kill-child bash -c '
  set -e
  root=$1; out=$2; path=$3; count=$4; shift 4
  mount --make-rprivate /
  for ((i = 0; i < count; i++)); do
    mount --bind "${1#*=}" "$root${1%%=*}"
    mount -o remount,bind,ro "$root${1%%=*}"
    shift
  done
  mount --bind "$out" "$root/out"
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/dev"
  mkdir "$root/dev/shm"
  for device in null zero urandom random; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
  exec chroot "$root" /usr/bin/env -i PATH="$path:/usr/bin" HOME=/tmp "$@"
' bare "$root" "$out" "$venv/bin" "${#shows[@]}" "${shows[@]}" "$@"
