"""What the host reads back is right where it can be known."""
from conftest import ROOT


def test_small_numbers(simulate):
    program = ROOT / "tests" / "torch" / "programs" / "small_numbers.py"
    values = simulate(f"import runpy; runpy.run_path({str(program)!r})").values()
    assert len(values) > 30
    assert {name: value for name, value in values.items() if value != "ok"} == {}


def test_a_tensor_does_not_begin_with_what_was_there_before(simulate):
    values = simulate("""
        import torch
        wrong = 0
        for _ in range(20):
            torch.full((64,), 7, dtype=torch.int64).cuda()
            wrong += any(torch.empty(64, dtype=torch.int64, device="cuda").tolist())
        print("wrong:", wrong)
        """).values()
    assert values["wrong"] == "0"
