"""What trains with PyTorch beside transformers and accelerate: DeepSpeed, peft, bitsandbytes, trl, Lightning and others'
losses on simulated GPUs. Run by the Python of .venv-torch-VERSION-libraries (tools/setup/torch.sh), where they are."""
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import GAPLESS, PACKAGE, ROOT

WANTED = ("deepspeed", "peft", "bitsandbytes", "trl", "lightning", "liger_kernel", "cut_cross_entropy")
MISSING = [name for name in WANTED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.fixture
def gapless(tmp_path):
    """gapless(*words, program=(...)): the rows, and what was printed."""

    def run(*words, program):
        done = subprocess.run(
            [GAPLESS, *words, "--json", "rows.json", "--", sys.executable, *map(str, program)], cwd=tmp_path,
            capture_output=True, text=True, timeout=150, check=False, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE)})
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((tmp_path / "rows.json").read_text()), done.stdout

    return run


@pytest.mark.parametrize("room, layers_on_host", [("1GiB", 0), ("14MiB", 3)])
def test_layers_that_accelerate_leaves_on_the_host_are_told(gapless, tmp_path, room, layers_on_host):
    (tmp_path / "generate.py").write_text(f"""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
                             vocab_size=1000)).to(torch.float16).save_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model", device_map="auto", dtype=torch.float16,
                                             max_memory={{0: "{room}", "cpu": "4GiB"}})
with torch.no_grad(): model(torch.zeros(1, 64, dtype=torch.long, device="cuda"))
""")
    (row,), said = gapless("fits", "--gpu", "2GiB", "--allocator", "native", program=("generate.py",))
    layer = 2 * (4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512)
    assert row["fits"] is True
    norm_and_head = 2 * (512 + 512 * 1000)
    assert row["offloaded_parameter_bytes"] == (layers_on_host * layer + norm_and_head if layers_on_host else 0)
    assert ("of parameters stay on the host" in " ".join(said.split())) is (layers_on_host != 0)


def test_lora_over_4_bits(gapless):
    """peft and bitsandbytes: what the recipe casts to float32 is most of what the parameters hold."""
    width, vocabulary, rank, layers, inner = 256, 8000, 8, 2, 512
    (row,), _ = gapless("fits", "--gpu", "1GiB", "--allocator", "native", program=(
        ROOT / "examples/qwen_qlora.py", "--layers", layers, "--width", width, "--heads", 4, "--inner", inner,
        "--vocabulary", vocabulary, "--tokens", 128, "--rank", rank, "--steps", 3))
    assert row["verdict"] == "yes" and row["steps"] == 3
    held = row["memory"]["holders"]
    in_float32 = 2 * 4 * width * vocabulary  # the embedding and the head
    projections = layers * (4 * width * width + 3 * width * inner)
    in_4_bits = projections // 2
    adapters = 4 * rank * layers * (4 * 2 * width + 3 * (width + inner))
    assert in_float32 + in_4_bits + adapters < held["parameters"] < 1.1 * (in_float32 + in_4_bits + adapters)
    assert 2 * adapters <= held["optimizer_states"] < 2.2 * adapters
    assert held["gradients"] < adapters


PAGED = """
import bitsandbytes, torch
model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 4096)).cuda()
optimizer = bitsandbytes.optim.PagedAdamW32bit(model.parameters())
for _ in range(3):
    model(torch.randn(64, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_states_of_paged_optimizers_are_managed_memory(gapless, tmp_path):
    (tmp_path / "train.py").write_text(PAGED)
    (row,), text = gapless("fits", "--gpu", "1GiB", "--allocator", "native", program=("train.py",))
    weights = 4 * 2 * (4096 + 1) * 4096
    assert row["verdict"] == "yes" and row["steps"] == 3
    assert row["host"]["peak_managed_bytes"] == 2 * 4 * 2 * 4096 * 4096  # biases' states are too small to be paged
    assert weights * 2 < row["peak_allocated_bytes"] < weights * 2.3
    assert "256.00 MiB of managed memory (cudaMallocManaged)" in " ".join(text.split())


def test_qlora_needs_no_logits(gapless):
    """peft around the model, a head in float32, autocast: patch_loss finds the head, and its logits are gone."""
    words = (ROOT / "examples/qwen_qlora.py", "--layers", 1, "--width", 128, "--heads", 4, "--inner", 256, "--vocabulary", 50000,
             "--tokens", 1024, "--rank", 4, "--steps", 2, "--fixed")
    peaks = []
    for more in ((), ("--patch-loss",)):
        (row,), _ = gapless("dryrun", "--gpu", "4GiB", program=(*words, *more))
        peaks.append(row["peak_allocated_bytes"])
    logits = 2 * 1024 * 50000
    assert peaks[0] - peaks[1] > 8 * logits and peaks[1] < 6 * logits, [peak / logits for peak in peaks]


FUSED = """
import sys, torch, gapless
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=50000, hidden_size=128, intermediate_size=256, num_hidden_layers=1,
                                     num_attention_heads=2)).cuda().bfloat16()
if sys.argv[1] != "none":
    assert gapless.patch_loss(model, sys.argv[1]).implementation == sys.argv[1]
tokens = torch.randint(0, 50000, (2, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for _ in range(2):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    assert loss.shape == ()
"""


def test_a_loss_by_liger_or_cut_cross_entropy(gapless, tmp_path):
    """patch_loss hands over to those that are installed: their kernels are Triton's, compiled here and launched."""
    (tmp_path / "train.py").write_text(FUSED)
    peaks = {}
    for implementation in ("none", "liger", "cut"):
        (row,), out = gapless("dryrun", "--gpu", "4GiB", program=("train.py", implementation))
        assert row["verdict"] == "yes" and row["steps"] == 2, out
        peaks[implementation] = row["peak_allocated_bytes"]
    logits = 2 * 1024 * 50000
    assert peaks["none"] > 8 * logits and max(peaks["liger"], peaks["cut"]) < 3 * logits, peaks


def test_zero_stages_with_and_without_offload(gapless):
    """DeepSpeed on two ranks: bytes to a parameter, as the stages are told to share them out."""
    _, out = gapless("dryrun", "--gpu", "2x1GiB", program=(*TORCHRUN, 2, ROOT / "tests/torch/programs/zero.py"))
    bytes_each = {}
    for rank, case, numbers in re.findall(r"([01]) (\d[ a-z]*): (\[[^]]*\])", out):  # ranks print at once
        parameters, peak, after = json.loads(numbers)
        assert after < peak
        case = case.strip()
        bucket = 0 if case in ("0", "1", "2") else 2 << 20  # of gradients on their way
        bytes_each[f"{rank} {case}"] = (after - bucket) / parameters
    # After a step; gradients are given back but for stage 3's. Bfloat16; float32 master weights and two moments.
    weights, gradients, states = 2, 2, 12
    expected = {"0": weights + states, "1": weights + states / 2, "2": weights + states / 2,
                "3": (weights + gradients + states) / 2, "2 optimizer": weights, "3 optimizer param": 0}
    assert bytes_each == {f"{rank} {case}": pytest.approx(value, abs=0.1)
                          for rank in range(2) for case, value in expected.items()}


# transformers' Trainer with DeepSpeed's JSON; a small model, so that DeepSpeed's buckets are most of what it takes.
TRAINER = """
from datasets import Dataset
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                     num_attention_heads=2))
Trainer(model=model, args=arguments, train_dataset=Dataset.from_list([{"input_ids": [1] * 16, "labels": [1] * 16}] * 8)).train()
"""


@pytest.mark.thorough
def test_deepspeeds_buckets_are_a_remedy(tmp_path):
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "ds.json").write_text(json.dumps({
        "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}))
    done = subprocess.run(
        [GAPLESS, "advise", "--gpu", "1GiB", "--try", "zero-bucket", "--write", "changed", "--json", "advice.json", "--",
         sys.executable, *TORCHRUN, "1", "train.py", "--output_dir", "out", "--deepspeed", "ds.json", "--bf16", "--max_steps",
         "2", "--per_device_train_batch_size", "2", "--report_to", "none", "--save_strategy", "no"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 3, done.stdout + done.stderr
    told = json.loads((tmp_path / "advice.json").read_text())
    (bucket,) = [one for one in told["remedies"] if one["remedy"] == "zero-bucket"]
    assert bucket["tried"]["fits"] is True and bucket["lost"] == "time", done.stdout
    changed = json.loads((tmp_path / "changed/zero-bucket/ds.json").read_text())
    assert changed["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 50000000}
    # Of what the optimizer has outside of a step nothing is said.
    assert "0.0 M parameters" not in done.stdout


def test_examples_of_transformers_and_accelerate(gapless):
    words = ("dryrun", "--gpu", "2x2GiB")
    rows, _ = gapless(*words, program=(ROOT / "examples/gpt2_recommender.py", "--steps", 2, "--batch", 8, "--layers", 1))
    assert [row["device"] for row in rows] == [0, 1] and all(row["verdict"] == "yes" for row in rows)
    rows, out = gapless(*words, "--ranks", "0", program=(
        *TORCHRUN, 2, ROOT / "examples/chatlm_t5.py", "--steps", 2, "--batch", 2, "--layers", 1, "--vocabulary", 500))
    assert [(row["rank"], row["ranks_not_run"], row["steps"]) for row in rows] == [(0, [1], 2)]
    assert "on 2 GPUs" in out and out.count("peak allocated") == 2


def test_sft_of_trl_with_lora(simulate, tmp_path):
    result = simulate(f"""
        import torch
        from datasets import Dataset
        from peft import LoraConfig
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
        from trl import SFTConfig, SFTTrainer
        words = ["<pad>", "</s>", "<unk>", *map(str, range(97))]
        tokenizer = Tokenizer(models.WordLevel({{word: i for i, word in enumerate(words)}}, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
        model = LlamaForCausalLM(LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                             num_attention_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None))
        rows = Dataset.from_list([{{"text": " ".join(str(j % 97) for j in range(4 + i % 20))}} for i in range(32)])
        trainer = SFTTrainer(
            model=model, train_dataset=rows, processing_class=tokenizer,
            peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
            args=SFTConfig({str(tmp_path)!r}, per_device_train_batch_size=4, max_steps=3, report_to=[], bf16=True,
                           max_length=64, logging_strategy="no", save_strategy="no"))
        trainer.train()
        print(f"steps: {{trainer.state.global_step}}")
        print(f"peak: {{torch.cuda.max_memory_allocated()}}")
        """, HF_HUB_OFFLINE="1")
    assert result.values()["steps"] == "3" and int(result.values()["peak"]) > 4 * 100 * 64


def test_lightning(simulate, tmp_path):
    result = simulate(f"""
        import torch, lightning
        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(64, 64)
            def training_step(self, batch):
                return self.layer(batch[0]).mean()
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), 8)
        trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=1, precision="bf16-mixed", logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False, default_root_dir={str(tmp_path)!r})
        trainer.fit(Model(), loader)
        print(f"steps: {{trainer.global_step}}")
        print(f"peak: {{torch.cuda.max_memory_allocated()}}")
        """)
    assert result.values()["steps"] == "8" and int(result.values()["peak"]) > 3 * 4 * 64 * 64
