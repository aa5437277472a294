#!/usr/bin/env bash
# Installs what the tests of pages need: Chromium and its driver, and selenium and pytest in .venv. Quick when they are there.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  echo "installing chromium chromium-driver"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends \
    chromium chromium-driver >/dev/null
fi
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -c 'import selenium, pytest' 2>/dev/null ||
  tools/setup/install.sh .venv selenium pytest
