#!/usr/bin/env python3
"""Collects what the libraries in front of the simulated GPU must export.

    collect.py --libraries /usr/local/cuda/lib64 --importers VENV/lib/python3.11/site-packages/torch

writes one list for each library in libraries.txt: what NVIDIA's library exports, and what the
importers want of it. Lists only grow, so that older and newer torch find what they need:

    cudaMalloc libcudart.so.13        a function and its version node ("-": none)
    nvshmem_team_world - data 64      a variable and its size in bytes

With --check nothing is written; exit status 1 says that an importer wants what no list has.
"""
import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def libraries() -> dict[str, str]:
    """soname -> the pattern of its functions' names, by which unversioned imports are told apart."""
    found = {}
    for line in (HERE / "libraries.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            soname, _status, pattern = line.split(None, 2)
            found[soname] = pattern
    return found


def symbols(path: pathlib.Path, *options: str) -> list[list[str]]:
    """Lines of nm: [value, size, type, name@version], those that are there."""
    text = subprocess.run(
        ["nm", "-D", "-S", "--with-symbol-versions", *options, str(path)],
        capture_output=True, text=True, check=False).stdout
    return [line.split() for line in text.splitlines() if line.strip()]


def exports(path: pathlib.Path) -> dict[str, str]:
    found = {}
    for fields in symbols(path, "--defined-only"):
        name, _, version = fields[-1].partition("@")
        kind = fields[-2]
        version = version.lstrip("@") or "-"
        if name == version or kind == "A":
            continue
        if kind in "TtWi":
            found[name] = version
        elif kind in "BDRV" and len(fields) == 4:
            found[name] = f"{version} data {int(fields[1], 16)}"
    return found


def imports(root: pathlib.Path, known: dict[str, str]) -> dict[str, dict[str, str]]:
    """soname -> name -> version, of everything under a folder."""
    found: dict[str, dict[str, str]] = {soname: {} for soname in known}
    by_version = {soname: soname for soname in known}
    by_version["NVSHMEM"] = next((s for s in known if "nvshmem" in s), "")
    for path in sorted(root.rglob("*.so*")):
        for fields in symbols(path, "--undefined-only"):
            name, _, version = fields[-1].partition("@")
            version = version.lstrip("@")
            soname = by_version.get(version)
            if soname is None and not version:
                soname = next((s for s, pattern in known.items()
                               if re.fullmatch(pattern, name)), None)
            if soname:
                found[soname][name] = version or "-"
    return found


def read_list(soname: str) -> dict[str, str]:
    path = HERE / f"{soname}.txt"
    if not path.exists():
        return {}
    pairs = (line.split(None, 1) for line in path.read_text().splitlines())
    return {name: rest for name, rest in pairs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--importers", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--names", type=pathlib.Path, action="append", default=[],
                        help="a text (pynvml.py) or a library whose strings name functions too")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    known = libraries()
    wanted = {soname: dict[str, str]() for soname in known}
    for root in arguments.importers:
        for soname, names in imports(root, known).items():
            wanted[soname].update(names)
    for path in arguments.names:
        # Quoted in a text, or between two zeros in a library.
        for match in re.finditer(rb'["\0](nvml[A-Z]\w+)["\0]', path.read_bytes()):
            wanted["libnvidia-ml.so.1"].setdefault(match[1].decode(), "-")
    missing = 0
    for soname in known:
        listed = read_list(soname)
        for name in sorted(wanted[soname].keys() - listed.keys()):
            if arguments.check:
                print(f"{soname} lacks {name}")
                missing += 1
        if arguments.check:
            continue
        for folder in arguments.libraries:
            for path in (folder / soname, folder / "stubs" / (soname.split(".so")[0] + ".so")):
                if path.exists():
                    for name, rest in exports(path).items():
                        listed.setdefault(name, rest)
                    break
        for name, version in wanted[soname].items():
            listed.setdefault(name, version)
        lines = [f"{name} {rest}\n" for name, rest in sorted(listed.items())]
        (HERE / f"{soname}.txt").write_text("".join(lines))
        print(f"{soname}: {len(lines)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
