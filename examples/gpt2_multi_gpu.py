"""Train GPT-2 on several GPUs, by DataParallel (one process) or DistributedDataParallel (torchrun).

DataParallel copies the model to every GPU at each step and gathers the logits on the first, which
needs far more memory than the others; DistributedDataParallel keeps a copy, and buckets of
gradients, on each.

    python examples/gpt2_multi_gpu.py                                              on GPUs
    torchrun --nproc-per-node 3 examples/gpt2_multi_gpu.py
    gapless dryrun --gpu 20GiB,20GiB,20GiB -- python examples/gpt2_multi_gpu.py    without any
    gapless dryrun --gpu 20GiB,20GiB,20GiB -- torchrun --nproc-per-node 3 examples/gpt2_multi_gpu.py

Weights and tokens are random: this is about memory.
"""
import argparse
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width)
        self.position = nn.Embedding(options.tokens, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.t()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8, help="sequences for each GPU")
    parser.add_argument("--tokens", type=int, default=1024, help="longest sequence")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    random.seed(options.seed)

    distributed = "RANK" in os.environ  # torchrun's
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    with device:
        model = Model(options)
    if distributed:
        dist.init_process_group("nccl", device_id=device)
        model = nn.parallel.DistributedDataParallel(model)
        batch = options.batch
    else:
        model = nn.DataParallel(model)
        batch = options.batch * torch.cuda.device_count()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        length = random.randint(options.tokens // 4, options.tokens)
        tokens = torch.randint(0, options.vocabulary, (batch, length), device=device)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        used = [device.index] if distributed else range(torch.cuda.device_count())
        peaks = ", ".join(f"GPU {i} {torch.cuda.max_memory_allocated(i) / 2**30:.2f} of "
                          f"{torch.cuda.max_memory_reserved(i) / 2**30:.2f}" for i in used)
        print(f"step {step}: peak allocated of reserved GiB: {peaks}", flush=True)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
