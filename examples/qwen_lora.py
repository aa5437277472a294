"""Fine-tune a model of Qwen1.5-7B's sizes with LoRA on one card of 16 GB.

The base weights are 4-bit numbers, two to a byte, unpacked to bfloat16 where they are used; LoRA
adapters are trained on every projection; layers are recomputed in the backward pass; the batch has
another length in every step; the logits are computed in float32, as transformers does (--loss: other ways):
2 x 2048 x 151936 x 4 B = 2.32 GiB, the request that fails first.

    python examples/qwen_lora.py                                       on a GPU
    gapless dryrun --gpu 16GiB -- python examples/qwen_lora.py         without one

Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def unpack(packed: torch.Tensor, scale: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """The bfloat16 weights of packed 4-bit ones; each run of 64 has a scale of its own."""
    weight = torch.empty(packed.numel(), 2, dtype=torch.bfloat16, device=packed.device)
    weight[:, 0] = (packed & 15).sub_(8)
    weight[:, 1] = (packed >> 4).sub_(8)
    return weight.view(-1, 64).mul_(scale[:, None]).view(shape)


class PackedMatmul(torch.autograd.Function):
    """x @ weight.T, keeping the packed weight for the backward pass, not the unpacked one."""

    @staticmethod
    def forward(ctx, x, packed, scale, shape):
        ctx.save_for_backward(packed, scale)
        ctx.shape = shape
        return x @ unpack(packed, scale, shape).t()

    @staticmethod
    def backward(ctx, grad):
        packed, scale = ctx.saved_tensors
        return grad @ unpack(packed, scale, ctx.shape), None, None, None


class LoraLinear(nn.Module):
    """A frozen 4-bit projection and a trained low-rank one beside it."""

    def __init__(self, inputs: int, outputs: int, rank: int):
        super().__init__()
        self.shape = (outputs, inputs)
        count = inputs * outputs
        self.register_buffer("packed", torch.zeros(count // 2, dtype=torch.uint8))
        self.register_buffer("scale", torch.ones(count // 64, dtype=torch.bfloat16))
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x):
        base = PackedMatmul.apply(x, self.packed, self.scale, self.shape)
        return base + self.up(self.down(x.float())).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, rank: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.o = (LoraLinear(width, width, rank) for _ in range(4))
        self.gate, self.up = LoraLinear(width, inner, rank), LoraLinear(width, inner, rank)
        self.down = LoraLinear(inner, width, rank)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (projection(y).view(batch, length, self.heads, -1).transpose(1, 2)
                   for projection in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(
            Layer(options.width, options.heads, options.inner, options.rank)
            for _ in range(options.layers))
        self.norm = RMSNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False, dtype=torch.bfloat16)
        self.embedding.requires_grad_(False)
        self.head.requires_grad_(False)

    def forward(self, tokens):
        """What the head makes logits of."""
        x = self.embedding(tokens).requires_grad_()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.norm(x)


def loss_of(model: Model, tokens: torch.Tensor, how: str) -> torch.Tensor:
    """Of each token, from those before it."""
    labels = tokens[:, 1:].flatten()
    if how == "float32":  # as transformers does
        logits = model.head(model(tokens)).float()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels)
    rows, head = model(tokens)[:, :-1].flatten(0, 1), model.head.weight
    if how == "torch":
        return F.linear_cross_entropy(rows, head, labels, options=nn.LinearCrossEntropyOptions())
    from gapless.nn import functional as G
    if how == "logits":
        return G.cross_entropy(rows @ head.t(), labels)
    return G.linear_cross_entropy(rows, head, labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048, help="longest sequence")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--inner", type=int, default=11008)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--fixed", action="store_true", help="every batch is as long as allowed")
    parser.add_argument("--loss", choices=["float32", "logits", "pieces", "torch"], default="float32",
                        help="of logits in float32; gapless.nn's, of logits as they are, or of pieces of them; torch's own "
                             "of pieces (from 2.13)")
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    lengths = random.Random(options.seed)
    with torch.device("cuda"):
        model = Model(options)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for step in range(options.steps):
        # Batches are padded to their longest sequence; some are as long as allowed.
        length = options.tokens
        if not options.fixed:
            length = min(length, lengths.randint(options.tokens // 8, options.tokens * 5 // 4))
        tokens = torch.randint(0, options.vocabulary, (options.batch, length), device="cuda")
        loss = loss_of(model, tokens, options.loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {length} tokens, peak allocated "
              f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, reserved "
              f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
