"""Records the runs of this folder: record.py gan|preferences|checkpoints FILE.pickle, then `gapless convert`.

    gapless dryrun --gpu 80GiB -- python tests/replay/traces/record.py gan gan.pickle

Each is a pattern that a version of gapless did badly: a small program with many sizes (windows were
made anew in every pass), generation and training with random lengths (growth never stopped),
checkpointed activations of whole pages beside small parameters (pages were left half used).
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 32000


class LanguageModel(nn.Module):
    def __init__(self, layers: int, width: int = 1024, checkpoints: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, norm_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)
        self.checkpoints = checkpoints

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        return self.head(x)


def some_tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), device="cuda")


def train_gan(steps: int = 30) -> None:
    def narrower(channels: int) -> nn.Sequential:
        return nn.Sequential(nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1), nn.BatchNorm2d(channels // 2),
                             nn.ReLU())

    def wider(channels: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())

    generator = nn.Sequential(nn.Linear(128, 1024 * 16), nn.Unflatten(1, (1024, 4, 4)),
                              *(narrower(1024 >> i) for i in range(4)), nn.Conv2d(64, 3, 3, 1, 1)).cuda()
    critic = nn.Sequential(wider(3, 64), wider(64, 128), wider(128, 256), wider(256, 512), nn.Flatten(),
                           nn.Linear(512 * 16, 1)).cuda()
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(steps):
        made = generator(torch.randn(64, 128, device="cuda"))
        real = torch.randn(64, 3, 64, 64, device="cuda")
        loss = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(real)).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        loss = F.softplus(-critic(made)).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()


def learn_preferences(rounds: int = 10, batch: int = 8) -> None:
    """Generates, then trains on what was generated, twice in two parts."""
    actor, reference = LanguageModel(4).cuda(), LanguageModel(4).cuda().bfloat16().eval()
    optimizer = torch.optim.AdamW(actor.parameters())
    for _ in range(rounds):
        tokens = some_tokens(batch, random.randint(64, 256))
        with torch.no_grad():
            for _ in range(12):
                following = torch.softmax(actor(tokens)[:, -1].float(), -1).argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, following], 1)
            expected = F.log_softmax(reference(tokens).float(), -1).gather(-1, tokens[..., None])
        for _ in range(2):
            for part in range(0, batch, batch // 2):
                chosen = tokens[part:part + batch // 2]
                with torch.autocast("cuda", torch.bfloat16):
                    found = F.log_softmax(actor(chosen).float(), -1).gather(-1, chosen[..., None])
                (found - expected[part:part + batch // 2]).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()


def train_with_checkpoints(steps: int = 10) -> None:
    model = LanguageModel(8, checkpoints=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        for _ in range(2):
            tokens = some_tokens(4, 1024)
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


PROGRAMS = {"gan": train_gan, "preferences": learn_preferences, "checkpoints": train_with_checkpoints}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("file")
    arguments = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(max_entries=3_000_000, context=None)
    PROGRAMS[arguments.program]()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(arguments.file)
