"""Train a T5 of ChatLM-mini's sizes (188 M parameters, 29,298 tokens), or T5-small, with accelerate.

Sources and targets of 64 to 256 tokens, each batch as long as its longest: no two have the same sizes.
What is largest are the logits, batch x target x 29,298 numbers, which the loss wants in float32.

    accelerate launch --num_processes 3 --multi_gpu --mixed_precision bf16 examples/chatlm_t5.py    on GPUs
    torchrun --nproc-per-node 3 examples/chatlm_t5.py                                               the same
    gapless dryrun --gpu 3x19.58GiB -- torchrun --nproc-per-node 3 examples/chatlm_t5.py            without one
    gapless fits --gpu 19.58GiB -- python examples/chatlm_t5.py --batch 24

It needs transformers and accelerate (pip install transformers accelerate). Weights and tokens are random:
this is about memory.
"""
import argparse
import random

import torch

SIZES = {  # width, inner width, layers of the encoder and of the decoder, heads, vocabulary
    "chatlm": (768, 3072, 10, 12, 29298),
    "small": (512, 2048, 6, 8, 32128),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="chatlm")
    parser.add_argument("--batch", type=int, default=16, help="of each GPU")
    parser.add_argument("--accumulate", type=int, default=2, help="batches of an optimizer step")
    parser.add_argument("--shortest", type=int, default=64, help="tokens of a source or target")
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", choices=["bf16", "fp16", "no"], default="bf16")
    parser.add_argument("--attention", choices=["eager", "sdpa"], default="eager")
    parser.add_argument("--layers", type=int, help="of the encoder and of the decoder, in place of the model's")
    parser.add_argument("--vocabulary", type=int, help="in place of the model's")
    parser.add_argument("--seed", type=int, default=1, help="for the lengths")
    options = parser.parse_args()
    try:
        from accelerate import Accelerator
        from transformers import T5Config, T5ForConditionalGeneration
    except ImportError as error:
        parser.exit(2, f"{parser.prog}: {error.name} is not installed: pip install transformers accelerate\n")

    width, inner, layers, heads, vocabulary = SIZES[options.model]
    layers, vocabulary = options.layers or layers, options.vocabulary or vocabulary
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=vocabulary, d_model=width, d_ff=inner, d_kv=64, num_layers=layers, num_heads=heads,
        num_decoder_layers=layers, decoder_start_token_id=0, use_cache=False, attn_implementation=options.attention))
    accelerator = Accelerator(mixed_precision=options.precision,
                              gradient_accumulation_steps=options.accumulate)
    parameters = sum(p.numel() for p in model.parameters())
    accelerator.print(f"{parameters / 1e6:.1f} M parameters on {accelerator.num_processes} GPUs", flush=True)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
    lengths = random.Random(options.seed)  # the same on every rank
    for step in range(options.steps):
        for _ in range(options.accumulate):
            source, target = (
                torch.randint(1, vocabulary,
                              (options.batch, lengths.randint(options.shortest, options.longest))).to(accelerator.device)
                for _ in range(2))
            with accelerator.accumulate(model):
                loss = model(input_ids=source, attention_mask=torch.ones_like(source), labels=target).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"step {step}: {source.shape[1]} and {target.shape[1]} tokens last, peak allocated "
                          f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, reserved "
                          f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
