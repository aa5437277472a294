"""Reinforcement with trl's GRPOTrainer and peft's LoRA: answers are sampled from the model, four for each question, and
rated by how many words they have. The model is of random weights and the questions are random words.

    python grpo.py --batch-size 8
"""
import argparse
import random
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from random_words import tokenizer, words


def rated(completions: list[str], **_: object) -> list[float]:
    return [float(len(completion.split())) for completion in completions]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8, help="answers, of 4 to a question")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    draw = random.Random(0)
    questions = [{"prompt": words(draw, 32, 128)} for _ in range(options.steps * options.batch_size // 4)]
    model = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=8, pad_token_id=0, eos_token_id=1, bos_token_id=None))
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model, reward_funcs=rated, train_dataset=Dataset.from_list(questions), processing_class=tokenizer(padding_side="left"),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
            args=GRPOConfig(folder, per_device_train_batch_size=options.batch_size, num_generations=4, max_completion_length=32,
                            max_steps=options.steps, learning_rate=1e-5, bf16=True, gradient_checkpointing=False,
                            logging_steps=1, report_to=[], save_strategy="no", seed=0))
        trainer.train()
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
