"""What gapless runs and loads beside a program: nothing of the program's folder, and of the user's cache only what it
built there itself."""
import functools
import importlib
import os
import pathlib
import shutil
import stat
import sys

import pytest

from conftest import LIBRARIES, PACKAGE, PRELOAD, ROOT

pytestmark = pytest.mark.one_torch

WHO = "import torch; torch.ones(1000, device='cuda'); print('allocator:', torch.cuda.get_allocator_backend())"


@pytest.fixture
def simulate(simulate):
    return functools.partial(simulate, warm=False)


def version() -> str:
    return ".".join(importlib.metadata.version("torch").split(".")[:2])


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """As pip leaves the package: no adapter beside it, but its sources and archives."""
    package = tmp_path / "site" / "gapless"
    shutil.copytree(PACKAGE / "gapless", package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("torch_plugin", "allocator", "simgpu"):
        shutil.copytree(ROOT / folder, package / "src" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "lib").mkdir()
    for name in ("libgapless_core.a", "libgapless_trace.a", PRELOAD.name):
        shutil.copy(PRELOAD.parent / name, package / "lib")
    return package


@pytest.fixture
def compiler(tmp_path: pathlib.Path) -> str:
    """A compiler that is done at once: it has the adapter already."""
    script = tmp_path / "c++"
    script.write_text(f"""#!/bin/sh
for word; do
  [ "$previous" = -o ] && out=$word
  [ "$word" = -shared ] && from={PRELOAD.parent}/libgapless_torch-{version()}.so
  previous=$word
done
cp "${{from:-/dev/null}}" "$out"
""")
    script.chmod(0o755)
    return str(script)


def preload(package: pathlib.Path) -> str:
    return ":".join(map(str, [package / "lib" / PRELOAD.name, *sorted(LIBRARIES.glob("*.so*"))]))


def test_files_of_the_current_folder_are_not_run(simulate, site, compiler, tmp_path, monkeypatch):
    planted, log = tmp_path / "planted", tmp_path / "log"
    planted.mkdir()
    tell = f"import sys; print(__name__, sys.orig_argv, file=open({str(log)!r}, 'a'))\n"
    for name in ("argparse", "build", "torch", "gapless", "hashlib", "fcntl", "subprocess", "ctypes", "json", "html",
                 "_call_sites", "sitecustomize", "concurrent"):
        (planted / f"{name}.py").write_text(tell)
    for name in ("python3", "g++", "c++", "ld", "as"):
        (planted / name).write_text(f"#!/bin/sh\necho {name} >> {log}\nexit 1\n")
        (planted / name).chmod(0o755)
    # What Python itself runs of a PYTHONPATH is the program's business; it is not the helper's.
    path = tmp_path / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(f"import sys\nif 'train.py' not in sys.orig_argv[-1]:\n    {tell}")
    (path / "gapless.py").write_text(tell)
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text(f"""
{WHO}
torch.cuda.memory._record_memory_history("all")
keep = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("sites:", "live by call site: 1.00 GiB in 1 blocks at" in str(error))
""")
    monkeypatch.chdir(planted)
    result = simulate("", words=[str(script)], LD_PRELOAD=preload(site), XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=compiler,
                      PYTHONPATH=str(path), PATH=f".:{os.environ['PATH']}:")
    assert result.values() == {"allocator": "gapless", "sites": "True"}
    assert "building the adapter" in result.err
    assert not log.exists(), log.read_text()


def test_dash_m_gapless_runs_nothing_of_the_current_folder_but_the_package(simulate, tmp_path, monkeypatch):
    log = tmp_path / "log"
    for name in ("argparse", "runpy", "hashlib"):
        (tmp_path / f"{name}.py").write_text(f"print(__name__, file=open({str(log)!r}, 'a'))\n")
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "train.py"
    script.write_text(WHO + f"\nimport os, sys\nprint('path:', sys.path[0], os.getcwd() in sys.path)\n")
    monkeypatch.chdir(tmp_path)
    result = simulate("", words=["-m", "gapless", str(script)], PYTHONPATH=str(PACKAGE))
    assert result.values() == {"allocator": "gapless", "path": f"{script.parent} False"}
    assert not log.exists(), log.read_text()


@pytest.fixture
def cache(site, compiler, tmp_path, monkeypatch):
    """The package's _cache and an adapter in the cache: (module, path)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.syspath_prepend(str(site.parent))
    for name in [name for name in sys.modules if name.split(".")[0] == "gapless"]:
        del sys.modules[name]
    old = os.umask(0)  # whatever the user's is
    try:
        made = importlib.import_module("gapless._build").adapter()
    finally:
        os.umask(old)
    yield importlib.import_module("gapless._cache"), made
    for name in [name for name in sys.modules if name.split(".")[0] == "gapless"]:
        del sys.modules[name]


def test_what_was_built_is_for_nobody_else_to_write(cache):
    module, made = cache
    assert module.checked(made) == made
    for path in (module.folder(), made.parent, *made.parent.iterdir(), *module.folder().iterdir()):
        facts = path.lstat()
        assert not facts.st_mode & 0o022, f"{path}: {stat.filemode(facts.st_mode)}"
        assert not stat.S_ISLNK(facts.st_mode), path


def _replace(made):
    made.write_bytes(made.read_bytes() + b"\0")


def _link(made):
    made.rename(made.with_name("elsewhere"))
    made.symlink_to("elsewhere")


def _link_folder(made):
    made.parent.rename(made.parent.with_name("elsewhere"))
    made.parent.symlink_to("elsewhere")


@pytest.mark.parametrize("change, cause", [
    (_replace, "is not what was built there"),
    (_link, "is a link"),
    (_link_folder, "is a link"),
    (lambda made: made.chmod(0o666), r"can be written by others \(mode 0666\)"),
    (lambda made: made.parent.chmod(0o770), r"can be written by others \(mode 0770\)"),
    (lambda made: made.parents[1].chmod(0o777), r"can be written by others \(mode 0777\)"),
    (lambda made: made.with_name(made.name + ".sha256").unlink(), "sha256: No such file"),
    (lambda made: made.with_name(made.name + ".sha256").write_text("\n"), "is not what was built there"),
    (lambda made: os.chown(made, 12345, -1), "belongs to user 12345"),
    (lambda made: os.chown(made.parents[1], 12345, -1), "belongs to user 12345"),
], ids=["replaced", "link", "link of a folder", "file's mode", "folder's mode", "cache's mode", "no digest", "empty digest",
        "file's owner", "cache's owner"])
def test_what_others_could_have_put_there_is_refused(cache, change, cause):
    module, made = cache
    try:
        change(made)
    except PermissionError:
        pytest.skip("only root gives files to others")
    errors = importlib.import_module("gapless").GaplessError
    with pytest.raises(errors, match=cause):
        module.checked(made)
    with pytest.raises(errors, match=cause):
        importlib.import_module("gapless._build").adapter()


def test_a_planted_lock_is_not_followed(cache, tmp_path):
    module, made = cache
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (module.folder() / "lock").unlink()
    (module.folder() / "lock").symlink_to(victim)
    shutil.rmtree(made.parent)
    with pytest.raises(importlib.import_module("gapless").GaplessError, match="cannot be kept"):
        importlib.import_module("gapless._build").adapter()
    assert victim.read_text() == "precious"


def test_the_preloaded_library_says_what_it_refused(simulate, cache, site):
    module, made = cache
    result = simulate(WHO, LD_PRELOAD=preload(site))
    assert result.values() == {"allocator": "gapless"}
    module.folder().chmod(0o777)
    result = simulate(WHO, LD_PRELOAD=preload(site))
    assert result.values() == {"allocator": "native"}
    assert f"gapless: {module.folder()} can be written by others (mode 0777), so nothing there is used" in result.err
    assert "PyTorch's own allocator is used" in result.err


def test_a_helper_of_others_is_not_run(simulate, site, tmp_path):
    # The library lies where others may put files beside its folder: /tmp/lib, and /tmp/_for_preload.py.
    log = tmp_path / "log"
    (site / "_for_preload.py").write_text(f"open({str(log)!r}, 'w')\n")
    (site / "_for_preload.py").chmod(0o666)
    result = simulate(WHO, LD_PRELOAD=preload(site), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.values() == {"allocator": "native"}
    assert not log.exists()
