"""Supervised fine-tuning with trl's SFTTrainer and peft's LoRA, as its users write it: a chat model, texts of many
lengths, bfloat16. The model is of random weights and the texts are random words.

    python sft_lora.py --batch-size 8
"""
import argparse
import random
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

from random_words import tokenizer, words


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    draw = random.Random(0)
    texts = [words(draw, 64, 512) for _ in range(options.steps * options.batch_size)]
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
        pad_token_id=0, eos_token_id=1, bos_token_id=None))
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model=model, train_dataset=Dataset.from_list([{"text": text} for text in texts]), processing_class=tokenizer(),
            peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                   target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
            args=SFTConfig(folder, per_device_train_batch_size=options.batch_size, max_steps=options.steps, learning_rate=1e-4,
                           bf16=True, max_length=512, logging_steps=1, report_to=[], save_strategy="no", seed=0))
        trainer.train()
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
