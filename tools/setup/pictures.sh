#!/usr/bin/env bash
# Draws the pictures of the terminal that README.md and docs/ show again, from what the command says now:
# tools/setup/pictures.sh [FOLDER], by default docs/pictures.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-docs/pictures}
inspect=(build/release/bin/gapless inspect examples/traces/t5-small-stacks.gtrace --rows 6)
shown="gapless inspect t5-small-stacks.gtrace --rows 6"
# Up to what is free and why; and only what comes first.
python3 tools/setup/terminal_picture.py "$folder/inspect.svg" --lines :82 --shown "$shown" -- "${inspect[@]}"
python3 tools/setup/terminal_picture.py "$folder/inspect-short.svg" --lines :28 --shown "$shown" -- "${inspect[@]}"
