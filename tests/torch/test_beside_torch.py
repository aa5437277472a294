"""What programs ask of a GPU beside PyTorch: nvidia-smi, NVML, the driver."""
import pytest

pytestmark = pytest.mark.one_torch


def test_what_is_not_simulated_is_named_where_a_program_ends_for_want_of_it(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", status=1, program="""
import ctypes, torch
torch.zeros(1, device="cuda")
raise SystemExit(ctypes.CDLL(None).cuLinkCreate_v2() != 0)
""")
    assert row["not_simulated"] == ["cuLinkCreate_v2"]
    assert row["reason"] == "it ended with status 1; it had asked for what is not simulated: cuLinkCreate_v2"


def test_nvidia_smi_tells_of_simulated_gpus(dryrun):
    """As scripts ask it for the GPU that has most left; NVML has what monitors log."""
    _, rows = dryrun("--gpu", "T4,8GiB", program="""
import subprocess, torch
def ask(*words): return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True)
query = "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"
assert ask(*query).stdout == "0, 0\\n1, 0\\n"
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
before, used = [line.split(", ") for line in ask(*query).stdout.splitlines()]
assert before == ["0", "0"] and used[0] == "1" and 1024 < int(used[1]) < 2048
assert ask("--query-gpu=name,memory.free,fan.speed", "--format=csv", "-i", "0").stdout == (
    "name, memory.free [MiB], fan.speed\\nTesla T4, 15093 MiB, [N/A]\\n")
assert ask("-L").stdout.startswith("GPU 0: Tesla T4 (UUID: GPU-")
assert "0MiB / 15093MiB" in ask().stdout
for words, status in ((("-i", "7"), 6), (("--query-gpu=wrong", "--format=csv"), 2), (("--query-gpu=name",), 2), (("-q",), 2)):
    assert ask(*words).returncode == status, words
try:
    import pynvml
except ImportError:
    pynvml = None
if pynvml:
    assert torch.cuda.utilization() == torch.cuda.power_draw() == 0 and torch.cuda.temperature() == 20
""")
    assert [row["device"] for row in rows] == [1]
