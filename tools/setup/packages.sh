#!/usr/bin/env bash
# Installs the Debian packages and the virtual environment that building and testing need. Quick
# when they are there.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(cmake ninja-build g++ pkg-config ccache git python3 python3-venv
  libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev libfmt-dev libyaml-cpp-dev libtomlplusplus-dev nlohmann-json3-dev libzstd-dev
  zlib1g-dev node-d3
  clang-format clang-tidy mypy)

# A tool from elsewhere will do; a library must be the package.
has() {
  case $1 in
    cmake | git | ccache | python3 | clang-format | clang-tidy | mypy) command -v "$1" ;;
    ninja-build) command -v ninja ;;
    g++) command -v g++ ;;
    pkg-config) command -v pkg-config ;;
    python3-venv) python3 -c 'import ensurepip, venv' ;;
    *) [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
  esac >/dev/null 2>&1
}
wanted=()
for package in "${packages[@]}"; do
  has "$package" || wanted+=("$package")
done

if [ "${#wanted[@]}" -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "gapless needs these Debian packages; install them as root: ${wanted[*]}" >&2
      exit 1
    }
    sudo=(sudo)
  fi
  echo "installing ${wanted[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
    "${wanted[@]}" >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
  python3 -m venv .venv
fi
