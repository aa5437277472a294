"""Tiny models with random weights generate as many tokens as they are asked for: greedily, with beams, by sampling.

Prints "name: ok", or what was found.
"""
import torch
import transformers

transformers.logging.set_verbosity_error()


def check(name, found, wanted):
    print(f"{name}: {'ok' if found == wanted else f'{found}, not {wanted}'}")


config = transformers.WhisperConfig(
    vocab_size=200, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=50, max_target_positions=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None)
whisper = transformers.WhisperForConditionalGeneration(config).cuda().eval()
sound = torch.randn(3, 16, 100).cuda()
for name, words in (("greedy", {}), ("beams", {"num_beams": 4}), ("sampling", {"do_sample": True})):
    tokens = whisper.generate(input_features=sound, max_new_tokens=20, **words)
    check(f"Whisper, {name}", list(tokens.shape), [3, tokens.shape[1]])
    check(f"Whisper's length, {name}", 20 <= tokens.shape[1] <= 24, True)

config = transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2, n_positions=64, eos_token_id=299, bos_token_id=298)
gpt2 = transformers.GPT2LMHeadModel(config).cuda().eval()
prompt = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10]]).cuda()
attention = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]).cuda()
for name, words in (("greedy", {}), ("beams", {"num_beams": 3}), ("sampling", {"do_sample": True, "top_k": 5, "top_p": 0.9})):
    tokens = gpt2.generate(prompt, attention_mask=attention, max_new_tokens=12, pad_token_id=0, **words)
    check(f"GPT-2, {name}", list(tokens.shape), [2, 16])
    check(f"GPT-2's prompt, {name}", tokens[:, :4].tolist(), prompt.tolist())
