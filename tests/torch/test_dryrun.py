"""gapless dryrun, as a user runs it."""
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import termios
from importlib.metadata import version

import pytest

from conftest import GAPLESS, PACKAGE, PROGRAM


def test_a_program_that_fits(dryrun):
    text, rows = dryrun("--gpu", "2GiB", "--context", "200MiB")
    assert "Sizes are real; numbers are where they follow from what the host gave." in text
    (row,) = rows
    assert row["fits"] and row["exit_status"] == 0 and row["steps"] == 8
    assert row["total_bytes"] == 2 << 30
    assert row["peak_allocated_bytes"] == 800 * (1 << 20) + 3 * 4096  # parameter, gradients
    assert row["peak_reserved_bytes"] == 802 << 20
    assert row["peak_used_bytes"] == 1002 << 20


@pytest.mark.one_torch
@pytest.mark.thorough
def test_a_gpu_without_room_for_more(dryrun):
    """How much a program takes can be tried to the page, however little it is."""
    _, (row,) = dryrun("--gpu", "802MiB", "--context", "0")
    assert row["fits"] is True and row["peak_used_bytes"] == row["total_bytes"] == 802 << 20
    _, (row,) = dryrun("--gpu", "102MiB", "--context", "0", arguments=("1",))
    assert row["fits"] is True and row["peak_used_bytes"] == 102 << 20
    _, (row,) = dryrun("--gpu", "100MiB", "--context", "0", arguments=("1",), status=3)
    assert row["fits"] is False and row["out_of_memory"]["line"] == "train.py:8"


def test_one_that_does_not(dryrun):
    text, rows = dryrun("--gpu", "T4:1GiB", "--context", "200MiB", arguments=("20",), status=3)
    (row,) = rows
    assert row["fits"] is False and row["name"] == "Tesla T4"
    oom = row["out_of_memory"]
    assert (oom["asked_bytes"], oom["step"], oom["line"]) == (100 << 20, 8, "train.py:8")
    assert row["end"] == {"how": "exited", "status": 1} and row["exception"]["type"] == "OutOfMemoryError"
    assert f"{row['pid']}: no: 100.00 MiB asked in step 8 (train.py:8), with 800.01 MiB allocated" in text
    assert "torch.OutOfMemoryError: CUDA out of memory." in text  # the program's own


@pytest.mark.one_torch
def test_a_program_whose_name_no_terminal_may_see(dryrun, tmp_path):
    name = os.fsdecode(b"\x1b[2Jevil\xff.py")  # a file's name need not be UTF-8
    (tmp_path / name).write_text(PROGRAM)
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", "T4:1GiB", "--json", tmp_path / "rows.json", "--", sys.executable, name, "20"],
        cwd=tmp_path, capture_output=True, text=True, errors="surrogateescape", timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["out_of_memory"]["line"] == "\x1b[2Jevil\ufffd.py:8"
    table = done.stderr[done.stderr.index("process  gpu"):]
    assert "(\\x1b[2Jevil\ufffd.py:8)" in table
    assert table.replace("\n", "").isprintable()


@pytest.mark.one_torch
def test_json_goes_into_a_pipe_too(tmp_path):
    os.mkfifo(tmp_path / "rows.json")
    reader = os.open(tmp_path / "rows.json", os.O_RDONLY | os.O_NONBLOCK)
    done = subprocess.run(
        [GAPLESS, "dryrun", "--json", tmp_path / "rows.json", "--", "true"], capture_output=True, text=True,
        timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(os.read(reader, 1000)) == []
    os.close(reader)
    assert (tmp_path / "rows.json").is_fifo()


@pytest.mark.parametrize("allocator", ["native", "expandable", "async"])
@pytest.mark.thorough(but=2)
@pytest.mark.one_torch
def test_each_allocator(dryrun, allocator):
    text, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", "--allocator", allocator, arguments=("20",), status=3)
    assert row["allocator"] == allocator
    assert 800 << 20 <= row["peak_allocated_bytes"] <= 803 << 20
    assert row["fits"] is False and row["caught_out_of_memory"] == 0
    oom = row["out_of_memory"]
    assert (oom["asked_bytes"], oom["step"], oom["line"]) == (100 << 20, 8, "train.py:8")
    assert "gapless dryrun: _" not in text  # nothing went wrong in what dryrun itself adds


@pytest.mark.parametrize("words, environment", [
    ([], {"import importlib.util": "importlib.util.find_spec('torch')"}),  # as transformers does first
    (["-I", "-S"], {}),  # which is -E, too
    ([], {"PYTHONPATH": "/nowhere"})])
@pytest.mark.thorough(but=1)
def test_no_way_to_start_python_hides_it(tmp_path, words, environment):
    """Steps, lines and the history come from the part in Python, which nothing that programs do may keep out."""
    lines = [f"import sys; sys.path[:0] = {[path for path in sys.path if 'site-packages' in path]!r}"]
    lines += [f"{name}; {value}" for name, value in environment.items() if name.startswith("import ")]
    (tmp_path / "train.py").write_text("\n".join(lines) + PROGRAM)
    variables = {name: value for name, value in environment.items() if not name.startswith("import ")}
    launcher = ["env", *(f"{name}={value}" for name, value in variables.items())]
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", "1GiB", "--context", "200MiB", "--json", "rows.json", "--record", "run.pickle",
         "--", *launcher, sys.executable, *words, "train.py", "20"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["fits"] is False and row["steps"] == 8
    assert row["out_of_memory"]["line"] == f"train.py:{8 + len(lines) - 1}"
    assert [str(path) for path in tmp_path.glob("run.*.pickle")] == [row["record"]]
    assert f"recorded in {row['record']} (gapless inspect, gapless replay)" in done.stderr


@pytest.mark.one_torch
def test_an_environment_keeps_its_own_sitecustomize(dryrun, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text, _ = dryrun(program="import os, sitecustomize\n"
                             "os.write(2, f\"{sitecustomize.__file__} {os.environ['PYTHONPATH']}\\n\".encode())")
    assert f"{tmp_path}/sitecustomize.py {tmp_path}\n" in text


@pytest.mark.one_torch
def test_peaks_outlive_what_the_program_resets(dryrun):
    _, (row,) = dryrun("--gpu", "2GiB", program="""
import torch
torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
""")
    assert row["peak_allocated_bytes"] == row["peak_reserved_bytes"] == 700 << 20


@pytest.mark.one_torch
def test_one_that_installs_gapless_itself(dryrun, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    _, (row,) = dryrun("--gpu", "2GiB", program="import gapless\ngapless.install()\n" + PROGRAM)
    assert row["allocator"] == "gapless"


@pytest.mark.one_torch
def test_messages_under_gapless_name_call_sites(dryrun):
    # The program records nothing itself.
    text, _ = dryrun("--gpu", "2GiB", "--context", "200MiB", "--allocator", "gapless", arguments=("20",), status=3)
    assert "live by call site: 1.76 GiB in 18 blocks at" in text
    assert "train.py:8 (<module>)" in text
    assert "short of: 54.00 MiB for this request" in text
    # One that does is left alone.
    text, _ = dryrun("--gpu", "2GiB", "--allocator", "gapless", program="""
import torch
torch.cuda.memory._record_memory_history("all", max_entries=3)
for _ in range(9):
    torch.empty(1000, device="cuda")
print("entries:", len(torch.cuda.memory._snapshot()["device_traces"][0]), file=__import__("sys").stderr)
torch.cuda.memory._record_memory_history(None)
print("recorded:", torch._C._cuda_isHistoryEnabled(), file=__import__("sys").stderr)
""")
    assert "entries: 3" in text and "recorded: False" in text


@pytest.mark.one_torch
def test_recorded_history_is_a_trace(dryrun, tmp_path):
    dryrun("--gpu", "2GiB", "--record", str(tmp_path / "run.pickle"))
    (snapshot,) = tmp_path.glob("run.*.pickle")
    done = subprocess.run([GAPLESS, "replay", snapshot, "--allocator", "native", "--json"],
                          capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    assert row["peak_reserved_bytes"] == 802 << 20


@pytest.mark.one_torch
def test_a_checkpointed_program_is_recorded(dryrun, tmp_path):
    """Its recomputation ends with an exception, in the middle of an operator."""
    _, (row,) = dryrun("--gpu", "2GiB", "--record", str(tmp_path / "run.pickle"), program="""
import torch
from torch.utils.checkpoint import checkpoint
linear, drop = torch.nn.Linear(64, 64, device="cuda"), torch.nn.Dropout()
rows = torch.randn(8, 64, device="cuda", requires_grad=True)
checkpoint(lambda x: drop(linear(drop(linear(x)))), rows, use_reentrant=False).sum().backward()
""")
    assert row["fits"] and list(tmp_path.glob("run.*.pickle"))


@pytest.mark.one_torch
@pytest.mark.one_torch
def test_what_a_program_wrote_is_there_in_the_end(tmp_path):
    """Where a cycle of objects holds a file that nobody closes, and where a handler of the program's own writes last."""
    (tmp_path / "train.py").write_text("""import atexit, torch
class Logger:
    def __init__(self, name, mode="w"):
        self.file = open(name, mode)
        self.me = self
plain = open("plain.txt", "w")
atexit.register(plain.write, " and left")
early = Logger("early.txt")
atexit.register(early.file.write, "left")
torch.ones(1 << 20, device="cuda")
text, binary, closed = Logger("text.txt"), Logger("binary", "wb"), Logger("closed.txt")
plain.write("begun")
text.file.write("begun")
binary.file.write(b"bytes")
atexit.register(text.file.write, " and left")
closed.file.close()
""")
    done = subprocess.run([GAPLESS, "dryrun", "--gpu", "2GiB", "--", sys.executable, "train.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    written = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "train.py"}
    assert written == {"plain.txt": "begun and left", "early.txt": "left",
                       "text.txt": "begun and left", "binary": "bytes", "closed.txt": ""}


def test_children_are_reported_too(dryrun):
    program = """
import subprocess, sys, torch
if len(sys.argv) > 2:
    x = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
else:
    x = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
    subprocess.run([sys.executable, "train.py", "child", "300"], check=True)
"""
    _, rows = dryrun("--gpu", "2GiB", program=program, arguments=())
    assert sorted(row["peak_allocated_bytes"] >> 20 for row in rows) == [10, 300]


def test_a_loop_that_waits_for_a_value_is_named(dryrun):
    program = """
import torch
for i in range(1500):
    y = torch.rand(1, device="cuda")
    if y.item() == 12345: break
"""
    text, _ = dryrun("--gpu", "1GiB", program=program.replace("1500", "2500"))
    assert "train.py:5 has read back data that no kernel computed, 1,000 times from the same place" in text


@pytest.mark.one_torch
def test_saving_checkpoints_is_no_loop(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", program="""
import io, torch
net = torch.nn.ModuleList(torch.nn.Linear(2, 2, device="cuda") for _ in range(600))
for step in range(3): torch.save(net.state_dict(), io.BytesIO())
big = torch.rand(1000, device="cuda")
for step in range(1100): big.cpu()
""")
    assert "has read back" not in text and row["fits"] is True


@pytest.mark.one_torch
def test_wrong_words_are_named(dryrun):
    for words, message in ((("--gpu", "A1000"), '"A1000" is no GPU'),
                           (("--gpu", "300MiB"), '"300MiB" is too small: a context takes 424.00 MiB of it'),
                           (("--gpu", "T4", "--context", "20GiB"), "a context takes 20.00 GiB of it"),
                           (("--context", "much"), '--context: "much": expected a size'),
                           (("--allocator", "best"), "--allocator: best not in")):
        text, _ = dryrun(*words, status=2)
        assert message in text
    done = subprocess.run([GAPLESS, "dryrun", "--", "no-such-program"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert "no-such-program: cannot be run: No such file or directory" in done.stderr
    done = subprocess.run([GAPLESS, "dryrun", "--", "true"], capture_output=True, text=True,
                          env=os.environ, check=False)
    assert done.returncode == 0
    assert "the program used no GPU" in done.stderr


@pytest.mark.one_torch
def test_one_that_fails_before_it_uses_a_gpu(dryrun):
    wrong_word = "import argparse; argparse.ArgumentParser().parse_args(['--epoch'])"
    for program, status, message in (("import nowhere", 1, "No module named 'nowhere'"), (wrong_word, 2, "--epoch")):
        text, rows = dryrun(program=program, status=status)
        assert rows == [] and message in text
        assert f"{sys.executable} ended with status {status} before it used a GPU\n" in text
        assert "CUDA build" not in text


@pytest.mark.one_torch
def test_a_torch_without_cuda_is_named(dryrun, tmp_path):
    library = tmp_path / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    program = f"import ctypes; ctypes.CDLL({str(library)!r})"
    for more, status in (("", 0), ("; raise SystemExit(5)", 5)):
        text, rows = dryrun("--gpu", "1GiB", program=program + more, status=status)
        assert f"its torch was built without CUDA ({library}): install the CUDA build" in text
        assert rows == []


PLAIN = """
#include <stdlib.h>
int cudaMalloc(void** memory, size_t bytes);
int cudaFree(void* memory);
int main(int count, char** sizes) {
  int error = 0;
  void* memory;
  for (int i = 1; i < count; ++i) error = cudaMalloc(&memory, (size_t)atoi(sizes[i]) << 20);
  return error;
}
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """plain(sizes in MiB, words): (exit status, standard error, row) of a CUDA program without PyTorch, which returns
    how its last cudaMalloc went."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.c").write_text(PLAIN)
    front = GAPLESS.parents[1] / "lib" / "simgpu"
    subprocess.run(["cc", "plain.c", "-o", "plain", f"-L{front}", "-l:libcudart.so.13", f"-Wl,-rpath,{front}",
                    "-Wl,--allow-shlib-undefined"], cwd=folder, check=True)

    def run(*sizes, words=(), **environment):
        done = subprocess.run([GAPLESS, "dryrun", "--gpu", "1GiB", "--context", "100MiB", *words, "--json", "rows.json",
                               "--", "./plain", *map(str, sizes)], cwd=folder, env={**os.environ, **environment},
                              capture_output=True, text=True, check=False)
        (row,) = json.loads((folder / "rows.json").read_text())
        return done.returncode, done.stderr, row

    return run


@pytest.mark.one_torch
def test_programs_without_pytorch_have_verdicts(plain):
    status, _, row = plain(100)
    assert (status, row["fits"], row["verdict"], row["allocator"]) == (0, True, "yes", "cudaMalloc")
    assert row["peak_used_bytes"] == 200 << 20 and row["peak_allocated_bytes"] is None
    status, text, row = plain(300, 2000)
    assert (status, row["fits"], row["out_of_memory"]["asked_bytes"]) == (3, False, 2000 << 20)
    assert "no: 1.95 GiB asked, with 400.00 MiB in use on GPU 0" in text
    status, _, row = plain(300, 2000, 10)
    assert (status, row["verdict"]) == (0, "yes, after 1 out of memory")


@pytest.mark.one_torch
def test_a_program_is_gapless_only_where_gapless_served_it(plain):
    status, text, row = plain(100, words=("--allocator", "gapless"))
    assert (status, row["allocator"]) == (2, "cudaMalloc")
    assert "its own cudaMalloc served it, not gapless (for such programs preload libgapless_cuda.so)" in text
    library = str(GAPLESS.parents[1] / "lib" / "libgapless_cuda.so")
    status, text, row = plain(100, words=("--allocator", "gapless"), LD_PRELOAD=library)
    assert (status, row["allocator"], row["verdict"]) == (0, "gapless", "yes")


@pytest.mark.one_torch
def test_where_json_goes(tmp_path):
    def run(*words):
        return subprocess.run([GAPLESS, "dryrun", *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("--json", "--", "echo", "of the program")
    assert done.stdout == "of the program\n[]\n" and "used no GPU" in done.stderr
    assert list(tmp_path.iterdir()) == []
    for words in (("--json", "rows.json"), ("--json=rows.json",)):
        done = run(*words, "--", "echo", "of the program")
        assert done.stdout == "of the program\n" and (tmp_path / "rows.json").read_text() == "[]\n"
        (tmp_path / "rows.json").unlink()


@pytest.mark.one_torch
def test_what_cannot_be_written_is_said_before_the_run(tmp_path):
    for words, message in ((("--json", "none/rows.json"), "none/rows.json: --json: cannot be written: No such"),
                           (("--record", "none/run.pickle"), "none/run.pickle: --record: cannot be written: No such")):
        done = subprocess.run([GAPLESS, "dryrun", *words, "--", "touch", "ran"], cwd=tmp_path, capture_output=True,
                              text=True, check=False)
        assert done.returncode == 2 and message in done.stderr
    for folder, cause in (("none", "No such file or directory"), ("file", "Not a directory")):
        (tmp_path / "file").touch()
        done = subprocess.run([GAPLESS, "dryrun", "--", "touch", "ran"], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "TMPDIR": str(tmp_path / folder)}, check=False)
        assert done.returncode == 2
        assert f"{tmp_path / folder}: no temporary folder can be made there: {cause} (TMPDIR says where)" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.one_torch
@pytest.mark.thorough
def test_odd_names_of_folders(tmp_path):
    """Of gapless, of the program and of what is temporary: spaces, colons, other alphabets."""
    home = tmp_path / "my gap: \u043f\u0440\u0438\u043c\u0435\u0440"
    shutil.copytree(GAPLESS.parents[1] / "lib" / "simgpu", home / "lib" / "simgpu")
    for part in ("lib/libgapless_preload.so", "bin/gapless"):
        (home / part).parent.mkdir(exist_ok=True)
        shutil.copy(GAPLESS.parents[1] / part, home / part)
    adapter = GAPLESS.parents[1] / "lib" / f"libgapless_torch-{'.'.join(version('torch').split('.')[:2])}.so"
    allocators = ["native", "gapless"] if adapter.exists() else ["native"]
    if adapter.exists():
        shutil.copy(adapter, home / "lib")
    program = home / "\u043f\u0440\u0438\u043c\u0435\u0440.py"
    program.write_text(PROGRAM)
    for folder in ("tmp", "other"):
        (home / folder).mkdir()
    done = subprocess.run(
        [home / "bin" / "gapless", "dryrun", "--gpu", "1GiB", "--context", "200MiB", "--json", home / "rows.json",
         "--record", home / "run.pickle", "--allocator", ",".join(allocators), "--", sys.executable, program,
         "20"], env={**os.environ, "TMPDIR": str(home / "tmp")}, cwd=home / "other", capture_output=True, timeout=120,
        check=False)
    assert done.returncode == 3, done.stderr
    rows = json.loads((home / "rows.json").read_text())
    assert [(row["allocator"], row["fits"], row["steps"]) for row in rows] == [(each, False, 8) for each in allocators]
    for row in rows:
        assert row["out_of_memory"]["line"] == f"../{program.name}:8"
    assert len(list(home.glob("run.*.pickle"))) == len(allocators)
    assert list((home / "tmp").glob("gapless*")) == []


def test_the_users_line_comes_first(dryrun, tmp_path):
    """Memory that a library asks for in a call of the user's."""
    package = tmp_path / "site-packages" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch\ndef fit(size):\n"
                                         "    return torch.empty(size << 20, dtype=torch.uint8, device='cuda')\n")
    text, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", status=3, program="""
import sys
sys.path.insert(0, "site-packages")
import trainer
def fit(size): return trainer.fit(size)
kept = [fit(size) for size in (100, 900)]
""")
    oom = row["out_of_memory"]
    assert (oom["line"], oom["library_line"]) == ("train.py:5", "trainer/__init__.py:3")
    assert "no: 900.00 MiB asked in step 0 (train.py:5, in trainer/__init__.py:3), with 100.00 MiB allocated" in text


@pytest.mark.one_torch
def test_the_line_of_an_installed_command_is_its_packages(tmp_path):
    """As of yolo, or llamafactory-cli: no line is the user's, and the three that pip wrote say nothing."""
    scripts, packages = tmp_path / "env" / "bin", tmp_path / "env" / "site-packages"
    scripts.mkdir(parents=True)
    for name, text in {"models": "import torch\ndef build(size):\n    return torch.empty(size << 20, device='cuda')\n",
                       "trainer": "import models\ndef main():\n    return models.build(900)\n"}.items():
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(text)
    (scripts / "python3").symlink_to(sys.executable)
    command = scripts / "train"
    command.write_text(f"#!{scripts}/python3\nimport sys\nsys.path[:0] = {[str(packages), *sys.path]}\n"
                       "from trainer import main\nsys.exit(main())\n")
    command.chmod(0o755)
    done = subprocess.run([GAPLESS, "dryrun", "--gpu", "1GiB", "--json", tmp_path / "rows.json", "--", command],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    oom = row["out_of_memory"]
    assert (oom["line"], oom["library_line"]) == ("trainer/__init__.py:3", "models/__init__.py:3")


@pytest.mark.one_torch
def test_what_a_package_wrote_for_itself_is_not_the_users(dryrun, tmp_path):
    """As torch_geometric does, to the folder for temporary files."""
    package = tmp_path / "site-packages" / "graphs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("""
import importlib.util
open("written.py", "w").write("import torch\\ndef take(size): return torch.empty(size << 20, device='cuda')\\n")
spec = importlib.util.spec_from_file_location("graphs.written", "written.py")
written = importlib.util.module_from_spec(spec)
spec.loader.exec_module(written)
""")
    _, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", status=3, program="""
import sys
sys.path.insert(0, "site-packages")
import graphs
graphs.written.take(900)
""")
    oom = row["out_of_memory"]
    assert (oom["line"], oom["library_line"]) == ("train.py:5", "written.py:2")


@pytest.mark.one_torch
def test_the_line_of_what_another_program_sent_is_the_users(tmp_path):
    """As ray's workers do: their main program is a package's, and what they run was the user's __main__; it trains in a
    thread, for which autograd's works."""
    package = tmp_path / "site-packages" / "worker"
    package.mkdir(parents=True)
    (package / "main.py").write_text("""
import sys, threading
def work():
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__name__": "__main__"})
thread = threading.Thread(target=work)
thread.start()
thread.join()
""")
    (tmp_path / "train.py").write_text("""
import torch
w = torch.ones(4 << 20, device="cuda", requires_grad=True)
(w * 2).sum().backward()
""")
    done = subprocess.run([GAPLESS, "fits", "--gpu", "1GiB", "--allocator", "native", "--json", "rows.json", "--", sys.executable,
                           package / "main.py", tmp_path / "train.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert {place["line"] for place in row["memory"]["places"]} == {"train.py:3", "train.py:4"}


@pytest.mark.one_torch
def test_the_line_of_a_kind_of_tensor_is_where_it_is_used(dryrun, tmp_path):
    """As of MONAI's, through whose own lines all goes that is done with it. From another folder, for its name is as
    short as can be."""
    package = tmp_path / "site-packages" / "volumes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("""
import torch
class Volume(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})
""")
    (package / "net.py").write_text("def double(x):\n    return x * 2\n")
    here = tmp_path / "run"
    here.mkdir()
    (tmp_path / "model.py").write_text("import volumes.net\ndef forward(x): return volumes.net.double(x)\n")
    (here / "start.py").write_text("""
import sys
sys.path[:0] = ["..", "../site-packages"]
import torch, volumes, model
model.forward(torch.zeros(90 << 18, device="cuda").as_subclass(volumes.Volume))
""")
    done = subprocess.run([GAPLESS, "dryrun", "--gpu", "300MiB", "--context", "200MiB", "--json", "rows.json", "--", sys.executable,
                           "start.py"], cwd=here, capture_output=True, text=True, timeout=120, check=False)
    (row,) = json.loads((here / "rows.json").read_text())
    assert done.returncode == 3, done.stderr
    assert (row["out_of_memory"]["line"], row["out_of_memory"]["library_line"]) == ("../model.py:2", "volumes/net.py:2")


@pytest.mark.one_torch
def test_the_line_of_compiled_code_is_the_users(dryrun):
    text, (row,) = dryrun("--gpu", "1GiB", "--context", "200MiB", status=3, program="""
import torch
@torch.compile
def grow(x):
    return torch.cat([x.sin()] * 900)
x = torch.zeros(1 << 18, device="cuda")
grow(x)
""")
    assert row["out_of_memory"]["line"] in ("train.py:3", "train.py:7")  # the function that is compiled, or its call
    assert row["out_of_memory"]["library_line"] == "compiled code"


@pytest.mark.one_torch
def test_python_of_a_virtual_environment(dryrun, tmp_path):
    """One that is found by PATH, as after `activate`; torch is not its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "my env"], check=True)
    python = tmp_path / "my env" / "bin"
    (site,) = (tmp_path / "my env" / "lib").glob("python3*/site-packages")
    (site / "more.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [GAPLESS, "dryrun", "--gpu", "2GiB", "--json", "rows.json", "--", "python", "train.py", "3"], cwd=tmp_path,
        env={**os.environ, "PATH": f"{python}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=120,
        check=False)
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert (done.returncode, row["fits"], row["steps"]) == (0, True, 3), done.stderr


def test_unknown_workspaces_make_peaks_lower_bounds(dryrun):
    text, rows = dryrun("--gpu", "2GiB", program="""
import torch
torch.nn.functional.conv2d(torch.zeros(1, 3, 8, 8, device="cuda"), torch.zeros(4, 3, 3, 3, device="cuda"))
""")
    assert "peaks are lower bounds: workspaces of libcudnn.so.9 are not counted" in text
    assert rows[0]["unknown_workspaces"] == ["libcudnn.so.9"]


@pytest.mark.one_torch
@pytest.mark.thorough
def test_processes_share_their_gpus(dryrun):
    program = """
import subprocess, sys
import torch
if len(sys.argv) > 1:
    try:
        torch.empty(800 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("refused", torch.cuda.mem_get_info()[0] >> 20, file=sys.stderr)
else:
    kept = torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
    subprocess.run([sys.executable, "train.py", "child"], check=True)
    del kept
    torch.cuda.empty_cache()
    subprocess.run([sys.executable, "train.py", "child"], check=True)
"""
    text, _ = dryrun("--gpu", "2GiB", "--context", "200MiB", program=program, arguments=())
    assert text.count("refused") == 1
    assert "refused 748" in text  # 2048 - 900 - twice 200


@pytest.mark.one_torch
@pytest.mark.parametrize("command", ["dryrun", "fits"])
def test_what_it_says_is_broken_to_the_terminal(command):
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run([GAPLESS, command, "--gpu", "1GiB", "--", "true"], stdout=subprocess.DEVNULL, stderr=end, env=variables,
                   timeout=60, check=False)
    os.close(end)
    said = os.read(terminal, 65536).decode()
    os.close(terminal)
    lines = [line for each in said.splitlines() for line in each.replace("\x1b[K", "").split("\r")]
    assert max(map(len, lines)) <= 60, lines
    head = f"gapless {command}: on simulated GPUs (1GiB). Sizes are real;"
    assert lines[lines.index(head) + 1] == "numbers are where they follow from what the host gave.", lines
