"""transformers' models from their configurations, trained and generated with: "name: ok"."""
import os
import sys
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def ids(vocabulary, *shape):
    return torch.randint(0, vocabulary, shape).cuda()


def train(model, **batch):
    """Three steps; the states of AdamW are exact to the byte."""
    before = torch.cuda.memory_allocated()
    model = model.cuda()
    parameters = sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    states = sum(t.nbytes for s in optimizer.state.values() for name, t in s.items() if name != "step")
    assert states == 2 * parameters, (states, parameters)
    left = torch.cuda.memory_allocated() - before - 3 * parameters
    assert 0 <= left <= 64 << 20, left


@case
def gpt2():
    tokens = ids(50257, 2, 128)
    train(transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)), input_ids=tokens, labels=tokens)


@case
def gpt2_checkpointed():
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4))
    model.gradient_checkpointing_enable()
    tokens = ids(50257, 2, 128)
    train(model, input_ids=tokens, labels=tokens)


@case
def llama():
    config = transformers.LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4,
                                      num_attention_heads=8, num_key_value_heads=2)
    tokens = ids(32000, 2, 256)
    with torch.autocast("cuda", torch.bfloat16):
        train(transformers.LlamaForCausalLM(config), input_ids=tokens, labels=tokens)


@case
def t5():
    config = transformers.T5Config(num_layers=2, decoder_start_token_id=0, pad_token_id=0)
    tokens = ids(32128, 4, 64)
    train(transformers.T5ForConditionalGeneration(config), input_ids=tokens, labels=tokens,
          attention_mask=torch.ones_like(tokens))


@case
def bert():
    model = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=4))
    train(model, input_ids=ids(30522, 8, 64), labels=torch.zeros(8, dtype=torch.long).cuda())


@case
def vit():
    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_hidden_layers=4))
    train(model, pixel_values=torch.randn(2, 3, 224, 224).cuda(), labels=torch.zeros(2, dtype=torch.long).cuda())


@case
def trainer():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            tokens = torch.arange(64)
            return {"input_ids": tokens, "labels": tokens}

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=4, max_steps=6, report_to=[], bf16=True,
            gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=3, save_steps=3, disable_tqdm=True)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, vocab_size=1000))
        run = transformers.Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows())
        run.train()
        assert run.state.global_step == 6
        assert os.path.isdir(os.path.join(folder, "checkpoint-6"))


@case
def generate():
    """Ends by length: the numbers by which it would end are zeros."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2)).cuda()
    assert model.generate(ids(50257, 2, 10), max_new_tokens=20, do_sample=False).shape == (2, 30)
    assert model.generate(ids(50257, 2, 10), max_new_tokens=20, do_sample=True, top_k=5).shape == (2, 30)
    for stop in (False, True):
        found = model.generate(ids(50257, 2, 10), max_new_tokens=20, num_beams=4, early_stopping=stop)
        assert found.shape == (2, 30)


@case
def load():
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(transformers.BertConfig(num_hidden_layers=1)).save_pretrained(folder)
        model = transformers.BertModel.from_pretrained(folder, device_map="cuda")
        assert next(model.parameters()).is_cuda


if __name__ == "__main__":
    for name, run in CASES.items():
        try:
            run()
            torch.cuda.synchronize()
            said = "ok"
        except Exception as error:  # told, and on to the next
            said = f"{type(error).__name__} {str(error).splitlines()[:1]}"
        print(f"\n{name}: {said}", flush=True)
    sys.exit(0)
