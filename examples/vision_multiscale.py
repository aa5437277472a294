"""Train a residual network on images whose size changes with every batch, as detectors are trained.

Every size makes feature maps of other sizes, from a few KiB to hundreds of MiB, and every so often
the model is evaluated at full size between two steps.

    python examples/vision_multiscale.py                                   on a GPU
    gapless dryrun --gpu 12GiB -- python examples/vision_multiscale.py     without one

Weights and images are random: this is about memory.
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.narrow = convolution(inputs, width, 1)
        self.look = convolution(width, width, 3, stride)
        self.widen = convolution(width, outputs, 1)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.widen(F.relu(self.look(F.relu(self.narrow(x), inplace=True)), inplace=True))
        return F.relu(y + self.shortcut(x), inplace=True)


class Detector(nn.Module):
    """A ResNet and a feature pyramid: scores at four scales."""

    def __init__(self, depths: list[int], width: int, classes: int):
        super().__init__()
        self.stem = convolution(3, width, 7, 2)
        self.stages = nn.ModuleList()
        self.lateral = nn.ModuleList()
        inputs = width
        for scale, depth in enumerate(depths):
            wide = width << scale
            blocks = []
            for i in range(depth):
                blocks.append(Bottleneck(inputs, wide, 2 if i == 0 and scale else 1))
                inputs = 4 * wide
            self.stages.append(nn.Sequential(*blocks))
            self.lateral.append(nn.Conv2d(inputs, 256, 1))
        self.scores = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, classes, 3, padding=1))

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.stem(images)), 3, 2, 1)
        maps = []
        for stage, lateral in zip(self.stages, self.lateral):
            x = stage(x)
            maps.append(lateral(x))
        for i in range(len(maps) - 2, -1, -1):
            maps[i] = maps[i] + F.interpolate(maps[i + 1], size=maps[i].shape[2:])
        return [self.scores(m) for m in maps]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--least", type=int, default=320, help="shortest side of an image")
    parser.add_argument("--most", type=int, default=800, help="longest side of an image")
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3], help="blocks by stage")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0, help="for the sizes")
    options = parser.parse_args()
    random.seed(options.seed)
    with torch.device("cuda"):
        model = Detector(options.depths, options.width, options.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(options.steps):
        height, width = (32 * random.randint(options.least // 32, options.most // 32) for _ in range(2))
        images = torch.randn(options.batch, 3, height, width, device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = sum(F.binary_cross_entropy_with_logits(s, torch.zeros_like(s)) for s in model(images))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            with torch.no_grad():
                model.eval()(torch.randn(1, 3, options.most, options.most, device="cuda"))
                model.train()
        print(f"step {step}: {height} x {width}, peak allocated "
              f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
              f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
