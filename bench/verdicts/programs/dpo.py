"""Preference tuning with trl's DPOTrainer: a GPT-2, a frozen copy of it as the reference, pairs of answers of many
lengths. The model is of random weights and the texts are random words.

    python dpo.py --batch-size 4
"""
import argparse
import random
import tempfile

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel
from trl import DPOConfig, DPOTrainer

from random_words import WORDS, tokenizer, words


def model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(
        n_layer=6, n_embd=512, n_head=8, vocab_size=WORDS, pad_token_id=0, eos_token_id=1, bos_token_id=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    draw = random.Random(0)
    pairs = [{"prompt": words(draw, 16, 64), "chosen": " " + words(draw, 32, 256), "rejected": " " + words(draw, 32, 256)}
             for _ in range(options.steps * options.batch_size)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = DPOTrainer(
            model=model(), ref_model=model(), train_dataset=Dataset.from_list(pairs), processing_class=tokenizer(),
            args=DPOConfig(folder, per_device_train_batch_size=options.batch_size, max_steps=options.steps, learning_rate=1e-5,
                           bf16=True, gradient_checkpointing=False, max_length=512, logging_steps=1, report_to=[],
                           save_strategy="no", seed=0))
        trainer.train()
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
