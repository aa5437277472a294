"""A tiny Mixtral trains: each token goes to two of its experts, which share the tokens evenly.

Prints "name: ok", or what was found.
"""
import torch
import transformers
from transformers.models.mixtral import modeling_mixtral

config = transformers.MixtralConfig(
    vocab_size=100, hidden_size=256, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=64, output_router_logits=True)
config._experts_implementation = "eager"
model = transformers.MixtralForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters())
loads = []
linear = torch.nn.functional.linear


def count(input, weight, *rest):
    """Remembers how many tokens an expert's first product has."""
    if input.dim() == 2 and weight.shape[-1] == 256 and weight.shape[0] in (64, 128):
        loads.append(input.shape[0])
    return linear(input, weight, *rest)


torch.nn.functional.linear = count
ids = torch.randint(0, 100, (4, 32)).cuda()
for _ in range(2):
    result = model(input_ids=ids, labels=ids)
    result.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
shape = list(result.logits.shape)
print("logits:", "ok" if shape == [4, 32, 100] else shape)
print("loads:", "ok" if loads and set(loads) == {4 * 32 * 2 // 8} else loads)
