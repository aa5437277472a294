"""The losses in models that DDP and FSDP2 wrap, on two ranks of CPUs: gradients are those of one process with all rows.
Under torchrun. Prints "name: ok" or "name: the error"."""
import os
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gapless
import gapless.nn.functional as G

ROWS, HIDDEN, VOCABULARY = 8, 16, 48


class Model(torch.nn.Module):
    """A body, and a head whose loss is computed in the forward pass, as Hugging Face's models do."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(1)
        self.body = torch.nn.Linear(HIDDEN, HIDDEN)
        self.lm_head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.loss = loss

    def forward(self, rows, labels):
        hidden = torch.nn.functional.gelu(self.body(rows))
        if self.loss == "linear":
            return G.linear_cross_entropy(hidden, self.lm_head.weight, labels, pieces=2)
        logits = self.lm_head(hidden)
        return torch.nn.functional.cross_entropy(logits, labels) if self.loss == "torch" else G.cross_entropy(logits, labels)


def data():
    torch.manual_seed(2)
    return torch.randn(2 * ROWS, HIDDEN), torch.randint(0, VOCABULARY, (2 * ROWS,))


def of_one_process():
    model = Model("torch")
    model(*data()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def whole(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def check(model, module):
    rank = dist.get_rank()
    rows, labels = (part[rank * ROWS:(rank + 1) * ROWS] for part in data())
    for _ in range(2):  # the second time hooks and shards are as they stay
        model.zero_grad()
        model(rows, labels).backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(whole(parameter.grad), of_one_process()[name], msg=lambda text, name=name: f"{name}: {text}")


def ddp(loss):
    module = Model(loss)
    check(DistributedDataParallel(module, gradient_as_bucket_view=True), module)


def fsdp(loss):
    module = Model(loss)
    for part in (module.body, module):
        fully_shard(part, mesh=MESH)
    check(module, module)


def patched_llama():
    """With its layers sharded and its head in DDP's, or FSDP's, hands."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=2)
    ids = torch.arange(4 * 12).view(4, 12) * 7 % 64

    def made():
        torch.manual_seed(3)
        return LlamaForCausalLM(config)

    one = made()
    one(input_ids=ids, labels=ids).loss.backward()
    wanted = {name: parameter.grad for name, parameter in one.named_parameters()}
    for wrapped in "ddp", "fsdp":
        module = made()
        gapless.patch_loss(module, quiet=True)
        if wrapped == "fsdp":
            fully_shard(module, mesh=MESH)
        model = DistributedDataParallel(module) if wrapped == "ddp" else module
        mine = ids[2 * dist.get_rank():][:2]
        model(input_ids=mine, labels=mine).loss.backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(whole(parameter.grad), wanted[name],
                                       msg=lambda text, name=name, wrapped=wrapped: f"{wrapped} {name}: {text}")


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (2,))
for name, run in {**{f"{how.__name__} {loss}": lambda how=how, loss=loss: how(loss)
                     for how in (ddp, fsdp) for loss in ("torch", "logits", "linear")}, "patched llama": patched_llama}.items():
    try:
        run()
        said = "ok"
    except Exception:
        traceback.print_exc()
        said = traceback.format_exc().splitlines()[-1][:300]
    every = [None, None]
    dist.all_gather_object(every, said)
    if dist.get_rank() == 0:
        print(f"{name}: {'ok' if every == ['ok', 'ok'] else every}", flush=True)
dist.destroy_process_group()
os._exit(0)  # PyTorch 2.11's gloo may wait at its end
