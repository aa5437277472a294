#!/usr/bin/env python3
"""Programs that start where the C library is older than this machine's: on every system that PyTorch's own wheels
start on (manylinux_2_28: glibc 2.28, and the libstdc++ of GCC 8).

    old_libraries.py stubs FOLDER     writes libraries to link against in place of this machine's, with nothing in them
                                      that is newer than that
    old_libraries.py check FILE...    exit status 1 where a file asks for anything newer, naming it, or for a library
                                      that is not there (--may LIBRARY..., --without LIBRARY...)

A symbol that the C library changed exists in several versions; a program asks for the one that the library it was
linked against has as its default, which is the newest. The stubs have the newest that is old enough:

    libc.so.6     dlopen@GLIBC_2.2.5  dlopen@@GLIBC_2.34   arc4random@@GLIBC_2.36
    its stub      dlopen@@GLIBC_2.2.5                      nothing: whoever needs it cannot be linked
"""
import argparse
import pathlib
import re
import subprocess
import sys

NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8,)}
STUBBED = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6")
# What was apart from the C library before glibc 2.34, and has to be asked for by name there.
EMPTY = ("libpthread.so.0", "libdl.so.2")
SYSTEM = {*STUBBED, *EMPTY, "libgcc_s.so.1"}


def is_old_enough(version: str) -> bool:
    family, _, number = version.partition("_")
    if family not in NEWEST or not re.fullmatch(r"[0-9.]+", number):
        return False  # GLIBC_PRIVATE and what a library of another kind calls its versions
    return tuple(int(part) for part in number.split(".")) <= NEWEST[family]


def dynamic_symbols(path: pathlib.Path, defined: bool) -> list[tuple[str, str, str, str]]:
    """(name, version, type, size) of what a file has or asks for; the version is empty where there is none."""
    text = subprocess.run(["readelf", "--wide", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit() or (words[6] == "UND") == defined:
            continue
        name, _, version = words[7].partition("@")
        found.append((name, version.lstrip("@"), words[3], words[2]))
    return found


def newest_old_enough(library: pathlib.Path) -> dict[str, tuple[str, str, str]]:
    """name -> (version, type, size)."""
    chosen: dict[str, tuple[str, str, str]] = {}

    def order(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.partition("_")[2].split("."))

    for name, version, kind, size in dynamic_symbols(library, defined=True):
        if kind in ("FUNC", "OBJECT", "TLS", "IFUNC") and is_old_enough(version):
            if name not in chosen or order(version) > order(chosen[name][0]):
                chosen[name] = version, kind, size
    return chosen


def write_stub(folder: pathlib.Path, soname: str, symbols: dict[str, tuple[str, str, str]]) -> None:
    types = {"FUNC": "function", "IFUNC": "function", "OBJECT": "object", "TLS": "tls_object"}
    sections = {"FUNC": ".text", "IFUNC": ".text", "OBJECT": ".bss", "TLS": '.section .tbss,"awT",@nobits'}
    lines = ['.section .note.GNU-stack,"",@progbits']
    for number, (name, (version, kind, size)) in enumerate(sorted(symbols.items())):
        room = max(int(size, 0), 1)
        lines += [sections[kind], f".globl stub{number}", f".type stub{number}, @{types[kind]}", f"stub{number}:",
                  f".zero {1 if kind in ('FUNC', 'IFUNC') else room}", f".size stub{number}, . - stub{number}",
                  f".symver stub{number}, {name}@@{version}, remove"]
    assembly = folder / f"{soname}.s"
    script = folder / f"{soname}.map"
    assembly.write_text("\n".join(lines) + "\n")
    versions = sorted({version for version, _, _ in symbols.values()})
    script.write_text("".join(f"{version} {{ }};\n" for version in versions) or "{ local: *; };\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{script}",
                    "-o", folder / soname, assembly], check=True)


def write_stubs(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def installed(name: str) -> pathlib.Path:
        path = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        return pathlib.Path(path.strip())

    for soname in STUBBED:
        write_stub(folder, soname, newest_old_enough(installed(soname)))
    for soname in EMPTY:
        write_stub(folder, soname, {})
    # What the linker looks for: -lc, -lm, -lstdc++.
    apart = " ".join(str(folder / soname) for soname in EMPTY)
    (folder / "libc.so").write_text(
        f"GROUP ( {folder / 'libc.so.6'} {installed('libc_nonshared.a')} {apart} "
        f"AS_NEEDED ( {folder / 'ld-linux-x86-64.so.2'} ) )\n")
    for short, soname in (("libm.so", "libm.so.6"), ("libstdc++.so", "libstdc++.so.6")):
        (folder / short).unlink(missing_ok=True)
        (folder / short).symlink_to(soname)


def check(files: list[pathlib.Path], may: list[str], without: list[str]) -> int:
    wrong = 0
    there = (SYSTEM | set(may)) - set(without)

    def complain(text: str) -> None:
        nonlocal wrong
        wrong += 1
        print(text)

    for path in files:
        for name, version, _, _ in dynamic_symbols(path, defined=False):
            if version and version.partition("_")[0] in NEWEST and not is_old_enough(version.split()[0]):
                complain(f"{path}: {name} is of {version}")
        dynamic = subprocess.run(["readelf", "--wide", "--dynamic", path], capture_output=True, text=True, check=True)
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic.stdout):
            if needed not in there:
                complain(f"{path}: needs {needed}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stubs").add_argument("folder", type=pathlib.Path)
    checking = commands.add_parser("check")
    checking.add_argument("files", nargs="+", type=pathlib.Path)
    checking.add_argument("--may", nargs="*", default=[], help="libraries that are there, or come with the files")
    checking.add_argument("--without", nargs="*", default=[], help="libraries of the system that may not be")
    arguments = parser.parse_args()
    if arguments.command == "stubs":
        write_stubs(arguments.folder.absolute())
        return 0
    return check(arguments.files, arguments.may, arguments.without)


if __name__ == "__main__":
    sys.exit(main())
