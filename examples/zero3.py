"""Train with sharded parameters, as ZeRO-3 does: gather a layer just before it is used, on a stream of
its own, and release it right after.

    stream "gather"   [layer 1][layer 2]     [layer 3] ...        all-gather: a buffer of a whole layer
    main stream                [layer 1 runs][layer 2 runs] ...   waits for its layer, then frees it

Buffers of layers' sizes come and go on two streams, between activations of changing length: memory
freed on one stream is wanted by the other while that is still busy.

    python examples/zero3.py                                       on a GPU (rank 0 of --world, alone)
    torchrun --nproc-per-node 4 examples/zero3.py
    gapless dryrun --gpu 24GiB -- python examples/zero3.py         without one

Weights and tokens are random: this is about memory.
"""
import argparse
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Layer:
    """A transformer layer whose weights exist only as this rank's shard, in bfloat16."""

    def __init__(self, options: argparse.Namespace, world: int):
        width = options.width
        self.heads = options.heads
        self.shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
        whole = sum(rows * columns for rows, columns in self.shapes)
        self.shard = torch.zeros(-(-whole // world), dtype=torch.bfloat16, device="cuda")
        self.gradient = torch.zeros_like(self.shard)
        self.states = torch.zeros(3, self.shard.numel(), device="cuda")  # master weights, two moments
        self.world = world

    def gather(self) -> torch.Tensor:
        whole = torch.empty(self.shard.numel() * self.world, dtype=torch.bfloat16, device="cuda")
        if dist.is_initialized():
            dist.all_gather_into_tensor(whole, self.shard)
        else:
            whole.view(self.world, -1)[0] = self.shard
        return whole

    def weights(self, whole: torch.Tensor) -> list[torch.Tensor]:
        found, at = [], 0
        for rows, columns in self.shapes:
            found.append(whole[at:at + rows * columns].view(rows, columns))
            at += rows * columns
        return found

    def scatter(self, whole: torch.Tensor) -> None:
        """Every rank's gradients, of the whole layer, become sums of this rank's shard."""
        if dist.is_initialized():
            dist.reduce_scatter_tensor(self.gradient, whole)
        else:
            self.gradient += whole.view(self.world, -1)[0]

    def run(self, x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        qkv, out, up, down = self.weights(whole)
        batch, length, width = x.shape
        y = F.layer_norm(x, (width,))
        q, k, v = F.linear(y, qkv).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, length, width), out)
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (width,)), up)), down)


class Gatherer:
    """Gathers the next layers ahead of their use, on a stream of its own."""

    def __init__(self, layers: list[Layer], ahead: int):
        self.layers, self.ahead = layers, ahead
        self.stream = torch.cuda.Stream()
        self.there: dict[int, tuple[torch.Tensor, torch.cuda.Event]] = {}

    def start(self, index: int) -> None:
        if 0 <= index < len(self.layers) and index not in self.there:
            with torch.cuda.stream(self.stream):
                whole = self.layers[index].gather()
                self.there[index] = whole, self.stream.record_event()

    def take(self, index: int, step: int) -> torch.Tensor:
        """The layer's weights; those after it (step 1) or before it (-1) are on their way."""
        for i in range(self.ahead + 1):
            self.start(index + i * step)
        whole, ready = self.there.pop(index)
        main = torch.cuda.current_stream()
        main.wait_event(ready)
        whole.record_stream(main)  # freed by the host while the main stream may still read it
        return whole


class Run(torch.autograd.Function):
    """One layer: its weights are gathered for forward, released, and gathered again for backward."""

    @staticmethod
    def forward(context, x, gatherer, index):
        context.save_for_backward(x)
        context.gatherer, context.index = gatherer, index
        return gatherer.layers[index].run(x, gatherer.take(index, 1))

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        layer = context.gatherer.layers[context.index]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            whole = context.gatherer.take(context.index, -1).detach().requires_grad_()
            y = layer.run(x, whole)
        toward_x, toward_weights = torch.autograd.grad(y, (x, whole), gradient)
        layer.scatter(toward_weights)
        return toward_x, None, None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--world", type=int, default=8, help="shards, where no torchrun says how many")
    parser.add_argument("--ahead", type=int, default=2, help="layers gathered ahead of their use")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048, help="longest sequence")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    random.seed(options.seed)
    world = options.world
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl", device_id=device)
        world = dist.get_world_size()

    layers = [Layer(options, world) for _ in range(options.layers)]
    embedding = torch.zeros(options.vocabulary, options.width, dtype=torch.bfloat16, device=device,
                            requires_grad=True)
    gatherer = Gatherer(layers, options.ahead)
    # Backward in this thread: a layer's is Python, which a thread of autograd's must not hold when the
    # program ends.
    torch.autograd.set_multithreading_enabled(False)
    for step in range(options.steps):
        length = random.randint(options.tokens // 4, options.tokens)
        tokens = torch.randint(0, options.vocabulary, (options.batch, length), device=device)
        x = F.embedding(tokens, embedding)
        for index in range(options.layers):
            x = Run.apply(x, gatherer, index)

        def loss(x, tokens):
            return F.cross_entropy(F.linear(x, embedding).float().flatten(0, 1), tokens.flatten())

        # Reentrant: torch 2.11 fails in the other kind while it records its memory history.
        checkpoint(loss, x, tokens, use_reentrant=True).backward()
        for layer in layers:  # AdamW on the shard
            layer.states[1].lerp_(layer.gradient.float(), 0.1)
            layer.states[2].mul_(0.999).addcmul_(layer.gradient.float(), layer.gradient.float(), value=0.001)
            layer.states[0].addcdiv_(layer.states[1], layer.states[2].sqrt() + 1e-8, value=-1e-4)
            layer.shard.copy_(layer.states[0])
            layer.gradient.zero_()
        embedding.grad = None
        print(f"step {step}: peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
              f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
