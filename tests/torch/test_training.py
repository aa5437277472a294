"""Training on the simulated GPU: sizes are real, numbers are not."""
import pytest

GPT2 = """
    import resource
    import torch, torch.nn as nn, torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
                       .permute(2, 0, 3, 1, 4))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self, width=768, layers=12, vocabulary=50257):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block(width, 12) for _ in range(layers))
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    with torch.device("cuda"):
        model = Model()
    parameters = sum(p.numel() * 4 for p in model.parameters())
    stats = torch.cuda.memory_stats()
    print("parameters:", parameters,
          stats.get("requested_bytes.all.current") or torch.cuda.memory_allocated())
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        tokens = torch.randint(0, 50257, (4, 512), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    print("after:", torch.cuda.memory_allocated() - 3 * parameters)
    print("host:", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


# What autograd saves, each storage once; with parameters, gradients and states it is all there is
# between forward and backward.
AGREEMENT = GPT2[:GPT2.index("    for step in")] + """
    def step():
        saved = {}
        def keep(tensor):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor
        tokens = torch.randint(0, 50257, (4, 512), device="cuda")
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        torch._C._cuda_clearCublasWorkspaces()  # 8 MiB for each thread, which autograd has not
        allocated = torch.cuda.memory_allocated()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return allocated, saved

    step()
    allocated, saved = step()
    for tensor in model.parameters():
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    states = sum(t.nbytes for s in optimizer.state.values() for t in s.values())
    gradients = sum(p.grad.nbytes for p in model.parameters())
    assert gradients == parameters
    print("allocated:", allocated, parameters + gradients + states + sum(saved.values()))
"""


# The peak of a step in which nothing else is large: few tokens (the gradient of the logits is gone by then), no
# temporaries of the optimizer's, cuBLAS's workspaces small.
PEAK = AGREEMENT.replace("AdamW(model.parameters())", "AdamW(model.parameters(), fused=True)").replace(
    "(4, 512)", "(1, 4)").replace("set_to_none=False", "set_to_none=True").replace(
    "    step()\n    allocated, saved = step()", """    step()
    torch.cuda.reset_peak_memory_stats()
    _, saved = step()
    allocated = torch.cuda.max_memory_allocated()""").replace(
    "    gradients = sum(p.grad.nbytes for p in model.parameters())", "    gradients = parameters")


def test_the_peak_of_a_step_is_parameters_gradients_states_and_what_is_saved(simulate):
    peak, expected = map(int, simulate(PEAK, CUBLAS_WORKSPACE_CONFIG=":16:8").values()["allocated"].split())
    assert abs(peak - expected) <= 0.005 * expected


def test_allocated_is_what_autograd_saves(simulate):
    allocated, expected = map(int, simulate(AGREEMENT).values()["allocated"].split())
    assert abs(allocated - expected) <= 0.005 * expected


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_gpt2_trains(simulate, settings):
    values = simulate(GPT2, gpus="16GiB", PYTORCH_CUDA_ALLOC_CONF=settings).values()
    parameters, allocated = map(int, values["parameters"].split())
    assert allocated == parameters
    # Parameters and two states each; what is left is steps, the tokens, and cuBLAS's workspaces.
    assert 0 <= int(values["after"]) <= 48 << 20
    assert int(values["host"]) <= 1024


def test_a_larger_card_costs_no_more_host_memory(simulate):
    code = """
        import resource, torch
        x = torch.empty({} << 30, dtype=torch.uint8, device="cuda")
        x.zero_()
        print("host:", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
    """
    small = int(simulate(code.format(10), gpus="16GiB").values()["host"])
    large = int(simulate(code.format(70), gpus="A100").values()["host"])
    assert large <= small + 20


def test_training_runs_out_of_memory_as_it_would(simulate):
    result = simulate(GPT2, gpus="4GiB", check=False)
    assert result.status == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in result.err
