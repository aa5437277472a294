"""Every way gapless comes into a program, and what is said where it cannot."""
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import GAPLESS, LIBRARIES, PACKAGE, PRELOAD, ROOT

WHO = "import torch; torch.ones(1000, device='cuda'); print('allocator:', torch.cuda.get_allocator_backend())"


@pytest.fixture
def simulate(simulate):
    """Each program imports torch by itself: that is when gapless comes."""
    return functools.partial(simulate, warm=False)


def version() -> str:
    import importlib.metadata
    return ".".join(importlib.metadata.version("torch").split(".")[:2])


def allocator_of(result) -> str:
    return result.values()["allocator"]


def test_without_gapless_it_is_native(simulate):
    assert allocator_of(simulate(WHO)) == "native"


def test_preload(simulate):
    assert allocator_of(simulate(WHO, gapless=True)) == "gapless"
    assert allocator_of(simulate(WHO, gapless=True, GAPLESS="0")) == "native"


def test_preload_names_call_sites(simulate, tmp_path, monkeypatch):
    # The program never imports the package, and has a module of that name of its own.
    (tmp_path / "gapless.py").write_text("print('name: the program has been given another')\n")
    monkeypatch.chdir(tmp_path)
    values = simulate("""
        import torch
        gapless = "a name of the program's own"
        def weights():
            return torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._record_memory_history("all")
        keep = weights()
        for _ in range(2):
            try:
                torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                print("sites:", [line for line in str(error).splitlines() if "call site" in line])
        print("name:", gapless)
        """, gpus="16GiB", gapless=True).values()
    assert values["sites"] == "['  live by call site: 6.00 GiB in 1 blocks at <string>:5 (weights)']"
    assert values["name"] == "a name of the program's own"


def test_install(simulate):
    result = simulate(f"""
        import gapless
        print("fresh:", gapless.install({{"limit": "1GiB", "edge_sharing": False}}))
        {WHO}
        print("limit:", gapless.config()["limit"]["value"])
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print("allowed:", "1024.00 MiB allowed" in str(error) or "1.00 GiB allowed" in str(error))
        """, PYTHONPATH=str(PACKAGE))
    values = result.values()
    assert values == {"fresh": "True", "allocator": "gapless", "limit": "1GiB", "allowed": "True"}


def test_options_of_install(simulate):
    result = simulate(f"""
        import gapless, torch
        def refused(*options, **more):
            try:
                gapless.install(*options, **more)
            except gapless.OptionError as error:
                return str(error)
        print("value:", refused(limit="14XiB"))
        print("key:", refused("limt:1GiB"))
        print("both:", refused({{"limit": "1GiB"}}, limit="2GiB"))
        print("comma:", refused(limit="1GiB,spill:1GiB"))
        print("nothing:", refused(limit=None))
        print("list:", refused(["limit:1GiB"]))
        print("before:", torch.cuda.get_allocator_backend())
        print("fresh:", gapless.install({{"stream_budget": 2}}, limit=1 << 30, edge_sharing=False))
        {WHO}
        print("now:", *(gapless.config()[key]["value"] for key in ("stream_budget", "limit", "edge_sharing")))
        """, PYTHONPATH=str(PACKAGE))
    assert result.values() == {
        "value": 'option limit: "14XiB": expected a size such as 2MiB or 14.5GiB',
        "key": 'unknown option "limt"; the nearest known one is "limit"', "both": "option limit is given twice",
        "comma": 'option limit: "1GiB,spill:1GiB": a value has no comma',
        "nothing": "option limit: None: expected a text or a number",
        "list": "options are a text or a dictionary, not list", "before": "native", "fresh": "True",
        "allocator": "gapless", "now": "2 1GiB false"}


WRONG = 'GAPLESS_CONF: option limit: "14XiB": expected a size such as 2MiB or 14.5GiB'


@pytest.mark.one_torch
def test_options_that_cannot_be_understood_stop_the_program(simulate, tmp_path):
    # Who asks for a limit is not to run without one.
    script = tmp_path / "train.py"
    script.write_text(WHO)
    package = {"PYTHONPATH": str(PACKAGE)}
    result = simulate("", words=["-m", "gapless", "-c", "limit:14XiB", str(script)], check=False, **package)
    assert (result.status, result.out) == (2, "")
    assert 'gapless: option limit: "14XiB": expected a size' in result.err
    result = simulate("", words=["-m", "gapless", str(script)], check=False, GAPLESS_CONF="limit:14XiB", **package)
    assert (result.status, result.out) == (2, "")
    assert f"gapless: {WRONG}" in result.err
    # By LD_PRELOAD: with the first use of CUDA, and whenever it is tried again.
    result = simulate("""
        import torch
        print("before:", torch.ones(3).sum().item())
        for _ in range(2):
            try:
                torch.ones(3, device="cuda")
            except RuntimeError as error:
                print("refused:", error)
        torch.cuda.init()
        """, gapless=True, check=False, GAPLESS_CONF="limit:14XiB")
    assert result.status == 1
    assert result.out == f"before: 3.0\n{f'refused: gapless: {WRONG}' + chr(10)}" * 1 + f"refused: gapless: {WRONG}\n"
    assert f"RuntimeError: gapless: {WRONG}" in result.err
    result = simulate(WHO, gapless=True, check=False, GAPLESS="yes")
    assert (result.status, result.out) == (1, "")
    assert 'RuntimeError: gapless: GAPLESS: "yes": expected 1 or 0' in result.err


def test_install_late_keeps_tensors(simulate):
    result = simulate("""
        import gapless, torch, warnings
        old = torch.tensor(list(range(100))).cuda()
        cached = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        del cached                                  # native has it cached
        before = torch.cuda.memory_allocated()
        gapless.install()
        print("allocated is kept:", torch.cuda.memory_allocated() == before)
        print("cache is given back:", torch.cuda.memory_reserved() <= 2 << 20)
        new = torch.tensor(list(range(100))).cuda()
        side = torch.cuda.Stream()
        old.record_stream(side)
        print("old:", old.tolist() == list(range(100)))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            print("again:", gapless.install(), str(said[0].message))
        del old, new
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        print("left:", torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        """, PYTHONPATH=str(PACKAGE))
    values = result.values()
    assert values["allocated is kept"] == values["cache is given back"] == values["old"] == "True"
    assert values["again"] == "False gapless is installed already"
    assert values["left"] == "0 0"


def test_python_dash_m(simulate, tmp_path: pathlib.Path):
    script = tmp_path / "train.py"
    script.write_text("import sys\n" + WHO + "\nprint('words:', *sys.argv[1:])\nprint('main:', __name__)\n")
    result = simulate("", words=["-m", "gapless", "-c", "limit:8GiB", str(script), "--batch", "8"],
                      PYTHONPATH=str(PACKAGE))
    assert result.values() == {"allocator": "gapless", "words": "--batch 8", "main": "__main__"}
    result = simulate("", words=["-m", "gapless", str(tmp_path / "none.py")], check=False, PYTHONPATH=str(PACKAGE))
    assert result.status == 2
    assert "there is no such file" in result.err


def test_gapless_run(tmp_path: pathlib.Path):
    script = tmp_path / "train.py"
    script.write_text(WHO)
    environment = {**os.environ, "LD_PRELOAD": ":".join(map(str, sorted(LIBRARIES.glob("*.so*")))), "SIMGPU_GPUS": "4GiB"}
    done = subprocess.run([GAPLESS, "run", "--conf", "limit:1GiB", "--", sys.executable, script], env=environment,
                          capture_output=True, text=True, check=True)
    assert done.stdout == "allocator: gapless\n"
    done = subprocess.run([GAPLESS, "run", "--conf", "limt:1GiB", "--", "true"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2
    assert "limit" in done.stderr


@pytest.mark.one_torch
def test_dryrun_with_gapless(tmp_path: pathlib.Path):
    script = tmp_path / "train.py"
    script.write_text(WHO)
    done = subprocess.run([GAPLESS, "dryrun", "--gpu", "4GiB", "--allocator", "gapless,native", "--json",
                           tmp_path / "rows.json", "--", sys.executable, script],
                          capture_output=True, text=True, check=True)
    assert done.stdout == "allocator: gapless\nallocator: native\n"


@pytest.mark.one_torch
def test_entry_point(simulate, tmp_path: pathlib.Path):
    # As pip leaves it: metadata beside the package.
    metadata = tmp_path / "gapless-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gapless\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ngapless = gapless:_autoload\n")
    path = f"{tmp_path}:{PACKAGE}"
    assert allocator_of(simulate(WHO, PYTHONPATH=path)) == "native"
    assert allocator_of(simulate(WHO, PYTHONPATH=path, GAPLESS="1")) == "gapless"
    # What is asked for and cannot be understood is not left out.
    result = simulate(WHO, PYTHONPATH=path, GAPLESS="1", GAPLESS_CONF="limit:14XiB", check=False)
    assert (result.status, result.out) == (1, "")
    assert f"OptionError: {WRONG}" in result.err
    result = simulate(WHO, PYTHONPATH=path, GAPLESS="on", check=False)
    assert (result.status, result.out) == (1, "")
    assert 'GAPLESS: "on": expected 1 or 0' in result.err
    spawned = simulate("""
        import gapless
        gapless.install()
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", sys.argv[-1] if len(sys.argv) > 1 else "import torch; "
              "torch.ones(1, device='cuda'); print('allocator:', torch.cuda.get_allocator_backend())"],
              capture_output=True, text=True).stdout)
        """, PYTHONPATH=path)
    assert allocator_of(spawned) == "gapless"


def test_data_loader_workers(simulate):
    result = simulate("""
        import torch

        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, index):
                return torch.full((1000,), index)

        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
            total = sum(int(batch.cuda().cpu()[:, 0].sum()) for batch in loader)
            print("total:", total, torch.cuda.get_allocator_backend())
        """, gapless=True)
    assert result.values()["total"] == f"{sum(range(64))} gapless"


def test_wrong_version_is_refused(simulate, tmp_path: pathlib.Path):
    other = {"2.11": "2.15", "2.15": "2.11"}[version()]
    theirs = PRELOAD.parent / f"libgapless_torch-{other}.so"
    if not theirs.exists():
        pytest.skip(f"{theirs.name} is not built")
    shutil.copy(theirs, tmp_path / f"libgapless_torch-{version()}.so")
    result = simulate(f"""
        import gapless
        try:
            gapless.install()
        except gapless.GaplessError as error:
            print("refused:", error)
        {WHO}
        """, PYTHONPATH=str(PACKAGE), GAPLESS_LIBRARY_PATH=str(tmp_path))
    values = result.values()
    assert values["allocator"] == "native"
    # Loading it fails where the other version's symbols are not there, else the guard says so.
    assert "cannot be loaded" in values["refused"] or f"built for torch {other}" in values["refused"]


def test_preload_without_an_adapter(simulate, tmp_path: pathlib.Path):
    shutil.copy(PRELOAD, tmp_path)
    front = ":".join(map(str, [tmp_path / PRELOAD.name, *sorted(LIBRARIES.glob("*.so*"))]))
    result = simulate(WHO, LD_PRELOAD=front, XDG_CACHE_HOME=str(tmp_path))
    assert allocator_of(result) == "native"
    assert f"no adapter for torch {version()}" in result.err


def test_a_torch_that_is_not_supported(simulate, site: pathlib.Path, tmp_path: pathlib.Path):
    result = simulate("""
        import gapless, torch
        torch.__version__ = "2.6.0+cu124"
        try:
            gapless.install()
        except gapless.GaplessError as error:
            print("refused:", error)
        """, PYTHONPATH=str(site.parent))
    assert result.values()["refused"] == "torch 2.6 is not supported: gapless is for torch 2.11 to 2.15"
    other = tmp_path / "torch"
    other.mkdir()
    (other / "version.py").write_text("__version__ = '2.16.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    done = subprocess.run([sys.executable, "-m", "gapless", "build", other], env={**os.environ, "PYTHONPATH": str(PACKAGE)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "gapless: torch 2.16 is not supported: gapless is for torch 2.11 to 2.15\n"


def test_torch_without_cuda(simulate):
    result = simulate("""
        import gapless, torch
        torch.version.cuda = None
        try:
            gapless.install()
        except gapless.GaplessError as error:
            print("refused:", error)
        """, PYTHONPATH=str(PACKAGE))
    assert "built without CUDA" in result.values()["refused"]


def test_settings_of_torch(simulate):
    result = simulate(f"""
        {WHO}
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print("limited:", "2.00 GiB allowed" in str(error))
        torch.empty(1100 << 10, dtype=torch.uint8, device="cuda")
        print("peak:", torch.cuda.max_memory_allocated())
        """, gpus="8GiB", gapless=True,
        PYTORCH_CUDA_ALLOC_CONF="backend:native,per_process_memory_fraction:0.25,roundup_power2_divisions:4,"
                                "expandable_segments:True,max_split_size_mb:200")
    values = result.values()
    assert values["allocator"] == "gapless"
    assert values["limited"] == "True"
    assert int(values["peak"]) == 5 << 18  # 1100 KiB are rounded to 1280
    assert result.err.count("max_split_size_mb") == 1
    assert "expandable_segments in" not in result.err


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """As pip leaves the package: no adapter beside it, but its sources and archives."""
    package = tmp_path / "site" / "gapless"
    shutil.copytree(PACKAGE / "gapless", package)
    for folder in ("torch_plugin", "allocator", "simgpu"):
        shutil.copytree(ROOT / folder, package / "src" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "lib").mkdir()
    for name in ("libgapless_core.a", "libgapless_trace.a", PRELOAD.name):
        shutil.copy(PRELOAD.parent / name, package / "lib")
    return package


@pytest.mark.one_torch
def test_where_no_adapter_can_be_built(simulate, site: pathlib.Path, tmp_path: pathlib.Path):
    options = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": "/none/g++"}
    preload = ":".join(map(str, [site / "lib" / PRELOAD.name, *sorted(LIBRARIES.glob("*.so*"))]))
    result = simulate(WHO, LD_PRELOAD=preload, **options)
    assert allocator_of(result) == "native"
    assert "/none/g++" in result.err
    assert f"no adapter for torch {version()}" in result.err
    result = simulate(f"import gapless; gapless.install()\n{WHO}", PYTHONPATH=str(site.parent), check=False, **options)
    assert "GaplessError: /none/g++ cannot be run: No such file or directory" in result.err
    assert "not tried again within an hour" in result.err
    # The cache cannot be written.
    (tmp_path / "file").write_text("")
    result = simulate(WHO, LD_PRELOAD=preload, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert allocator_of(result) == "native"
    assert f"the adapter cannot be kept in {tmp_path / 'file' / 'gapless'}" in result.err


def test_dryrun_says_what_was_used_instead(site: pathlib.Path, tmp_path: pathlib.Path):
    binaries = site / "bin"
    binaries.mkdir()
    shutil.copy(GAPLESS, binaries)
    (site / "lib" / "simgpu").symlink_to(LIBRARIES)
    done = subprocess.run([binaries / "gapless", "dryrun", "--gpu", "4GiB", "--allocator", "gapless", "--json",
                           tmp_path / "rows.json", "--", sys.executable, "-c", WHO],
                          env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": "/none/g++"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "native was used in place of gapless" in done.stderr
    assert [row["allocator"] for row in json.loads((tmp_path / "rows.json").read_text())] == ["native"]


def test_methods_of_newer_versions_override(tmp_path: pathlib.Path):
    # They are declared without `override`, for older versions do not have them: the compiler tells which
    # of them override something in this one.
    import importlib.util
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    cuda = pathlib.Path("/usr/local/cuda/include")
    if not (cuda / "cuda_runtime_api.h").exists():
        pytest.skip("no CUDA headers")
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-Wsuggest-override", f"-I{ROOT}", f"-isystem{torch}/include",
                           f"-isystem{cuda}", str(ROOT / "torch_plugin" / "adapter" / "recording.cc")],
                          capture_output=True, text=True, check=True)
    found = {line.split("TorchAllocator::")[1].split("(")[0] for line in done.stderr.splitlines() if "can be marked override" in line}
    newer = {"attachOomRejectionObserver", "getContextForPointer", "supportsUserMetadata", "annotateMemory",
             "markCaptureBegin", "markCaptureEnd", "allocateWithAddress"}
    assert found == {"2.11": set(), "2.15": newer}[version()]


def test_pluggable(simulate):
    result = simulate("""
        import gapless, torch
        torch.cuda.memory.change_current_allocator(gapless.pluggable_allocator())
        print("allocator:", torch.cuda.get_allocator_backend())
        tensors = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(120)]
        tensors[0].record_stream(torch.cuda.Stream())
        del tensors[::2]
        joined = torch.empty(400 << 20, dtype=torch.uint8, device="cuda")   # in 60 pieces of 8 MiB
        print("joined:", joined.numel())
        torch.cuda.set_per_process_memory_fraction(0.5)
        del joined
        torch.cuda.empty_cache()
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print("out of memory:", "gapless: asked for 1.00 GiB" in str(error))
        """, gpus="1434MiB", PYTHONPATH=str(PACKAGE))
    assert result.values() == {"allocator": "pluggable", "joined": str(400 << 20), "out of memory": "True"}


def test_pluggable_is_given_what_it_did_not_hand_out(simulate):
    # As a tensor's destructor does, where an exception would end the process.
    result = simulate(f"""
        import ctypes, gapless, torch
        torch.cuda.memory.change_current_allocator(gapless.pluggable_allocator())
        tensor = torch.ones(10, device="cuda")
        library = ctypes.CDLL({str(PRELOAD.parent / "libgapless.so")!r})
        library.gapless_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        library.gapless_torch_free.restype = None
        library.gapless_torch_free(0x1234000, 512, 0, None)
        library.gapless_torch_free(tensor.data_ptr(), 40, -1, None)     # on a device that there is not
        print("goes on:", True)
        """, PYTHONPATH=str(PACKAGE))
    assert result.values() == {"goes on": "True"}
    assert "gapless: gapless_torch_free(0x1234000): this address was not given out, or is free already" in result.err


def test_pluggable_in_a_pool(simulate):
    result = simulate("""
        import gapless, torch
        pool = torch.cuda.MemPool(gapless.pluggable_allocator().allocator())
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.tensor(list(range(100))).cuda()
        print("numbers:", tensor.tolist() == list(range(100)))
        print("allocator:", torch.cuda.get_allocator_backend())
        del tensor, pool
        torch.cuda.empty_cache()
        """, PYTHONPATH=str(PACKAGE))
    assert result.values() == {"numbers": "True", "allocator": "native"}


@pytest.mark.parametrize("way", ["a clean environment", "no environment", "env -i", "another preload"])
def test_whatever_environment_a_child_is_given_it_is_on_simulated_gpus(dryrun, way):
    """Else nobody would know of the memory that it wants."""
    start = {"a clean environment": "subprocess.run(job, env={'CUDA_VISIBLE_DEVICES': '0'})",
             "no environment": "os.environ.clear(); subprocess.run(job)",
             "env -i": "subprocess.run(['env', '-i', *job])",
             "another preload": "subprocess.run(job, env={**os.environ, 'LD_PRELOAD': 'libm.so.6'})"}[way]
    _, rows = dryrun("--gpu", "1GiB", program=f"""
import os, subprocess, sys
job = [sys.executable, "-c", "import torch; x = torch.zeros(100 << 20, dtype=torch.uint8, device='cuda')"]
{start}
""")
    assert [row["peak_allocated_bytes"] for row in rows] == [100 << 20]
