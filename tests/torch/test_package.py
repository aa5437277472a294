"""The package as pip installs it: in an environment of its own, nothing from the build tree.

    pip wheel .  ->  env/bin/gapless, env/lib/.../gapless/{bin,lib,src}  ->  the adapter, built on first use
"""
import dataclasses
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

from conftest import ROOT

# In one piece: two processes write to one pipe.
WHO = "import torch; torch.ones(1000, device='cuda'); print(f'allocator: {torch.cuda.get_allocator_backend()}\\n', end='')"

MARKED = """
import ctypes, pytest
@pytest.mark.gpu_memory("1GiB", context="0")
def test_it():
    assert ctypes.CDLL(None).cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(100 << 20)) == 0
"""


def run(*words, **environment: str) -> str:
    """What a command prints; its whole output where it fails."""
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "LD_PRELOAD") and not name.startswith("GAPLESS")}
    done = subprocess.run(words, env={**variables, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip_install(python: pathlib.Path, *words) -> None:
    """Of this project; one at a time, for all of them build in the same place."""
    run("flock", ROOT / "build" / "wheel.lock", python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        *words, ROOT)


@dataclasses.dataclass
class Environment:
    """A virtual environment; torch and what it needs come from that of these tests."""
    python: pathlib.Path
    packages: pathlib.Path
    home: dict[str, str]  # where what is built on first use is kept

    @property
    def command(self) -> pathlib.Path:
        return self.python.with_name("gapless")

    def simulated(self) -> dict[str, str]:
        """For programs on a simulated GPU that find built what they need."""
        return {**self.home, "SIMGPU_GPUS": "4GiB", "CXX": "/none",
                "LD_PRELOAD": ":".join(map(str, sorted(self.packages.glob("gapless/lib/simgpu/*.so*"))))}


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> Environment:
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path / "env")
    packages = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(python, packages, {"XDG_CACHE_HOME": str(tmp_path / "cache")})


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> str:
    """A compiler: what is built here is looked at, and hardly runs."""
    path = tmp_path / "c++"
    path.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
@pytest.mark.one_torch
def test_what_pip_installs(environment: Environment, quick: str, tmp_path: pathlib.Path):
    python, command, packages, home = environment.python, environment.command, environment.packages, environment.home
    pip_install(python)
    assert not list(packages.glob("gapless/lib/libgapless_torch-*"))

    assert "gpt2" in run(command, "replay", ROOT / "examples" / "traces" / "gpt2-train-eval.gtrace", "--allocator", "gapless")
    # The adapter is built by who needs it first: here the library that dryrun preloads, in one of two
    # processes that begin together; the other one waits.
    script = tmp_path / "train.py"
    script.write_text(WHO)
    told = run(command, "dryrun", "--gpu", "4GiB", "--allocator", "gapless", "--", "sh", "-c",
               f"{python} {script} & {python} {script}; wait", CXX=quick, **home)
    assert told == "allocator: gapless\n" * 2
    assert len(list(tmp_path.glob("cache/gapless/*/libgapless_torch-*.so"))) == 1
    # So is what computes numbers on the simulated GPU, also without gapless.
    assert len(list(tmp_path.glob("cache/gapless/*/libsimgpu_torch-*.so"))) == 1
    script.with_name("computed.py").write_text("import torch; print(torch.arange(5).cuda().sort(descending=True).indices.tolist())")
    assert run(command, "dryrun", "--", python, script.with_name("computed.py"), CXX="/none", **home) == "[4, 3, 2, 1, 0]\n"

    simulated = environment.simulated()
    assert run(python, script, **simulated) == "allocator: native\n"
    assert run(python, script, GAPLESS="1", **simulated) == "allocator: gapless\n"
    assert run(python, "-m", "gapless", script, **simulated) == "allocator: gapless\n"
    assert run(command, "run", "--", python, script, **simulated) == "allocator: gapless\n"
    assert run(python, "-c", f"import gapless; gapless.install(); {WHO}", **simulated) == "allocator: gapless\n"
    assert run(python, "-c", "import gapless; print(gapless.__file__)", **simulated).startswith(str(tmp_path / "env"))

    # The plugin finds the command and the simulated GPU in the package.
    (tmp_path / "test_memory.py").write_text(MARKED)
    told = run(python, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path / "test_memory.py")
    assert "test_it (1GiB native context 0): 100.00 MiB allocated" in told


@pytest.mark.thorough
@pytest.mark.one_torch
def test_what_pip_installs_editable(environment: Environment, quick: str, tmp_path: pathlib.Path):
    """The modules are those of the source tree, what was compiled lies in the environment."""
    python, command, home = environment.python, environment.command, environment.home
    script = tmp_path / "train.py"
    script.write_text(WHO)
    dryrun = (command, "dryrun", "--gpu", "4GiB", "--allocator", "gapless", "--", python, script)
    pip_install(python)
    assert run(*dryrun, CXX=quick, **home) == "allocator: gapless\n"
    pip_install(python, "-e")
    assert run(python, "-c", "import gapless; print(gapless.__file__)").startswith(str(ROOT / "torch_plugin"))
    assert run(python, "-c", "import gapless; print(gapless.config()['limit']['default'])") == "unlimited\n"
    assert run(command, "--version") == "0.1.0\n"
    # Of the same sources, so what was built of them is found.
    assert run(*dryrun, CXX="/none", **home) == "allocator: gapless\n"
    simulated = environment.simulated()
    assert run(python, script, GAPLESS="1", **simulated) == "allocator: gapless\n"
    assert run(python, "-m", "gapless", script, **simulated) == "allocator: gapless\n"


def test_without_torch():
    # What needs none works, what does says so.
    told = run(sys.executable, "-c", f"""
import sys
sys.path.insert(0, {str(ROOT / "torch_plugin" / "python")!r})
sys.modules["torch"] = None                      # as where it is not installed
import gapless
print(gapless.config()["limit"]["default"], gapless.config()["limit"]["value"], gapless.is_installed())
for call in (gapless.report, gapless.install, gapless.memory_stats, gapless.snapshot, gapless.trim, gapless.pluggable_allocator):
    try:
        call()
    except gapless.GaplessError as error:
        print(call.__name__, str(error).split(":")[0])
import os
os.environ["GAPLESS_CONF"] = "limit:14XiB"
try:
    gapless.config()
except gapless.OptionError as error:
    print(error)
""", GAPLESS_CONF="limit:3GiB")
    assert told.splitlines() == [
        "unlimited 3GiB False", *(f"{name} torch cannot be imported" for name in (
            "report", "install", "memory_stats", "snapshot", "trim", "pluggable_allocator")),
        'GAPLESS_CONF: option limit: "14XiB": expected a size such as 2MiB or 14.5GiB']
