#!/usr/bin/env bash
# docs/options.md is what the option table says.
set -euo pipefail
cd "$(dirname "$0")/../.."
diff docs/options.md <(build/release/bin/gapless options --markdown) ||
  { echo "run: build/release/bin/gapless options --markdown > docs/options.md"; exit 1; }
