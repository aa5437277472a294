"""One training run of a model of transformers, of real size, with random weights and data.

    python models.py MODEL [--batch 8] [--length 256] [--steps 4] [--precision fp32|autocast|bf16]
                     [--optimizer adamw|sgd|adafactor] [--checkpointing] [--varying]

Every model is built on the GPU, so it costs the host neither memory nor time. --varying draws another
length for each step, seeded; without it all steps are alike. Unknown names list the models."""
import argparse
import random

# torch and transformers are imported by main(): the names are wanted where torch has no libraries to load.
torch = t = None

# Models of a stack of decoders, of some 100 to 500 million parameters.
SMALL = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16)
GROUPED = dict(SMALL, num_key_value_heads=4)

CAUSAL = {
    "gpt2": lambda: t.GPT2Config(),
    "gpt2-medium": lambda: t.GPT2Config(n_embd=1024, n_layer=24, n_head=16),
    "gpt-neo": lambda: t.GPTNeoConfig(hidden_size=768, num_layers=12, num_heads=12,
                                      attention_types=[[["global", "local"], 6]]),
    "gpt-neox": lambda: t.GPTNeoXConfig(vocab_size=50432, **SMALL),
    "opt": lambda: t.OPTConfig(),
    "bloom": lambda: t.BloomConfig(vocab_size=250880, hidden_size=1024, n_layer=12, n_head=16),
    "llama": lambda: t.LlamaConfig(**GROUPED),
    "qwen2": lambda: t.Qwen2Config(vocab_size=151936, **GROUPED),
    "mistral": lambda: t.MistralConfig(**GROUPED),
    "gemma": lambda: t.GemmaConfig(vocab_size=256000, head_dim=64, **GROUPED),
    "phi": lambda: t.PhiConfig(vocab_size=51200, **SMALL),
    "falcon": lambda: t.FalconConfig(hidden_size=1024, num_hidden_layers=12, num_attention_heads=16),
    "mixtral": lambda: t.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **dict(GROUPED, num_hidden_layers=6)),
}
MASKED = {
    "bert": lambda: t.BertConfig(),
    "bert-large": lambda: t.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                       intermediate_size=4096),
    "roberta": lambda: t.RobertaConfig(vocab_size=50265, max_position_embeddings=514),
    "distilbert": lambda: t.DistilBertConfig(),
    "albert": lambda: t.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "electra": lambda: t.ElectraConfig(embedding_size=768, hidden_size=768, num_attention_heads=12,
                                       intermediate_size=3072),
    "deberta": lambda: t.DebertaV2Config(vocab_size=128100, hidden_size=768, num_hidden_layers=12,
                                         num_attention_heads=12, intermediate_size=3072),
}
PAIRS = {
    "t5": lambda: t.T5Config(decoder_start_token_id=0),
    "t5-base": lambda: t.T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0),
    "bart": lambda: t.BartConfig(d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072,
                                 decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12),
    "pegasus": lambda: t.PegasusConfig(vocab_size=96103, d_model=768, encoder_layers=6, decoder_layers=6),
}
IMAGES = {
    "vit": lambda: t.ViTConfig(num_labels=1000),
    "swin": lambda: t.SwinConfig(num_labels=1000),
    "convnext": lambda: t.ConvNextConfig(num_labels=1000),
    "beit": lambda: t.BeitConfig(num_labels=1000),
}
KINDS = ((CAUSAL, "AutoModelForCausalLM"), (MASKED, "AutoModelForMaskedLM"),
         (PAIRS, "AutoModelForSeq2SeqLM"), (IMAGES, "AutoModelForImageClassification"))
NAMES = [name for models, _ in KINDS for name in models]


def model_of(name):
    for models, auto in KINDS:
        if name in models:
            with torch.device("cuda"):
                return getattr(t, auto).from_config(models[name]())
    raise SystemExit(f"no such model: {name}; known are {', '.join(NAMES)}")


def batch_of(name, model, size, length, generator):
    if name in IMAGES:
        return {"pixel_values": torch.randn(size, 3, model.config.image_size if hasattr(model.config, "image_size")
                                            else 224, 224, generator=generator).cuda(),
                "labels": torch.randint(0, 1000, (size,), generator=generator).cuda()}
    ids = torch.randint(0, min(model.config.vocab_size, 30000), (size, length), generator=generator).cuda()
    return {"input_ids": ids, "labels": ids}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", choices=NAMES)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--length", type=int, default=256, help="tokens; images have 224 x 224 pixels")
    arguments.add_argument("--steps", type=int, default=4)
    arguments.add_argument("--precision", choices=["fp32", "autocast", "bf16"], default="fp32")
    arguments.add_argument("--optimizer", choices=["adamw", "sgd", "adafactor"], default="adamw")
    arguments.add_argument("--checkpointing", action="store_true")
    arguments.add_argument("--varying", action="store_true")
    options = arguments.parse_args()

    global torch, t
    import torch
    import transformers as t
    t.logging.set_verbosity_error()
    torch.manual_seed(0)
    generator, draw = torch.Generator().manual_seed(1), random.Random(2)
    model = model_of(options.model)
    if options.precision == "bf16":
        model = model.to(torch.bfloat16)
    if options.checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD,
                 "adafactor": torch.optim.Adafactor}[options.optimizer](model.parameters())
    for _ in range(options.steps):
        length = draw.randrange(options.length // 4, options.length + 1, 8) if options.varying else options.length
        batch = batch_of(options.model, model, options.batch, length, generator)
        if options.precision == "bf16" and "pixel_values" in batch:
            batch["pixel_values"] = batch["pixel_values"].to(torch.bfloat16)
        with torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "autocast"):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
