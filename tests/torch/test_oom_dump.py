"""dump_on_oom: what is written where a request fails, and what the message says of it."""
import json
import re
import subprocess

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

PROGRAM = """
import sys, torch
if {record}:
    torch.cuda.memory._record_memory_history(stacks="python")
keep = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(14)]
def ask():
    return torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
for time in range(5):
    try:
        ask()
    except torch.OutOfMemoryError as error:
        print(f"message{{time}}:", repr(str(error)))
"""


def inspect(file):
    done = subprocess.run([GAPLESS, "inspect", "--json", file], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[0]


def test_what_was_live_is_written_and_the_message_says_where(simulate, tmp_path):
    folder = tmp_path / "some folder" / "troubles"
    values = simulate(PROGRAM.format(record=True), gapless=True, GAPLESS_CONF=f"dump_on_oom:{folder}").values()
    names = {file.name for file in folder.iterdir()}
    first, = (file for file in folder.iterdir() if file.name.endswith("-1.pickle"))
    assert len(names) == 3 * 4  # of a program that goes on, the first three
    assert f"Written to {str(first)[:-len('.pickle')]}.*" in values["message0"]
    assert "Written to" not in values["message3"]
    report = inspect(first)
    assert report["at"] == "oom" and report["ended_out_of_memory"]
    assert report["at_moment"]["active_bytes"] == 14 << 30
    assert re.search(r"3\.00 GiB was asked for at <string>:\d+ ask while 14\.00 GiB was in use", report["findings"][0]["text"])
    dump = inspect(first.with_suffix(".dump.json"))
    assert dump["total"]["allocated_bytes"] == 14 << 30
    why = json.loads(first.with_suffix(".report.json").read_text())
    assert why["asked_bytes"] == 3 << 30 and why["live_bytes"] == 14 << 30
    message = first.with_suffix(".txt").read_text()
    assert message.startswith("CUDA out of memory. Tried to allocate 3.00 GiB.")


def test_without_a_history_the_snapshot_has_what_lay_where(simulate, tmp_path):
    simulate(PROGRAM.format(record=False), gapless=True, GAPLESS_CONF=f"dump_on_oom:{tmp_path}")
    report = inspect(next(tmp_path.glob("*-1.pickle")))
    assert not report["has_events"]
    assert report["total"]["allocated_bytes"] == 14 << 30


def test_a_folder_that_cannot_be_written_is_told_in_the_message(simulate, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    values = simulate(PROGRAM.format(record=False), gapless=True, GAPLESS_CONF=f"dump_on_oom:{file}").values()
    assert "dump_on_oom:" in values["message0"] and str(file) in values["message0"]
    assert file.read_text() == ""


def test_the_first_line_says_what_would_make_it_fit(simulate):
    values = simulate(PROGRAM.format(record=False), gapless=True).values()
    first = eval(values["message0"]).splitlines()[0]
    assert first.endswith("is reserved by PyTorch but unallocated. It is 1.41 GiB short: keep 1.41 GiB less alive: a smaller batch, "
                          "shorter sequences, checkpointing.")
    assert "expandable_segments" not in values["message0"]
