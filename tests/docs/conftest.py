"""A reader who has never seen gapless: an environment of their own with torch, a folder with their program.

    env/bin      python (torch is that of the interpreter that runs these tests), torchrun; what `pip install .`
                 of the README puts there
    checkout/    what git knows of this tree, so that nothing of a developer's is at hand; build/ and the
                 environments that `make` sets up are this tree's, so that `make build` finds all done
    checkout/train.py, snapshot.pickle, program: the reader's own
"""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from printed import ROOT

HERE = pathlib.Path(__file__).resolve().parent
SIMULATED = "build/release/lib/simgpu"


class Reader:
    def __init__(self, folder: pathlib.Path, shared: pathlib.Path):
        self.home = folder
        self.folder = folder / "checkout"
        self._shared = shared
        self._environment = folder / "env"
        self._make_checkout()
        self._make_environment()
        self._add_own_files()
        # What is built on first use is built once for all readers, and hardly runs.
        self._quick = folder / "c++"
        self._quick.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
        self._quick.chmod(0o755)

    def _make_checkout(self) -> None:
        self.folder.mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():  # not deleted since the last commit
                (self.folder / name).write_bytes((ROOT / name).read_bytes())
                (self.folder / name).chmod((ROOT / name).stat().st_mode)
        (self.folder / "build").symlink_to(ROOT / "build")
        for environment in ROOT.glob(".venv*"):
            (self.folder / environment.name).symlink_to(environment.resolve())

    def _make_environment(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", self._environment], check=True)
        python = self._environment / "bin" / "python"
        packages = pathlib.Path(subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True).stdout.strip())
        (packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
        torchrun = self._environment / "bin" / "torchrun"
        torchrun.write_text(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
        # Every reader has the same checkout: what is in the tree is compiled once for all of them.
        (ROOT / "build").mkdir(exist_ok=True)
        pip = self._environment / "bin" / "pip"
        pip.write_text(f"""#!/bin/sh
if [ "$*" = "install ." ]; then set -- install {ROOT}; fi
CXX={os.environ.get("CXX", "c++")} exec flock {ROOT}/build/wheel.lock {python} -m pip "$@"
""")
        pip.chmod(0o755)

    def _add_own_files(self) -> None:
        for name, origin in {"train.py": HERE / "train.py", "program": ROOT / "build/release/bin/cuda_program",
                             "snapshot.pickle": ROOT / "tests/tools/tiny.pickle",
                             "before.pickle": ROOT / "tests/tools/tiny.pickle",
                             "after.pickle": ROOT / "tests/tools/tiny.pickle"}.items():
            shutil.copy(origin, self.folder / name)  # what is printed may write to it

    def install(self) -> None:
        """What README.md says first, unless it was done."""
        done = self.run("python -c 'import gapless' 2>/dev/null || pip install .", timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, command: str, timeout: float = 600) -> subprocess.CompletedProcess:
        """As a shell would, on a machine with two simulated GPUs that look like the real ones."""
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("GAPLESS", "SIMGPU", "PYTHON", "LD_", "VIRTUAL_ENV"))}
        libraries = ROOT / SIMULATED
        variables = {**kept, "PATH": f"{self._environment}/bin:{kept['PATH']}", "HOME": str(self.home),
                     "XDG_CACHE_HOME": str(self._shared), "CXX": str(self._quick),
                     "SIMGPU_GPUS": "16GiB,16GiB", "LD_LIBRARY_PATH": str(libraries),
                     "LD_PRELOAD": ":".join(map(str, sorted(libraries.glob("*.so*"))))}
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=variables, capture_output=True,
                              text=True, timeout=timeout, check=False)


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "cache"
    return Reader(tmp_path_factory.mktemp("reader"), shared)
