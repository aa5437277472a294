"""GAPLESS_CONF=check:...: mistakes that a program makes on GPU memory are told; good programs are left alone."""
import json
import pathlib
import re
import subprocess

import pytest

from conftest import GAPLESS, PACKAGE

PROGRAM = pathlib.Path(__file__).parent / "programs" / "mistakes.py"


@pytest.fixture
def run(simulate):
    def start(mistake: str, conf: str, *words: str, check: bool = True, **environment: str):
        code = (f"import runpy, sys; sys.path.insert(0, {str(PACKAGE)!r}); sys.argv = {[str(PROGRAM), mistake, *words]!r}; "
                f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')")
        return simulate(code, gapless=True, check=check, GAPLESS_CONF=conf, **environment)
    return start


def told(result) -> list[str]:
    return [line for line in result.err.splitlines() if line.startswith("gapless: check:")]


@pytest.mark.one_torch
@pytest.mark.parametrize("conf", ["check:poison", "check:redzones", "check:poison+redzones", "check:fence",
                                  "check:poison+redzones,fence:1/3"])
@pytest.mark.thorough(but=2)
def test_good_programs_are_left_alone(run, conf):
    result = run("good", conf)
    assert told(result) == []
    assert result.values()["sorted"] == "[1, 2, 3]"


def test_writing_behind_a_tensor_is_told_with_its_line(run):
    line, = told(run("behind", "check:redzones"))
    assert "4 bytes were written behind the end of a block of 1000 bytes, the first 0 bytes behind it" in line
    assert re.search(r"allocated at \S*mistakes\.py:\d+ \(behind\)", line), line
    number = int(re.search(r"mistakes\.py:(\d+)", line).group(1))
    assert "torch.zeros(1000" in PROGRAM.read_text().splitlines()[number - 1]


def test_writing_before_a_tensor_is_told(run):
    line, = told(run("before", "check:redzones"))
    assert "16 bytes were written before the begin of a block of 1048576 bytes, the first 16 bytes before it" in line


def test_memory_is_checked_on_demand(run):
    values = run("on_demand", "check:redzones").values()
    assert values["before"] == "0"
    assert values["kind"] == "behind" and values["first offset"] == "1003"
    assert "mistakes.py" in values["call site"]


def test_asking_without_checks_says_how_to_have_them(run):
    result = run("on_demand", "", check=False)
    assert "GAPLESS_CONF=check:" in result.err and result.status != 0


def test_writing_after_free_is_told_when_memory_is_given_out_again(run):
    result = run("after_free", "check:poison")
    assert result.values()["the same"] == "True"
    line, = told(result)
    assert "8 bytes of a block of 5000 bytes were written after it was freed, the first at byte 100" in line
    assert "(after_free)" in line


def test_large_memory_is_looked_through_on_the_device(run, tmp_path):
    result = run("large_after_free", "check:poison")
    assert result.values()["the same"] == "True"
    line, = told(result)
    assert "8 bytes of a block of 5242880 bytes were written after it was freed, the first at byte 4194307" in line


def test_memory_that_was_never_written_is_no_number(run):
    assert run("never_written", "check:poison").values()["nan"] == "True True"
    assert run("never_written", "").values()["nan"] == "False False"


def test_freed_memory_is_no_number(run):
    assert run("read_after_free", "check:poison").values()["word"] == "0xffffffff"


@pytest.mark.parametrize("conf", ["check:fence", "fence:4KiB-8KiB", "fence:mistakes.py:{line}"])
@pytest.mark.thorough(but=1)
def test_a_fence_makes_an_overrun_fault(run, conf):
    lines = PROGRAM.read_text().splitlines()
    line = lines.index("def far_behind() -> None:") + 2
    result = run("far_behind", conf.format(line=line), check=False)
    assert result.status != 0
    assert "illegal memory access" in result.err or "ILLEGAL_ADDRESS" in result.err
    assert run("far_behind", "").status == 0  # unseen else


def test_a_fence_makes_use_after_free_fault_and_the_dump_knows_whose_it_was(run, tmp_path):
    dump = tmp_path / "dump.json"
    values = run("long_after", "check:fence", str(dump), check=False).values()
    assert "illegal" in values["error"].lower()
    address = int(values["address"])

    def inspect(*words: str) -> str:
        return subprocess.run([str(GAPLESS), "inspect", str(dump), "--address", *words], capture_output=True,
                              text=True, check=True).stdout

    text = inspect(hex(address + 12))
    assert "at byte 12 of a block of 4.88 KiB (5000 bytes)" in text and "(long_after), which was freed" in text
    assert "100 bytes behind the end of" in inspect(hex(address + 5099))
    entry, = json.loads(inspect(str(address), "--json"))
    assert entry["freed"][0]["requested_bytes"] == 5000 and "block" not in entry


def test_a_program_can_be_stopped_where_it_went_wrong(run):
    result = run("behind", "check:redzones,check_stop:true", check=False)
    assert result.status == -6 and len(told(result)) == 1


def test_wrong_words_are_refused(run):
    result = run("good", "check:poisen", check=False)
    assert result.status != 0
    assert 'option check: "poisen": expected poison, redzones, fence' in result.err
