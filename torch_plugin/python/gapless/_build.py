"""Builds the adapter for a version of torch that none was delivered for: once, in seconds, with the
system's C++ compiler and torch's own headers. The result is kept in the user's cache.

    ~/.cache/gapless/1f0c.../libgapless_torch-2.11.so     by what it was made of
    ~/.cache/gapless/libgapless_torch-2.11.so             the latest: where libgapless_preload.so looks

torch is not imported here: libgapless_preload.so runs this beside a program that is about to use CUDA.
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Iterator

from ._library import GaplessError

SOURCES = ("torch_plugin/adapter/*.cc", "allocator/c_api*.cc")
RETRY_SECONDS = 3600  # ranks and restarts are not to compile again and again what does not compile
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-w"]


def source_root() -> tuple[pathlib.Path, pathlib.Path]:
    """Where the sources lie, and where libgapless_core.a and libgapless_trace.a."""
    here = pathlib.Path(__file__).resolve().parent
    for root, libraries in ((here / "src", here / "lib"), (here.parents[2], here.parents[2] / "build" / "release" / "lib")):
        if (root / "torch_plugin" / "adapter").is_dir() and (libraries / "libgapless_core.a").exists():
            return root, libraries
    raise GaplessError("the adapter's sources are not beside the package: install gapless with pip, or build it "
                       "with `make build`")


def cuda_include(torch: pathlib.Path) -> pathlib.Path:
    """The folder of cuda_runtime_api.h, which torch's headers include."""
    candidates = [torch.parent / "nvidia" / name / "include" for name in ("cu13", "cu12", "cuda_runtime")]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    candidates += [pathlib.Path(home) / "include"] if home else []
    candidates.append(pathlib.Path("/usr/local/cuda/include"))
    for folder in candidates:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    raise GaplessError(f"cuda_runtime_api.h is in none of {', '.join(map(str, candidates))}: install "
                       "nvidia-cuda-runtime with pip, or set CUDA_HOME")


def run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GaplessError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error:" in line or "undefined" in line] or \
            done.stderr.splitlines() or [f"exit status {done.returncode}"]
        raise GaplessError(f"{command[0]} failed: " + "; ".join(lines[:3]))


def installed_torch() -> pathlib.Path:
    """The folder of the torch that `import torch` would import."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise GaplessError("torch is not installed")
    return pathlib.Path(found.submodule_search_locations[0])


def full_version(torch: pathlib.Path) -> str:
    """"2.11.0+cu130" of torch's folder, or LibTorch's; raises GaplessError where it has no CUDA."""
    if (torch / "version.py").exists():
        names = runpy.run_path(str(torch / "version.py"))
        if names.get("cuda") is None:
            raise GaplessError(f"torch {names['__version__']} was built without CUDA")
        return str(names["__version__"])
    if (torch / "build-version").exists():
        return (torch / "build-version").read_text().strip()
    raise GaplessError(f"{torch} is not torch's folder: it has no version.py")


@contextlib.contextmanager
def alone_in(folder: pathlib.Path) -> Iterator[None]:
    """Waits until no other process is in here: ranks that begin together build one adapter."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def adapter(torch: pathlib.Path | None = None, once: bool = False) -> pathlib.Path:
    """libgapless_torch-VERSION.so for that torch, or the one that is installed; built where it is not in
    the cache. `once`: not where that failed within the last hour, with the same compiler."""
    torch_folder = (torch or installed_torch()).resolve()
    whole_version = full_version(torch_folder)
    version = ".".join(whole_version.split(".")[:2])
    root, libraries = source_root()
    sources = sorted(path for pattern in SOURCES for path in root.glob(pattern))
    digest = hashlib.sha256(whole_version.encode())
    for path in (*sources, *sorted(root.glob("torch_plugin/adapter/*.h")), libraries / "libgapless_core.a"):
        digest.update(path.read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gapless"
    target = cache / digest.hexdigest()[:16] / f"libgapless_torch-{version}.so"
    if target.exists():
        with contextlib.suppress(OSError):  # of a cache that others keep
            offer(target)
        return target
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise GaplessError(f"there is no adapter for torch {version}, and no C++ compiler to build one with: "
                           "install g++ 12 or later, or set CXX")
    try:
        with alone_in(cache):
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                build(target, compiler, version, torch_folder, root, sources, libraries, once)
            offer(target)
    except OSError as error:
        raise GaplessError(f"the adapter cannot be kept in {cache}: {error}") from error
    return target


def offer(target: pathlib.Path) -> None:
    """Puts it where libgapless_preload.so looks, which takes none older than itself."""
    os.utime(target)
    latest = target.parents[1] / target.name
    link = latest.with_name(f"{target.name}.{os.getpid()}")
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    os.replace(link, latest)


def build(target: pathlib.Path, compiler: str, version: str, torch_folder: pathlib.Path, root: pathlib.Path,
          sources: list[pathlib.Path], libraries: pathlib.Path, once: bool) -> None:
    failed = target.with_suffix(".failed")
    if once and failed.exists() and time.time() - failed.stat().st_mtime < RETRY_SECONDS:
        said_by, text = failed.read_text().split("\n", 1)
        if said_by == compiler:
            raise GaplessError(f"{text} (not tried again within an hour; `python -m gapless build` does)")
    includes = [f"-I{root}", f"-isystem{torch_folder / 'include'}", f"-isystem{cuda_include(torch_folder)}"]
    print(f"gapless: building the adapter for torch {version} (once, less than a minute)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # torch's headers take longer to read than all the rest: once for each processor.
        parts = max(1, min(os.cpu_count() or 1, 4))

        def compile_part(part: int) -> str:
            made = f"{folder}/part{part}.o"
            joined = pathlib.Path(folder) / f"part{part}.cc"
            joined.write_text("".join(f'#include "{path}"\n' for path in sources[part::parts]))
            run([compiler, *FLAGS, *includes, f'-DGAPLESS_TORCH_VERSION="{version}"', "-c", str(joined), "-o", made])
            return made

        try:
            with concurrent.futures.ThreadPoolExecutor(parts) as pool:
                objects = list(pool.map(compile_part, range(parts)))
            whole = f"{folder}/{target.name}"
            run([compiler, "-shared", *objects, str(libraries / "libgapless_trace.a"),
                 str(libraries / "libgapless_core.a"), f"-L{torch_folder / 'lib'}", "-lc10_cuda", "-lc10", "-ldl",
                 "-l:libzstd.so.1", "-Wl,--allow-shlib-undefined", "-Wl,--exclude-libs,ALL",
                 f"-Wl,--version-script={root / 'torch_plugin' / 'exports.map'}", "-o", whole])
        except GaplessError as error:
            failed.write_text(f"{compiler}\n{error}")
            raise
        os.replace(whole, target)  # whole, or not there
