#!/usr/bin/env bash
# The main job on real input: a fine-tuning run that does not fit on 16 GB with PyTorch's default
# allocator, what each allocator would need for it, and what each reserves for recorded runs.
set -euo pipefail
cd "$(dirname "$0")/../.."
gapless=build/release/bin/gapless
python=.venv-torch-2.11/bin/python
with_libraries=.venv-torch-2.11-libraries/bin/python
tools/setup/torch.sh 2.11
tools/setup/torch.sh 2.11 libraries
tools/setup/adapter.sh 2.11
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat <<'TEXT'

LoRA fine-tuning of a model of Qwen1.5-7B's sizes (examples/qwen_lora.py), under the unmodified CUDA
build of PyTorch, on a simulated card of 16 GiB: with gapless, with PyTorch's default allocator, and
with its expandable segments. "stalls": how often the host waited for the device to have memory.

TEXT
"$gapless" dryrun --gpu 16GiB --allocator gapless,native,expandable -- "$python" examples/qwen_lora.py \
  >"$folder/run.log" 2>&1 || true
grep -E '^gapless dryrun: with|^step|OutOfMemoryError' "$folder/run.log" | fold -s -w 100
sed -n '/^process/,$p' "$folder/run.log"
cat <<'TEXT'

With real peft and bitsandbytes, as the usual recipe has it (examples/qwen_qlora.py): 19.7 GiB, of which 7 are
logits in three copies. No allocator makes that fit. With one line more, gapless.patch_loss(model), the logits are
made in pieces, as many as the memory at hand needs:

TEXT
for words in "gapless" "gapless,native,expandable --patch-loss"; do
  PYTHONPATH=torch_plugin/python "$gapless" dryrun --gpu 16GiB --allocator "${words% *}" -- \
    "$with_libraries" examples/qwen_qlora.py --fixed ${words#"${words% *}"} >"$folder/run.log" 2>&1 || true
  grep -E '^gapless dryrun: with|^step|OutOfMemoryError' "$folder/run.log" | fold -s -w 100
  sed -n '/^process/,$p' "$folder/run.log"
done
cat <<'TEXT'

The least memory the first of these would complete in with each allocator, by replaying what it allocates on a card of 80 GB
(models of PyTorch's two allocators):

TEXT
"$gapless" dryrun --gpu A100 --record "$folder/qwen-lora.pickle" -- "$python" examples/qwen_lora.py \
  >"$folder/run.log" 2>&1
mv "$folder"/qwen-lora.*.pickle "$folder/qwen-lora.pickle"
"$gapless" fit "$folder/qwen-lora.pickle"
cat <<'TEXT'

Twelve PyTorch runs, recorded as memory snapshots, with all the memory they want:

TEXT
"$gapless" replay examples/traces/*.gtrace
