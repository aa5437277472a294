"""Serve requests of changing length; their key-value caches grow by concatenation.

Requests arrive at random, are read in one pass (prefill) and answered token by token; each layer's
cache is concatenated with the new token's keys and values, as transformers' DynamicCache does: a
block of every layer and request is replaced by one a little longer in every step.

    python examples/serve_kv.py                                      on a GPU
    gapless dryrun --gpu 16GiB -- python examples/serve_kv.py        without one

Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        else:
            k, v = k.contiguous(), v.contiguous()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width)
        self.layers = nn.ModuleList(Layer(options.width, options.heads) for _ in range(options.layers))
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, tokens, caches):
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            x, caches[i] = layer(x, caches[i])
        return self.head(x[:, -1]).float()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--requests", type=int, default=16, help="at a time")
    parser.add_argument("--prompt", type=int, default=2000, help="longest prompt, tokens")
    parser.add_argument("--answer", type=int, default=500, help="longest answer, tokens")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--seed", type=int, default=0, help="for arrivals and lengths")
    options = parser.parse_args()
    random.seed(options.seed)
    with torch.device("cuda"):
        model = Model(options).to(torch.bfloat16)
    active: list[dict] = []
    served = 0
    with torch.inference_mode():
        for step in range(options.steps):
            if len(active) < options.requests and random.random() < 0.5:
                prompt = random.randint(options.prompt // 20, options.prompt)
                active.append({"tokens": torch.zeros(1, prompt, dtype=torch.long, device="cuda"),
                               "caches": [None] * options.layers,
                               "left": random.randint(options.answer // 10, options.answer)})
            for request in active:
                logits = model(request["tokens"], request["caches"])
                request["tokens"] = logits.argmax(-1, keepdim=True)
                request["left"] -= 1
            served += sum(request["left"] == 0 for request in active)
            active = [request for request in active if request["left"] > 0]
            if step % 50 == 49:
                print(f"step {step + 1}: {served} served, {len(active)} active, peak allocated "
                      f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, reserved "
                      f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
