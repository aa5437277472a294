"""gapless.nn: losses that are right, on every device, and take little memory; and models that are patched with them."""
import pytest

from conftest import ROOT

PROGRAMS = ROOT / "tests" / "torch" / "programs"
PACKAGE = str(ROOT / "torch_plugin" / "python")


@pytest.fixture
def with_package(simulate):
    """simulate, where gapless can be imported."""
    return lambda code, **how: simulate(code, warm=False, PYTHONPATH=PACKAGE, **how)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.thorough(but=1)
def test_losses_are_those_of_torch(with_package, device):
    values = with_package(f"import runpy, sys; sys.argv[1:] = [{device!r}]\n"
                      f"runpy.run_path({str(PROGRAMS / 'losses.py')!r}, run_name='__main__')", gpus="4GiB").values()
    assert len(values) > 12
    assert {name: value for name, value in values.items() if value != "ok"} == {}


def test_models_have_the_same_loss_and_gradients_when_they_are_patched(with_package):
    values = with_package(f"import runpy; runpy.run_path({str(PROGRAMS / 'patched_models.py')!r})").values()
    assert len(values) > 8
    assert {name: value for name, value in values.items() if value != "ok"} == {}


def test_gradients_are_the_same_under_ddp_and_fsdp(simulate):
    """On the CPU, for of large messages between simulated GPUs only sizes are known."""
    values = simulate("", words=["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend",
                                 "c10d", "--rdzv-endpoint", "localhost:0", str(PROGRAMS / "losses_distributed.py")],
                      PYTHONPATH=PACKAGE, OMP_NUM_THREADS="1").values()
    assert len(values) == 7
    assert {name: value for name, value in values.items() if value != "ok"} == {}


LARGE_VOCABULARY = """
    import gapless, torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    config = Qwen2Config(vocab_size=60000, hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4,
                         num_key_value_heads=4, tie_word_embeddings=False)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    if {patched}:
        gapless.patch_loss(model)
    model.train()
    ids = torch.randint(0, 60000, (2, 2048), device="cuda")
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
    print("logits:", torch.cuda.max_memory_allocated() / (2 * 2048 * 60000 * 2))
"""


@pytest.mark.parametrize("gapless", [pytest.param(False, marks=pytest.mark.one_torch), True])
@pytest.mark.thorough(but=1)
def test_a_patched_model_fits_where_its_logits_do_not(with_package, gapless):
    peak = float(with_package(LARGE_VOCABULARY.format(patched=False), gapless=gapless).values()["logits"])
    result = with_package(LARGE_VOCABULARY.format(patched=True), gapless=gapless)
    patched = float(result.values()["logits"])
    assert peak > 5.9 and patched < 1.7
    assert "gapless: the loss of Qwen2ForCausalLM is computed by gapless: it takes as many pieces as" in result.err
    small = with_package(LARGE_VOCABULARY.format(patched=True), gapless=gapless, gpus="1000MiB")
    assert float(small.values()["logits"]) < 1


def test_there_is_a_clear_answer_where_a_loss_cannot_be_patched(with_package):
    values = with_package("""
        import gapless, torch
        for name, model, how in (("no output layer", torch.nn.ReLU(), "auto"),
                                 ("unknown", torch.nn.ModuleDict({"lm_head": torch.nn.Linear(2, 3)}), "fast"),
                                 ("not there", torch.nn.ModuleDict({"lm_head": torch.nn.Linear(2, 3)}), "cut")):
            try:
                gapless.patch_loss(model, how)
            except gapless.GaplessError as error:
                print(f"{name}: {error}")
        model = torch.nn.ModuleDict({"lm_head": torch.nn.Linear(2, 3)})
        gapless.patch_loss(model, quiet=True)
        try:
            gapless.patch_loss(model)
        except gapless.GaplessError as error:
            print(f"twice: {error}")
        """).values()
    assert values == {
        "no output layer": "ReLU has no output layer that gives logits: no get_output_embeddings(), and no lm_head",
        "unknown": "implementation: 'fast': expected auto, gapless, torch, liger, cut",
        "not there": "implementation: cut: cut_cross_entropy is not installed",
        "twice": "the model's loss is patched already: undo() that first"}
