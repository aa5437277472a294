"""Train a recommender on GPT-2 with DataParallel: what it reads, and a head of 1,000 items.

One process; --batch is of all GPUs together. The first GPU has the weights, their gradients and the optimizer's
states, and gathers the outputs; the others have copies of the weights while a batch runs.

    python examples/gpt2_recommender.py                                          on GPUs
    gapless dryrun --gpu 4x16GiB -- python examples/gpt2_recommender.py          without one

It needs transformers (pip install transformers). Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512, help="of all GPUs together")
    parser.add_argument("--tokens", type=int, default=32, help="longest sequence")
    parser.add_argument("--frozen", action="store_true", help="train the head alone")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    try:
        from transformers import GPT2Config, GPT2Model
    except ImportError as error:
        parser.exit(2, f"{parser.prog}: {error.name} is not installed: pip install transformers\n")

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.reader = GPT2Model(GPT2Config(n_layer=options.layers, use_cache=False))
            self.reader.requires_grad_(not options.frozen)
            self.head = nn.Sequential(nn.Linear(768, 512), nn.ReLU(), nn.Linear(512, 1000))

        def forward(self, tokens):
            return self.head(self.reader(tokens).last_hidden_state[:, -1])

    model = nn.DataParallel(Recommender().cuda())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    lengths = random.Random(options.seed)
    for step in range(options.steps):
        length = lengths.randint(options.tokens // 2, options.tokens)
        tokens = torch.randint(0, 50257, (options.batch, length)).cuda()
        wanted = torch.randint(0, 1000, (options.batch,)).cuda()
        nn.functional.cross_entropy(model(tokens), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
        peaks = ", ".join(f"{torch.cuda.max_memory_allocated(i) / 2**30:.2f}" for i in range(torch.cuda.device_count()))
        print(f"step {step}: {length} tokens, peak allocated {peaks} GiB", flush=True)


if __name__ == "__main__":
    main()
