"""Train a model of T5-small's sizes: batch 32, up to 256 tokens, gradients gathered over two batches.

Source and target of each batch are padded to their own longest, so every pair of lengths makes
tensors of other sizes: encoder states, cross-attention scores (computed in full, as T5 does with
its position bias), 32 x 256 x 32128 logits.

    python examples/t5_small.py                                    on a GPU
    gapless dryrun --gpu 8GiB -- python examples/t5_small.py       without one

Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """T5's: no scaling, a learned bias for the distance of two tokens."""

    def __init__(self, width: int, heads: int, biased: bool):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.bias = nn.Embedding(32, heads) if biased else None

    def forward(self, x, memory, causal=False):
        batch, length, width = x.shape
        q, k, v = (projection(y).view(batch, y.shape[1], self.heads, -1).transpose(1, 2)
                   for projection, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q @ k.transpose(2, 3)
        if self.bias is not None:
            rows = torch.arange(length, device=x.device)[:, None]
            columns = torch.arange(memory.shape[1], device=x.device)[None]
            scores = scores + self.bias((rows - columns).abs().clamp(max=31)).permute(2, 0, 1)
        if causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(mask, float("-inf"))
        weights = F.dropout(scores.float().softmax(-1).to(v.dtype), 0.1, self.training)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, biased: bool, decodes: bool):
        super().__init__()
        self.own = Attention(width, heads, biased)
        self.cross = Attention(width, heads, False) if decodes else None
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(3 if decodes else 2))
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x, memory=None):
        y = self.norms[0](x)
        x = x + self.own(y, y, causal=self.cross is not None)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), memory)
        return x + self.down(F.dropout(F.relu(self.up(self.norms[-1](x))), 0.1, self.training))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width)

        def stack(decodes: bool) -> nn.ModuleList:
            return nn.ModuleList(
                Block(options.width, options.heads, options.inner, i == 0, decodes)
                for i in range(options.layers))

        self.encoder, self.decoder = stack(False), stack(True)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, source, target):
        memory = self.embedding(source)
        for block in self.encoder:
            memory = block(memory)
        x = self.embedding(target)
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256, help="longest sequence")
    parser.add_argument("--accumulate", type=int, default=2, help="batches for one step")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--inner", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=32128)
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    random.seed(options.seed)
    with torch.device("cuda"):
        model = Model(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        for _ in range(options.accumulate):
            source, target = (
                torch.randint(0, options.vocabulary, (options.batch, random.randint(
                    options.tokens // 4, options.tokens)), device="cuda") for _ in range(2))
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(source, target)
                loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            (loss / options.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
              f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
