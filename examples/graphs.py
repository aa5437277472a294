"""Serve a model by CUDA graphs beside eager work.

A graph for each batch size is captured once into one shared pool, as inference servers do: their memory
stays theirs, whether a graph runs or not. Prefill, whose length changes with every request, and a
training step in between run eagerly in what is left.

    python examples/graphs.py                                  on a GPU
    gapless dryrun --gpu 16GiB -- python examples/graphs.py    without one

Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.silu(self.up(self.norm2(x))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="decoding steps")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32], help="captured sizes")
    parser.add_argument("--window", type=int, default=128, help="tokens that a decoding step looks at")
    parser.add_argument("--prompt", type=int, default=4096, help="longest prompt")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=64000)
    parser.add_argument("--seed", type=int, default=0, help="for lengths and batches")
    options = parser.parse_args()
    random.seed(options.seed)
    with torch.device("cuda"):
        embedding = nn.Embedding(options.vocabulary, options.width, dtype=torch.bfloat16)
        blocks = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers))).bfloat16()
        adapter = nn.Linear(options.width, options.width, dtype=torch.bfloat16)  # what is trained in between
    optimizer = torch.optim.AdamW(adapter.parameters())

    def decode(tokens):
        return F.linear(blocks(embedding(tokens))[:, -1], embedding.weight).float()

    pool = torch.cuda.graph_pool_handle()
    graphs = {}
    with torch.no_grad():
        for batch in sorted(options.batches, reverse=True):
            tokens = torch.zeros(batch, options.window, dtype=torch.long, device="cuda")
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                decode(tokens)  # warms up what may not be made during capture
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = decode(tokens)
            graphs[batch] = graph, tokens, logits
    torch.cuda.synchronize()
    print(f"{len(graphs)} graphs: reserved {torch.cuda.memory_reserved() / 2**30:.2f} GiB", flush=True)

    for step in range(options.steps):
        with torch.no_grad():
            if random.random() < 0.3:  # a request comes: its prompt runs eagerly
                decode(torch.zeros(1, random.randint(16, options.prompt), dtype=torch.long, device="cuda"))
            graph, tokens, logits = graphs[random.choice(options.batches)]
            tokens.zero_()
            graph.replay()
            logits.argmax(-1)
        if step % 50 == 49:
            rows = torch.randn(random.randint(1024, 8192), options.width, dtype=torch.bfloat16, device="cuda")
            F.mse_loss(adapter(rows), rows).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            print(f"step {step}: peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
                  f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
