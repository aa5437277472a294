"""Train a model of Qwen1.5-0.5B's or 1.8B's sizes under DeepSpeed: ZeRO stage 1, 2 or 3, with and without offload.

    stage 1   optimizer states are shared out among the ranks          --offload optimizer  they are the host's
    stage 2   gradients too                                            --offload all        the weights too
    stage 3   weights too, gathered layer by layer

No stage shares out the logits: batch x tokens x 151,936 numbers, on every rank its own.

    torchrun --nproc-per-node 2 examples/qwen_zero.py --stage 3                                     on GPUs
    gapless dryrun --gpu 2x8GiB -- torchrun --nproc-per-node 2 examples/qwen_zero.py --stage 3      without one
    gapless fits --gpu 8x8GiB --ranks 0 -- torchrun --nproc-per-node 8 examples/qwen_zero.py        one rank for all

It needs transformers and deepspeed (pip install transformers; DS_BUILD_OPS=0 pip install deepspeed), with --lora
peft as well. --cpu-adam takes DeepSpeedCPUAdam, which DeepSpeed compiles when it is first used. Weights and
tokens are random: this is about memory.
"""
import argparse
import os
import random

import torch

SIZES = {  # width, inner width, layers, heads, whether embedding and head are one
    "0.5b": (1024, 2816, 24, 16, True),
    "1.8b": (2048, 5504, 24, 16, False),
}


def configuration(options: argparse.Namespace) -> dict:
    """DeepSpeed's own."""
    zero: dict = {"stage": options.stage}
    if options.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": options.pin}
    if options.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": options.pin}
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
        options.precision: {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="0.5b")
    parser.add_argument("--stage", type=int, choices=[0, 1, 2, 3], default=2)
    parser.add_argument("--offload", choices=["none", "optimizer", "all"], default="none",
                        help="to the host; the weights (all) with stage 3 only")
    parser.add_argument("--pin", action="store_true", help="what is offloaded lies in pinned memory")
    parser.add_argument("--cpu-adam", action="store_true", help="DeepSpeedCPUAdam, where the optimizer is offloaded")
    parser.add_argument("--batch", type=int, default=1, help="of each GPU")
    parser.add_argument("--accumulate", type=int, default=2, help="batches of an optimizer step")
    parser.add_argument("--tokens", type=int, default=1024, help="longest sequence")
    parser.add_argument("--fixed", action="store_true", help="every batch is as long as allowed")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train LoRA's alone; 0: all weights")
    parser.add_argument("--recompute", action="store_true", help="layers are computed again in the backward pass")
    parser.add_argument("--precision", choices=["fp16", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, help="in place of the model's")
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--seed", type=int, default=1, help="for the lengths")
    parser.add_argument("--local_rank", type=int, default=0, help="of deepspeed's launcher")
    options = parser.parse_args()
    if options.offload == "all" and options.stage != 3:
        parser.error("--offload all: weights are offloaded with --stage 3 only")
    if options.cpu_adam and options.offload == "none":
        parser.error("--cpu-adam: nothing is offloaded")
    try:
        import deepspeed
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError as error:
        parser.exit(2, f"{parser.prog}: {error.name} is not installed: pip install transformers; DS_BUILD_OPS=0 "
                       "pip install deepspeed\n")

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", options.local_rank)))
    deepspeed.init_distributed()
    width, inner, layers, heads, tied = SIZES[options.model]
    config = Qwen2Config(
        vocab_size=options.vocabulary, hidden_size=width, intermediate_size=inner,
        num_hidden_layers=options.layers or layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=32768, tie_word_embeddings=tied, use_cache=False)
    settings = configuration(options)
    dtype = torch.float16 if options.precision == "fp16" else torch.bfloat16
    with deepspeed.zero.Init(config_dict_or_path=settings, enabled=options.stage == 3):
        model = Qwen2ForCausalLM._from_config(config, dtype=dtype)
    if options.recompute:
        model.gradient_checkpointing_enable()
    if options.lora:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(
            r=options.lora, task_type="CAUSAL_LM", target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
        model.enable_input_require_grads()
    trained = [p for p in model.parameters() if p.requires_grad]
    if options.cpu_adam:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam(trained, lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(trained, lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    lengths = random.Random(options.seed)  # the same on every rank
    for step in range(options.steps):
        for _ in range(options.accumulate):
            length = options.tokens if options.fixed else lengths.randint(options.tokens // 4, options.tokens)
            tokens = torch.randint(0, options.vocabulary, (options.batch, length)).to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
            del loss
        if engine.global_rank == 0:
            print(f"step {step}: peak allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, reserved "
                  f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
