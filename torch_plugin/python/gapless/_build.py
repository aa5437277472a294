"""Builds what is another library for each version of torch, where none was delivered for that: once, in seconds, with the
system's C++ compiler and torch's own headers. The result is kept in the user's cache (_cache.py).

torch is not imported here, and nothing of it is run: the preloaded library asks for an adapter beside a
program that is about to use CUDA (_for_preload.py).
"""
from __future__ import annotations

import hashlib
import os
import pathlib
import re
import sys
import time
from typing import NamedTuple

from . import _cache
from ._library import GaplessError, check_supported, package_folders, source_tree


class Kind(NamedTuple):
    """A library that is another one for each version of torch."""
    text: str
    file: str  # without the version
    sources: tuple[str, ...]
    headers: tuple[str, ...]
    archives: tuple[str, ...]
    words: tuple[str, ...]  # for the linker


KINDS = {
    "adapter": Kind("adapter", "libgapless_torch", ("torch_plugin/adapter/*.cc", "allocator/c_api*.cc"),
                    ("torch_plugin/adapter/*.h", "kernels/integrity.h", "simgpu/torch/torch_version.h"), ("libgapless_trace.a", "libgapless_core.a"),
                    ("-lc10_cuda", "-lc10", "-ldl", "-l:libzstd.so.1", "-Wl,--version-script={root}/torch_plugin/exports.map")),
    # libsimgpu.so, whose functions it calls, is in the process before it.
    "numbers": Kind("library that computes numbers on simulated GPUs", "libsimgpu_torch",
                    tuple(f"simgpu/torch/{name}.cc" for name in ("certain_flags", "computation", "device_tensor", "drawn_numbers",
                                                                 "guesses", "index_checks", "install", "list_elements",
                                                                 "operator_facts", "partly_known", "sparse_kernel", "value_kernel")),
                    ("simgpu/torch/*.h", "simgpu/process/values.h", "simgpu/process/api.h"), (), ("-ltorch_cpu", "-lc10")),
}
RETRY_SECONDS = 3600  # ranks and restarts are not to compile again and again what does not compile
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-w"]


def source_root() -> tuple[pathlib.Path, pathlib.Path]:
    """Where the sources lie, and where libgapless_core.a and libgapless_trace.a."""
    places = [(folder / "src", folder / "lib") for folder in package_folders()]
    if tree := source_tree():
        places.append((tree, tree / "build" / "release" / "lib"))
    for root, libraries in places:
        if (root / "torch_plugin" / "adapter").is_dir() and (libraries / "libgapless_core.a").exists():
            return root, libraries
    raise GaplessError("the adapter's sources are not beside the package: install gapless with pip, or build it "
                       "with `make build`")


def cuda_include(torch: pathlib.Path) -> pathlib.Path:
    """The folder of cuda_runtime_api.h, which torch's headers include."""
    candidates = [torch.parent / "nvidia" / name / "include" for name in ("cu13", "cu12", "cuda_runtime")]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    candidates += [pathlib.Path(home).absolute() / "include"] if home else []
    candidates.append(pathlib.Path("/usr/local/cuda/include"))
    for folder in candidates:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    raise GaplessError(f"cuda_runtime_api.h is in none of {', '.join(map(str, candidates))}: install "
                       "nvidia-cuda-runtime with pip, or set CUDA_HOME")


def run(command: list[str]) -> None:
    import subprocess
    try:  # from where no program's files are: search paths may name the current folder
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    except OSError as error:
        raise GaplessError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error:" in line or "undefined" in line] or \
            done.stderr.splitlines() or [f"exit status {done.returncode}"]
        raise GaplessError(f"{command[0]} failed: " + "; ".join(lines[:3]))


def find_compiler() -> str | None:
    import shutil
    path = os.pathsep.join(part for part in os.get_exec_path() if os.path.isabs(part))
    asked = os.environ.get("CXX")
    return (shutil.which(asked, path=path) or asked) if asked else \
        shutil.which("g++", path=path) or shutil.which("c++", path=path)


def installed_torch() -> pathlib.Path:
    """The folder of the torch that `import torch` would import."""
    import importlib.util
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        raise GaplessError("torch is not installed")
    return pathlib.Path(found.submodule_search_locations[0])


def full_version(torch: pathlib.Path) -> str:
    """"2.11.0+cu130" of torch's folder, or LibTorch's; raises GaplessError where it has no CUDA."""
    if (torch / "version.py").exists():
        text = (torch / "version.py").read_text(encoding="utf-8")
        version = re.search(r"^__version__\b.*?= *['\"](.+?)['\"]", text, re.MULTILINE)
        if version is None:
            raise GaplessError(f"{torch / 'version.py'} does not tell torch's version")
        if re.search(r"^cuda\b.*?= *['\"]", text, re.MULTILINE) is None:
            raise GaplessError(f"torch {version[1]} was built without CUDA")
        return version[1]
    if (torch / "build-version").exists():
        return (torch / "build-version").read_text(encoding="utf-8").strip()
    raise GaplessError(f"{torch} is not torch's folder: it has no version.py")


def adapter(torch: pathlib.Path | None = None, once: bool = False) -> pathlib.Path:
    """libgapless_torch-VERSION.so (library())."""
    return library(KINDS["adapter"], torch, once)


def library(kind: Kind, torch: pathlib.Path | None = None, once: bool = False) -> pathlib.Path:
    """One of KINDS for that torch, or the one that is installed; built where it is not in the cache. `once`: not where
    that failed within the last hour, with the same compiler."""
    torch_folder = (torch or installed_torch()).resolve()
    whole_version = full_version(torch_folder)
    version = ".".join(whole_version.split(".")[:2])
    check_supported(version)
    root, libraries = source_root()
    sources = sorted(path for pattern in kind.sources for path in root.glob(pattern))
    headers = sorted(path for pattern in kind.headers for path in root.glob(pattern))
    archives = [libraries / name for name in kind.archives]
    digest = hashlib.sha256(whole_version.encode())
    for path in (*sources, *headers, *archives):
        digest.update(path.read_bytes())
    key = digest.hexdigest()[:16]
    name = f"{kind.file}-{version}.so"
    if found := _cache.checked(_cache.folder() / key / name):
        return found
    compiler = find_compiler()
    if compiler is None:
        raise GaplessError(f"there is no {kind.text} for torch {version}, and no C++ compiler to build one with: "
                           "install g++ 12 or later, or set CXX")
    with _cache.alone_in(key) as folder:
        if not os.path.lexists(folder / name):
            build(kind, folder / name, compiler, version, torch_folder, root, sources, archives, once)
    made = _cache.checked(folder / name)
    assert made is not None
    return made


def build(kind: Kind, target: pathlib.Path, compiler: str, version: str, torch_folder: pathlib.Path, root: pathlib.Path,
          sources: list[pathlib.Path], archives: list[pathlib.Path], once: bool) -> None:
    import concurrent.futures
    import tempfile
    failed = target.with_suffix(".failed")
    if once and failed.exists() and time.time() - failed.stat().st_mtime < RETRY_SECONDS:
        said_by, text = failed.read_text(encoding="utf-8").split("\n", 1)
        if said_by == compiler:
            raise GaplessError(f"{text} (not tried again within an hour; `python -m gapless build` does)")
    includes = [f"-I{root}", f"-isystem{torch_folder / 'include'}", f"-isystem{cuda_include(torch_folder)}"]
    print(f"gapless: building the {kind.text} for torch {version} (once, less than a minute)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        # torch's headers take longer to read than all the rest. However many processors there are, the same files are
        # joined: what one lacks another may include.
        parts = 2

        def compile_part(part: int) -> str:
            made = f"{temporary}/part{part}.o"
            joined = pathlib.Path(temporary) / f"part{part}.cc"
            joined.write_text("".join(f'#include "{path}"\n' for path in sources[part::parts]), encoding="utf-8")
            run([compiler, *FLAGS, *includes, f'-DGAPLESS_TORCH_VERSION="{version}"', "-c", str(joined), "-o", made])
            return made

        try:
            with concurrent.futures.ThreadPoolExecutor(parts) as pool:
                objects = list(pool.map(compile_part, range(parts)))
            whole = f"{temporary}/{target.name}"
            run([compiler, "-shared", *objects, *map(str, archives), f"-L{torch_folder / 'lib'}",
                 *(word.format(root=root) for word in kind.words), "-Wl,--allow-shlib-undefined",
                 "-Wl,--exclude-libs,ALL", "-o", whole])
        except GaplessError as error:
            failed.write_text(f"{compiler}\n{error}", encoding="utf-8")
            raise
        _cache.keep(pathlib.Path(whole), target)
