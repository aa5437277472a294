"""The train.py that the documents speak of: a small model, a few steps, one rank or several."""
import argparse
import os

import torch


def train(steps: int = 2, batch_size: int = 4) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        model(torch.randn(batch_size * 64 + step, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    train(arguments.steps, arguments.batch_size)
    print("trained")
