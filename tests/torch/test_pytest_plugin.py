"""@pytest.mark.gpu_memory, in test suites of other people."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import PACKAGE

pytestmark = pytest.mark.one_torch

# A test that takes what it is told, without PyTorch, so that it takes no time.
PLAIN = """
import ctypes, os, pytest
MiB = 1 << 20

def allocate(bytes):
    address = ctypes.c_void_p()
    assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0, "out of memory"
"""


@pytest.fixture
def suite(tmp_path):
    """suite(*words, test=..., ini=..., conftest=...): (exit status, output, {name: outcome})."""

    def run(*words, ini="", status=0, **files):
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + ini)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        # Plugins that nobody asked for take two seconds of each start.
        named = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "gapless.pytest_plugin", "-p", "no:cacheprovider", "--junit-xml", "said.xml", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            env={**named, "PYTHONPATH": str(PACKAGE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        assert done.returncode == status, done.stdout + done.stderr
        outcomes = {}
        for case in xml.etree.ElementTree.parse(tmp_path / "said.xml").iter("testcase"):
            name = ".".join([*case.get("classname").split(".")[1:], case.get("name")])
            outcomes[name] = case[0].tag if len(case) and case[0].tag in ("failure", "error", "skipped") else "passed"
        return done.stdout, outcomes

    return run


TAKES = PLAIN + """
@pytest.mark.gpu_memory("1GiB", context="0")
def test_it(pytestconfig):
    allocate(int(os.environ["TAKES"]) * MiB)
"""


@pytest.mark.thorough
def test_pytorch_as_it_runs_there(suite):
    text, outcomes = suite(status=1, test_memory="""
import pytest

@pytest.mark.gpu_memory("1GiB", allocator="gapless", context="0")
@pytest.mark.parametrize("blocks", [9, 11])
def test_training(blocks):
    import torch  # which here needs the libraries that the simulated GPU brings
    kept = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for _ in range(blocks)]
    assert torch.cuda.get_allocator_backend() == "gapless"
""")
    assert outcomes == {"test_training[9]": "passed", "test_training[11]": "failure"}
    assert "torch.OutOfMemoryError" in text and "no: 100.00 MiB asked in step 0 (test_memory.py:8)" in text
    assert "test_training[9] (1GiB gapless context 0): 900.00 MiB allocated, 900.00 MiB reserved, no baseline" in text


def test_tests_of_all_kinds(suite):
    text, outcomes = suite("-rA", "--more", "3", status=1, conftest="""
import pytest
def pytest_addoption(parser):
    parser.addoption("--more", type=int, default=0)
@pytest.fixture
def size(request): return 100 + request.config.getoption("--more")
""", test_memory=PLAIN + """
pytestmark = pytest.mark.gpu_memory("1GiB", context="0")

def test_fits(size):
    print("said in the child, of", size)
    allocate(size * MiB)

@pytest.mark.parametrize("blocks", [1, 2, 20])
def test_parametrised(blocks, size, tmp_path):
    for _ in range(blocks): allocate(size * MiB)

class TestClass:
    @pytest.fixture(autouse=True)
    def before(self):
        allocate(MiB)
        yield
        self.after = True
    def test_in_a_class(self, size):
        allocate(size * MiB)

def test_fails():
    allocate(MiB)
    assert 1 == 2

def test_catches():
    allocate(MiB)
    with pytest.raises(AssertionError): allocate(2000 * MiB)

def test_uses_none(): pass
def test_skips(): pytest.skip("not today")
@pytest.mark.skipif(True, reason="never")
def test_is_skipped(): pass
@pytest.mark.xfail
def test_is_expected_to_fail(): allocate(2000 * MiB)
def test_is_killed():
    allocate(MiB)
    os.kill(os.getpid(), 9)
@pytest.fixture
def broken(): raise ValueError("broken fixture")
def test_with_a_broken_fixture(broken): pass
""")
    assert outcomes == {
        "test_fits": "passed", "test_parametrised[1]": "passed", "test_parametrised[2]": "passed",
        "test_parametrised[20]": "failure", "TestClass.test_in_a_class": "passed", "test_fails": "failure",
        "test_catches": "failure", "test_uses_none": "failure", "test_skips": "skipped", "test_is_skipped": "skipped",
        "test_is_expected_to_fail": "skipped", "test_is_killed": "failure", "test_with_a_broken_fixture": "error"}
    assert "said in the child, of 103" in text
    assert "assert 1 == 2" in text and "ValueError: broken fixture" in text
    assert "test_catches: it does not plainly fit: yes, after 1 out of memory" in text
    assert "test_uses_none: it used no GPU" in text
    assert "the test did not come to its end" in text


def test_tests_without_the_mark_run_here(suite):
    _, outcomes = suite(test_plain="import os\ndef test_plain(): assert 'GAPLESS_PYTEST' not in os.environ\n")
    assert outcomes == {"test_plain": "passed"}


def test_a_peak_is_held_to_its_baseline(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("TAKES", "100")
    text, _ = suite("--gpu-memory-update", test_memory=TAKES)
    assert "taken as its baseline" in text
    baseline = tmp_path / "test_memory.gpu_memory.json"
    assert json.loads(baseline.read_text()) == {
        "test_it": {"1GiB native context 0": {"peak_allocated_bytes": 100 << 20, "peak_reserved_bytes": 100 << 20}}}
    before = baseline.read_text()
    suite()
    monkeypatch.setenv("TAKES", "104")
    text, outcomes = suite(status=1)
    assert outcomes == {"test_it": "failure"}
    assert "its peak has grown: 104.00 MiB allocated, +4.00 % against the baseline of 100.00 MiB (1 % are tolerated" in text
    suite("--gpu-memory-tolerance", "5%")
    suite("--gpu-memory-tolerance", "0.05")
    suite(ini="gpu_memory_tolerance = 5%\n")
    suite("--gpu-memory-tolerance", "3%", ini="gpu_memory_tolerance = 5%\n", status=1)
    suite(test_memory=TAKES.replace('context="0"', 'context="0", tolerance=0.05'))
    assert baseline.read_text() == before
    monkeypatch.setenv("TAKES", "60")  # less is well
    suite(test_memory=TAKES)
    monkeypatch.setenv("TAKES", "2000")  # what does not fit is no baseline
    suite("--gpu-memory-update", status=1)
    assert baseline.read_text() == before
    monkeypatch.setenv("TAKES", "104")
    suite("--gpu-memory-update")
    suite()


@pytest.mark.thorough
def test_several_workers_write_one_baseline(suite, tmp_path):
    tests = PLAIN + """
@pytest.mark.gpu_memory("1GiB", context="0")
@pytest.mark.parametrize("size", [1, 2, 4, 6, 8, 10])
def test_it(size): allocate(size * MiB)
def test_plain(): pass
"""
    text, outcomes = suite("-p", "xdist", "-n2", "--gpu-memory-update", test_memory=tests)
    assert set(outcomes.values()) == {"passed"} and len(outcomes) == 7
    baseline = json.loads((tmp_path / "test_memory.gpu_memory.json").read_text())
    assert {name: peaks["1GiB native context 0"]["peak_allocated_bytes"] >> 20 for name, peaks in baseline.items()} == {
        "test_it[1]": 2, "test_it[2]": 2, "test_it[4]": 4, "test_it[6]": 6, "test_it[8]": 8, "test_it[10]": 10}
    assert text.count("taken as its baseline") == 6
    suite("-p", "xdist", ini="addopts = -n2\n")


@pytest.mark.parametrize("mark, told", [
    ("", "missing 1 required positional argument: 'gpu'"),
    ("'16GiB', allocater='gapless'", "unexpected keyword argument 'allocater'"),
    ("'16GiB', tolerance='much'", "could not convert string to float"),
    ("'16GiB', tolerance=-1", "expected a share such as 0.02 or 2%"),
    ("'16GiX'", "--gpu: "),
    ("'16GiB', allocator='none'", "--allocator: ")])
def test_a_wrong_mark_fails_its_test(suite, mark, told):
    text, outcomes = suite(status=1, test_memory=f"import pytest\n@pytest.mark.gpu_memory({mark})\ndef test_it(): pass\n")
    assert outcomes == {"test_it": "failure"} and told in text


def test_a_baseline_that_is_none_is_told(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("TAKES", "100")
    for text in ("{", "[]", '{"test_it": 3}', '{"test_it": {"1GiB native context 0": 3}}'):
        (tmp_path / "test_memory.gpu_memory.json").write_text(text)
        said, outcomes = suite(status=1, test_memory=TAKES)
        assert outcomes == {"test_it": "failure"} and "test_memory.gpu_memory.json" in said


def test_a_test_that_does_not_end(suite):
    text, outcomes = suite(status=1, test_memory=PLAIN + """
import time
@pytest.mark.gpu_memory("1GiB", context="0", timeout=3)
def test_it(): time.sleep(1000)
""")
    assert outcomes == {"test_it": "failure"} and "timed out after 3 seconds" in text


def test_the_mark_is_known(suite):
    suite("--strict-markers", test_memory="import pytest\n@pytest.mark.gpu_memory('1GiB')\ndef test_it(): pytest.skip('no')\n")
