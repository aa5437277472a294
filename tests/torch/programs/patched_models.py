"""Models of transformers as they are and with gapless.patch_loss: prints "name: ok", or what was found."""
import copy
import pickle

import torch
from transformers import (Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM,
                          T5Config, T5ForConditionalGeneration)

import gapless
from gapless.nn._lazy_logits import LazyLogits

CLASSES = 101
SMALL = {"vocab_size": CLASSES, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}
torch.manual_seed(0)
MODELS = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=CLASSES, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0,
                                               embd_pdrop=0, attn_pdrop=0)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(vocab_size=CLASSES, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                                      num_heads=4, decoder_start_token_id=0, dropout_rate=0.0)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=2.0)),
}
ids = torch.randint(1, CLASSES, (2, 12))
labels = ids.clone()
labels[0, :4] = -100


def step(model, **more):
    model.zero_grad()
    output = model(input_ids=ids, labels=labels, **more)
    output.loss.backward()
    return output, output.loss.detach().float(), {
        name: parameter.grad.float().clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def differences(one, other):
    """Of gradients, relative to the largest of each; T5's embedding and others are sums of large terms."""
    return max((one[name] - other[name]).abs().max() / (1e-9 + one[name].abs().max()) for name in one)


def check(model, dtype, autocast=False, **more):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output, loss, gradients = step(model, **more)
        patched = gapless.patch_loss(model, quiet=True)
        lazy, lazy_loss, lazy_gradients = step(model, **more)
    half = dtype != torch.float32 or autocast
    assert isinstance(lazy.logits, LazyLogits) and lazy.logits.shape == output.logits.shape
    assert abs(loss - lazy_loss) < (2e-2 if half else 1e-5), (loss, lazy_loss)
    assert differences(gradients, lazy_gradients) < (4e-2 if half else 1e-5), differences(gradients, lazy_gradients)
    # Whoever asks for the logits gets them.
    assert torch.equal(lazy.logits[:, -1].argmax(-1), output.logits[:, -1].argmax(-1)) and lazy.logits.requires_grad
    torch.testing.assert_close(lazy.logits.detach().float(), output.logits.detach().float())
    model.eval()
    assert type(model(input_ids=ids, labels=labels).logits) is torch.Tensor
    model.train()
    with torch.no_grad():
        assert type(model(input_ids=ids, labels=labels).logits) is torch.Tensor
    head = model.get_output_embeddings()
    assert type(pickle.loads(pickle.dumps(head))) is type(copy.deepcopy(head)) is torch.nn.Linear
    patched.undo()
    patched.undo()
    assert type(head) is torch.nn.Linear and type(step(model)[0].logits) is torch.Tensor


def tell(name, act):
    try:
        act()
        print(f"{name}: ok")
    except Exception as error:
        print(f"{name}: {type(error).__name__} {str(error)[:300]}".replace("\n", " "))


for name, make in MODELS.items():
    for dtype in (torch.float32, torch.bfloat16):
        tell(f"{name} in {dtype}", lambda: check(make().to(dtype).train(), dtype))
tell("under autocast", lambda: check(MODELS["qwen2"]().train(), torch.float32, autocast=True))
tell("with num_items_in_batch", lambda: check(MODELS["qwen2"]().train(), torch.float32, num_items_in_batch=17))


def outside():
    """A loss that the program computes itself, over shifted logits."""
    model = MODELS["qwen2"]().train()

    def own():
        model.zero_grad()
        logits = model(input_ids=ids).logits
        loss = torch.nn.CrossEntropyLoss()(logits[..., :-1, :].contiguous().float().view(-1, CLASSES), labels[..., 1:].reshape(-1))
        loss.backward()
        return loss.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    loss, gradients = own()
    gapless.patch_loss(model, quiet=True)
    lazy_loss, lazy_gradients = own()
    assert abs(loss - lazy_loss) < 1e-5 and differences(gradients, lazy_gradients) < 1e-5


def cast_to_float():
    """As QLoRA's examples have it: the layer's output in float32."""
    class InFloat(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x).to(torch.float32)

    model = MODELS["qwen2"]().to(torch.bfloat16).train()
    model.lm_head = InFloat(model.lm_head)
    loss, gradients = step(model)[1:]
    gapless.patch_loss(model, quiet=True)
    output, lazy_loss, lazy_gradients = step(model)
    assert isinstance(output.logits, LazyLogits) and output.logits.dtype == torch.float32
    assert abs(loss - lazy_loss) < 2e-2 and differences(gradients, lazy_gradients) < 4e-2


def with_a_hook():
    """A layer whose output somebody looks at is asked for it."""
    model = MODELS["qwen2"]().train()
    loss, gradients = step(model)[1:]
    seen = []
    model.lm_head.register_forward_hook(lambda module, arguments, output: seen.append(output.sum().item()))
    gapless.patch_loss(model, quiet=True)
    lazy_loss, lazy_gradients = step(model)[1:]
    assert seen and abs(loss - lazy_loss) < 1e-5 and differences(gradients, lazy_gradients) < 1e-5


tell("outside of the model", outside)
tell("cast to float", cast_to_float)
tell("with a hook", with_a_hook)
