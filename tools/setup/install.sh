#!/usr/bin/env bash
# install.sh ENVIRONMENT [--no-deps ...] PACKAGE...: installs them as pip does, but by uv, which unpacks each wheel
# once and gives every environment links to the same files. pip does it where uv cannot.
set -euo pipefail
environment=$(realpath "${1:?which environment?}")
shift
cd "$(dirname "$0")/../.."
uv=.venv/bin/uv
[ -x "$uv" ] || .venv/bin/pip install -q --disable-pip-version-check uv || true
# The certificates are the system's, as for pip.
UV_NATIVE_TLS=1 "$uv" pip install -q --python "$environment/bin/python" "$@" ||
  "$environment/bin/pip" install -q --disable-pip-version-check "$@"
