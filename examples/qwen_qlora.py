"""Fine-tune a model of Qwen1.5-7B's sizes with peft's LoRA over bitsandbytes' 4-bit weights.

What the usual recipe does: every projection but the head in 4 bits (NF4, scales quantised too),
prepare_model_for_kbit_training, which casts all that is left to float32 (the embedding and the head,
151,936 x 4,096 each), layers computed again in the backward pass, LoRA on all seven projections.
Batches are padded to their longest: most steps have another length. --fixed: all are as long as allowed.

    python examples/qwen_qlora.py                                       on a GPU
    gapless dryrun --gpu 24GiB -- python examples/qwen_qlora.py         without one
    gapless fits --gpu 16GiB -- python examples/qwen_qlora.py --batch 1 --rank 32
    gapless dryrun --gpu 16GiB -- python examples/qwen_qlora.py --fixed --patch-loss

It needs transformers, peft and bitsandbytes (pip install transformers peft bitsandbytes);
examples/qwen_lora.py needs none of them. Weights and tokens are random: this is about memory.
"""
import argparse
import random

import torch
from torch import nn

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def quantised(model: nn.Module, linear4bit, params4bit) -> nn.Module:
    """The model, made on no device, on the GPU: as from_pretrained(BitsAndBytesConfig(load_in_4bit=True))
    leaves it. One weight at a time is in bfloat16."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name != "lm_head":
                small = linear4bit(child.in_features, child.out_features, bias=child.bias is not None,
                                   compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=True,
                                   device="meta")
                weight = torch.empty(child.weight.shape, dtype=torch.bfloat16)
                small.weight = params4bit(weight, requires_grad=False, quant_type="nf4",
                                          compress_statistics=True, module=small).to("cuda")
                setattr(module, name, small)
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            if value.is_meta:
                setattr(module, name, nn.Parameter(torch.zeros_like(value, device="cuda")))
        for name, value in list(module.named_buffers(recurse=False)):
            if value.is_meta:
                module.register_buffer(name, torch.ones_like(value, device="cuda"), persistent=False)
    model.is_loaded_in_4bit = True
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048, help="longest sequence")
    parser.add_argument("--rank", type=int, default=64, help="of LoRA")
    parser.add_argument("--fixed", action="store_true", help="every batch is as long as allowed")
    parser.add_argument("--patch-loss", action="store_true",
                        help="gapless.patch_loss: the loss without all of the logits, and without their float32 copy")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--inner", type=int, default=11008)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--seed", type=int, default=0, help="for the lengths")
    options = parser.parse_args()
    try:
        import bitsandbytes
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError as error:
        parser.exit(2, f"{parser.prog}: {error.name} is not installed: pip install transformers peft bitsandbytes\n")

    config = Qwen2Config(
        vocab_size=options.vocabulary, hidden_size=options.width, intermediate_size=options.inner,
        num_hidden_layers=options.layers, num_attention_heads=options.heads, num_key_value_heads=options.heads,
        max_position_embeddings=32768, tie_word_embeddings=False, use_cache=False)
    with torch.device("meta"):
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    model = quantised(model, bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Params4bit)
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    print(f"base model: {torch.cuda.memory_allocated() / 2**30:.2f} GiB", flush=True)
    model = get_peft_model(model, LoraConfig(
        r=options.rank, lora_alpha=2 * options.rank, lora_dropout=0.05, task_type="CAUSAL_LM",
        target_modules=PROJECTIONS))
    model.train()
    if options.patch_loss:
        import gapless
        gapless.patch_loss(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    lengths = random.Random(options.seed)
    for step in range(options.steps):
        length = options.tokens
        if not options.fixed:
            length = min(length, lengths.randint(options.tokens // 8, options.tokens * 5 // 4))
        tokens = torch.randint(0, options.vocabulary, (options.batch, length)).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {length} tokens, peak allocated "
              f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, reserved "
              f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
