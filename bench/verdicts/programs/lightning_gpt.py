"""A LightningModule around GPT-2: bfloat16 autocast, clipped gradients, two batches to a step, validation before and
after. Weights and tokens are random, lengths differ from batch to batch.

    python lightning_gpt.py --batch-size 8
"""
import argparse
import random
import tempfile
import typing

import lightning
import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Texts(torch.utils.data.Dataset):
    def __init__(self, count: int, seed: int):
        draw = random.Random(seed)
        self.texts = [torch.randint(0, 50257, (draw.randint(64, 512),)) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.texts[place]


def padded(texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config(n_layer=6, use_cache=False))

    def training_step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = self.model(**batch).loss
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor]) -> None:
        self.log("validation_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self) -> typing.Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    loaders = [torch.utils.data.DataLoader(Texts(batches * options.batch_size, seed), options.batch_size, collate_fn=padded)
               for seed, batches in ((0, 2 * options.steps), (1, 2))]
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="gpu", devices=1, max_steps=options.steps, precision="bf16-mixed", accumulate_grad_batches=2,
            gradient_clip_val=1.0, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            default_root_dir=folder)
        trainer.fit(Model(), *loaders)
    print(f"peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
