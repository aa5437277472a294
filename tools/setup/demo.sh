#!/usr/bin/env bash
# The main job on real input: a fine-tuning run that does not fit on 16 GB with PyTorch's default
# allocator, what each allocator would need for it, and what each reserves for recorded runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
gapless=build/release/bin/gapless
python=.venv-torch-2.11/bin/python
tools/setup/torch.sh 2.11
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat <<'TEXT'

LoRA fine-tuning of a model of Qwen1.5-7B's sizes (examples/qwen_lora.py), under the unmodified CUDA
build of PyTorch, on a simulated card of 16 GiB, with PyTorch's default allocator:

TEXT
"$gapless" dryrun --gpu 16GiB -- "$python" examples/qwen_lora.py >"$folder/run.log" 2>&1 || true
grep -E '^step|OutOfMemoryError' "$folder/run.log" | fold -s -w 100
sed -n '/^process/,$p' "$folder/run.log"
cat <<'TEXT'

On a card of 80 GB it runs. The least memory it would complete in with each allocator, by replaying
what it allocated there (gapless, and models of PyTorch's two):

TEXT
"$gapless" dryrun --gpu A100 --record "$folder/qwen-lora.pickle" -- "$python" examples/qwen_lora.py \
  >"$folder/run.log" 2>&1
sed -n '/^process/,$p' "$folder/run.log"
mv "$folder"/qwen-lora.*.pickle "$folder/qwen-lora.pickle"
echo
"$gapless" fit "$folder/qwen-lora.pickle"
cat <<'TEXT'

And on the 15.5 GiB that a CUDA context leaves of 16:

TEXT
"$gapless" replay "$folder/qwen-lora.pickle" --capacity 15.5GiB || true
cat <<'TEXT'

Twelve PyTorch runs, recorded as memory snapshots, with all the memory they want:

TEXT
"$gapless" replay examples/traces/*.gtrace
