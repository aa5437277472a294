"""Builds the adapter for a version of torch that none was delivered for: once, in seconds, with the
system's C++ compiler and torch's own headers. The result is kept in the user's cache."""
from __future__ import annotations

import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from ._library import GaplessError

SOURCES = ("torch_plugin/adapter/*.cc", "allocator/c_api*.cc")
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise GaplessError(f"{command[0]} failed: " + "; ".join(lines[:3]))


def adapter(version: str, quiet: bool = False) -> pathlib.Path:
    """libgapless_torch-VERSION.so for the torch that is imported, built where it is not in the cache."""
    import torch
    torch_folder = pathlib.Path(torch.__file__).resolve().parent
    root, libraries = source_root()
    sources = sorted(path for pattern in SOURCES for path in root.glob(pattern))
    digest = hashlib.sha256(torch.__version__.encode())
    for path in (*sources, *sorted(root.glob("torch_plugin/adapter/*.h")), libraries / "libgapless_core.a"):
        digest.update(path.read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gapless"
    target = cache / digest.hexdigest()[:16] / f"libgapless_torch-{version}.so"
    latest = cache / target.name  # where libgapless_preload.so looks

    def offer() -> pathlib.Path:
        link = cache / f"{target.name}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        os.replace(link, latest)
        return target

    if target.exists():
        return offer()
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise GaplessError(f"there is no adapter for torch {version}, and no C++ compiler to build one with: "
                           "install g++ 12 or later, or set CXX")
    includes = [f"-I{root}", f"-isystem{torch_folder / 'include'}", f"-isystem{cuda_include(torch_folder)}"]
    if not quiet:
        print(f"gapless: building the adapter for torch {version} (once, less than a minute)", file=sys.stderr)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # torch's headers take longer to read than all the rest: once for each processor.
        parts = max(1, min(os.cpu_count() or 1, 4))

        def compile_part(part: int) -> str:
            made = f"{folder}/part{part}.o"
            joined = pathlib.Path(folder) / f"part{part}.cc"
            joined.write_text("".join(f'#include "{path}"\n' for path in sources[part::parts]))
            run([compiler, *FLAGS, *includes, f'-DGAPLESS_TORCH_VERSION="{version}"', "-c", str(joined), "-o", made])
            return made

        with concurrent.futures.ThreadPoolExecutor(parts) as pool:
            objects = list(pool.map(compile_part, range(parts)))
        whole = f"{folder}/{target.name}"
        run([compiler, "-shared", *objects, str(libraries / "libgapless_trace.a"),
             str(libraries / "libgapless_core.a"), f"-L{torch_folder / 'lib'}", "-lc10_cuda", "-lc10", "-ldl",
             "-Wl,--allow-shlib-undefined", "-Wl,--exclude-libs,ALL",
             f"-Wl,--version-script={root / 'torch_plugin' / 'exports.map'}", "-o", whole])
        os.replace(whole, target)  # whole, or not there
    return offer()
