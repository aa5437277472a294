#!/usr/bin/env bash
# The main job on real input: what each allocator would reserve for recorded PyTorch runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
gapless=build/release/bin/gapless

cat <<'TEXT'

Eleven real PyTorch runs, recorded as memory snapshots, replayed on a simulated GPU: through gapless,
through PyTorch's default allocator (native) and through its expandable_segments (models of both).

TEXT
"$gapless" replay examples/traces/*.gtrace
cat <<'TEXT'

The smallest GPU that the LoRA fine-tuning run completes on, with each:

TEXT
"$gapless" fit examples/traces/qwen-lora-varlen.gtrace
cat <<'TEXT'

The same run, four times over, on a GPU with 14 GiB for it:

TEXT
"$gapless" replay examples/traces/qwen-lora-varlen.gtrace --capacity 14GiB || true
