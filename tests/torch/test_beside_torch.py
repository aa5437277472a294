"""What programs ask of a GPU beside PyTorch: nvidia-smi, NVML, the driver, a CUDA runtime of their own."""
import shutil
import subprocess

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch


def test_what_is_not_simulated_is_named_where_a_program_ends_for_want_of_it(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", status=1, program="""
import ctypes, torch
torch.zeros(1, device="cuda")
raise SystemExit(ctypes.CDLL(None).cuLinkCreate_v2() != 0)
""")
    assert row["not_simulated"] == ["cuLinkCreate_v2"]
    assert row["reason"] == "it ended with status 1; it had asked for what is not simulated: cuLinkCreate_v2"


def test_the_runtime_of_another_cuda_is_named(dryrun, tmp_path):
    """PyTorch's, up to 2.10, is that of CUDA 12."""
    source = tmp_path / "runtime.c"
    source.write_text("""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        int cudaGetDeviceCount(int* count) {
          int (*table)(const void**, const void*) = dlsym(RTLD_DEFAULT, "cuGetExportTable");
          const void* found;
          return table(&found, 0);
        }""")
    library = tmp_path / "libcudart.so.12"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    program = f"import ctypes; assert ctypes.CDLL({str(library)!r}).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())) != 0"
    for more, status in (("", 0), ("; raise SystemExit(5)", 5)):
        text, rows = dryrun("--gpu", "1GiB", program=program + more, status=status)
        assert rows == [] and f"libcudart.so.12 is the runtime of another CUDA ({library})" in text
        assert "use PyTorch 2.11 or newer" in text.splitlines()[-1]


def test_a_runtime_linked_into_the_program_is_named(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    source = tmp_path / "program.cu"
    source.write_text("int main() { int count; return cudaGetDeviceCount(&count); }")
    for kind, words in (("static", "has the CUDA runtime linked into it"), ("shared", "the program used no GPU")):
        program = tmp_path / kind
        subprocess.run(["nvcc", "-cudart", kind, "-o", program, source], check=True)
        done = subprocess.run([GAPLESS, "dryrun", "--", program], capture_output=True, text=True, check=False)
        assert words in done.stderr
        assert (done.returncode == 0) == (kind == "shared")


def test_what_found_no_gpu_beside_torch_is_not_counted(dryrun, tmp_path):
    """A library with the CUDA runtime linked into it counts the GPUs, and goes on without any."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    (tmp_path / "speech.cu").write_text('extern "C" int gpus() { int count = 0; cudaGetDeviceCount(&count); return count; }')
    subprocess.run(["nvcc", "-cudart", "static", "-shared", "-Xcompiler", "-fPIC", "-o", "libspeech.so", "speech.cu"], cwd=tmp_path,
                   check=True)
    text, (row,) = dryrun("--gpu", "1GiB", program="""
import ctypes, torch
torch.zeros(1, device="cuda")
assert ctypes.CDLL("./libspeech.so").gpus() == 0
""")
    assert row["verdict"] == "not known" and "the CUDA runtime linked into libspeech.so cannot run" in row["reason"], text


def test_a_runtime_that_a_wheel_brought_is_the_simulated_one(dryrun, tmp_path):
    """torchvision's, for one, of which vLLM opens the path; it was opened before there was a GPU, or is afterwards."""
    (tmp_path / "runtime.c").write_text("int cudaRuntimeGetVersion(int* version) { *version = 7; return 0; }\n"
                                        "int cudaOfItsOwn(void) { return 8; }\n")
    for name in "libcudart.faf08d9a.so.13", "libcudart.faf08d9a.so.12", "libown.so.13":
        subprocess.run(["cc", "-shared", "-fPIC", "runtime.c", "-o", name], cwd=tmp_path, check=True)
    dryrun("--gpu", "1GiB", program="""
import ctypes, os, pathlib, torch
here = os.getcwd() + "/"
def version(library):
    number = ctypes.c_int()
    assert library.cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    return number.value
name = "libcudart.faf08d9a.so.13"
early, bound = ctypes.CDLL(here + name), ctypes.CDLL(here + name)
asked = bound.cudaRuntimeGetVersion
own = bound.cudaOfItsOwn
assert version(bound) == 7
torch.zeros(1, device="cuda")
simulated = version(ctypes.CDLL("libcudart.so.13"))
assert simulated >= 13000
assert version(early) == version(bound) == simulated and own() == 8
number = ctypes.c_int()
assert asked(ctypes.byref(number)) == 0 and number.value == simulated
for late in here + name, os.fsencode(here + name), "/opt/cuda/lib64/libcudart.so":
    assert version(ctypes.CDLL(late)) == simulated
for other in "libcudart.faf08d9a.so.12", "libown.so.13":
    assert version(ctypes.CDLL(here + other)) == 7
ctypes.CDLL(None).getpid()
""")


def test_nvidia_smi_tells_of_simulated_gpus(dryrun):
    """As scripts ask it for the GPU that has most left."""
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
for words, status in ((("-i", "7"), 6), (("--query-gpu=wrong", "--format=csv"), 2), (("--query-gpu=name",), 2), (("topo", "-m"), 2)):
    assert ask(*words).returncode == status, words
query = "--query-gpu=utilization.gpu,temperature.gpu,power.draw", "--format=csv,noheader", "--id=1"
assert ask(*query).stdout == "0 %, 20, 0.00 W\\n"
free = [line.split(":")[1] for line in ask("-q", "-d", "Memory").stdout.splitlines() if line.strip().startswith("Free ")]
assert free == [" 15093 MiB", f" {8192 - int(used[1])} MiB"], free
assert "Utilization" in ask("-q").stdout and "Utilization" not in ask("-q", "-d", "MEMORY").stdout
text = "nvidia-smi -q -d Memory | grep -A5 GPU | grep Free"  # as scripts have it, since drivers tell what they reserve
assert [line.split()[2] for line in subprocess.getoutput(text).splitlines()] == ["15093", str(8192 - int(used[1]))]
assert ask("--query-compute-apps=pid,used_memory", "--format=csv").stdout == "pid, used_gpu_memory [MiB]\\n"
assert ask("--query-compute-apps", "pid,name,used_memory", "--format=csv,nounits").stdout == "pid, process_name, used_gpu_memory\\n"
assert ask("--query-compute-apps=pid", "--format=csv,noheader").stdout == ""
assert ask("--query-compute-apps=wrong", "--format=csv").returncode == ask("--query-compute-apps=pid").returncode == 2
said = ask("topo", "-m").stdout
assert said.startswith("Invalid combination of input arguments: simulated GPUs know no topo.\\n") and "-q [-d MEMORY" in said
assert "know no -x." in ask("-q", "-x").stdout
assert ask("--help").returncode == 0 and "-q [-d MEMORY,UTILIZATION]" in ask("--help").stdout
""")
    assert [row["device"] for row in rows] == [1]


def test_nvml_has_what_monitors_log_and_programs_bind_themselves_by(dryrun):
    dryrun("--gpu", "T4,A100", program="""
import ctypes, os, torch
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
def handle(uuid):
    found = ctypes.c_void_p()
    return nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(found)), found
second, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(second)) == 0
assert nvml.nvmlDeviceGetUUID(second, uuid, 96) == 0
status, again = handle(uuid.value)
assert (status, again.value) == (0, second.value)
assert handle(uuid.value[:-1] + b"7")[0] == handle(b"GPU-1")[0] == 6
def ask(name, *words, type=ctypes.c_uint):
    value = type(77)
    assert getattr(nvml, name)(second, *words, ctypes.byref(value)) == 0, name
    return value.value
assert ask("nvmlDeviceGetMinorNumber") == 1
assert ask("nvmlDeviceGetTemperature", 0) == 20 and ask("nvmlDeviceGetPowerUsage") == 0
assert ask("nvmlDeviceGetTotalEnergyConsumption", type=ctypes.c_ulonglong) == 0
assert ask("nvmlDeviceGetClockInfo", 1) == ask("nvmlDeviceGetMaxClockInfo", 1) > 0
rates = (ctypes.c_uint * 2)(77, 77)
assert nvml.nvmlDeviceGetUtilizationRates(second, rates) == 0 and list(rates) == [0, 0]
major, minor = ctypes.c_int(), ctypes.c_int()
assert nvml.nvmlDeviceGetCudaComputeCapability(second, ctypes.byref(major), ctypes.byref(minor)) == 0
assert (major.value, minor.value) == (8, 0)
words = (ctypes.c_ulong * 4)()
assert nvml.nvmlDeviceGetCpuAffinity(second, 4, words) == 0
near = {64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1}
assert near == {one for one in os.sched_getaffinity(0) if one < 256}
torch.zeros(1, device="cuda")
""")
