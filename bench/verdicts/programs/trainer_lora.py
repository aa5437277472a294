"""A classifier with peft's LoRA under transformers' Trainer, whose TrainingArguments come from a YAML file. The model is
of RoBERTa's sizes with random weights; texts are random, of many lengths, each batch padded to its longest.

    python trainer_lora.py trainer_lora.yaml
"""
import random
import sys

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (HfArgumentParser, RobertaConfig, RobertaForSequenceClassification, Trainer, TrainingArguments)


def padded(rows: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    return {"input_ids": torch.tensor([row["input_ids"] + [1] * (longest - len(row["input_ids"])) for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"]))
                                            for row in rows]),
            "labels": torch.tensor([row["labels"] for row in rows])}


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(sys.argv[1])
    draw = random.Random(0)
    rows = [{"input_ids": [draw.randrange(2, 50265) for _ in range(draw.randint(32, 384))], "labels": draw.randrange(4)}
            for _ in range(arguments.max_steps * arguments.gradient_accumulation_steps * arguments.per_device_train_batch_size)]
    model = RobertaForSequenceClassification(RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, num_labels=4))
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=16, lora_alpha=32, lora_dropout=0.1,
                                             target_modules=["query", "value"]))
    Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), data_collator=padded).train()
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
